// The question which of two translations stands, where somebody changed a sentence while the user wrote.

import { t } from "./messages.js";
import { markNewWords } from "./word_links.js";

export class ConflictDialog {
  constructor(dialog, view) {
    Object.assign(this, { dialog, view, list: dialog.querySelector("ul"), template: dialog.querySelector("template") });
  }

  /** Ask, and return "mine", "theirs", or "" if the user leaves it open. targets: of the user, by number. */
  async ask(sentences, targets) {
    const { dialog } = this;
    this.list.replaceChildren(...sentences.map((each) => this.makeRow(each, targets[each.number])));
    dialog.returnValue = "";
    dialog.showModal();
    await new Promise((resolve) => dialog.addEventListener("close", resolve, { once: true }));
    return dialog.returnValue;
  }

  makeRow({ source, target, edited, confirmed }, mine) {
    const row = this.template.content.cloneNode(true);
    const [head, state, ...texts] = row.querySelectorAll("p, dt:first-of-type, dd");
    Object.assign(head, { textContent: source, lang: this.view.languages.source });
    state.textContent = [t("Theirs"), edited && t("edited"), confirmed && t("confirmed")].filter(Boolean).join(", ");
    for (const [text, one, other] of [[texts[0], target, mine], [texts[1], mine, target]]) {
      text.lang = this.view.languages.target;
      text.append(...markNewWords(one, other));
    }
    return row;
  }
}
