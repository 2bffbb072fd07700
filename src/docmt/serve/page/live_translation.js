// The translation of a short text while it is typed. The last text wins: a request for an older one is given up.

import * as service from "./service.js";
import { nameLanguage, t } from "./messages.js";

const PAUSE = 600; // milliseconds after the last key
const LONGEST = 1_000; // characters; longer texts wait for the button

export class LiveTranslation {
  /** root: where the translation stands; isWanted: the switch; readText, readModel: functions. */
  constructor(root, isWanted, readText, readModel) {
    Object.assign(this, { root, isWanted, readText, readModel, timer: 0, controller: new AbortController() });
    this.output = root.querySelector("output");
    this.note = root.querySelector("p");
  }

  /** Translate the text as it now is, after a pause. */
  update() {
    this.stop();
    const text = this.readText();
    const isShort = text.length <= LONGEST;
    this.root.hidden = !text.trim() || !this.isWanted.checked;
    this.root.classList.toggle("waiting", isShort);
    this.note.textContent = isShort ? "" : t("For longer texts, press Translate.");
    if (this.root.hidden || !isShort) this.show("");
    else this.timer = setTimeout(() => this.translate(text), PAUSE);
  }

  stop() {
    clearTimeout(this.timer);
    this.controller.abort();
  }

  async translate(text) {
    const { signal } = (this.controller = new AbortController());
    const answer = await service.translateText(text, this.readModel(), signal).catch((error) => error);
    if (signal.aborted) return;
    this.show(answer.text ?? "", answer.target_language);
    this.note.textContent = answer instanceof Error ? answer.message : describeLanguage(answer);
  }

  show(text, language = "") {
    Object.assign(this.output, { textContent: text, lang: language });
    this.root.querySelector("button").hidden = !text;
    this.root.classList.remove("waiting");
  }
}

/** Return a warning if a text is in another language than its model reads; else an empty text. */
export function describeLanguage({ detected_language, source_language }) {
  const [detected, expected] = [detected_language, source_language].map(nameLanguage);
  if (!detected_language) return "";
  return t("The text seems to be in {detected}, but this model translates from {expected}.", { detected, expected });
}
