// The terms of the document: how often each is met, where they stand, and the upload of a glossary.

import { t } from "./messages.js";
import { makeRange } from "./search_bar.js";

const MARKED = 2_000; // terms
const GROUPS = { second_search: "met" }; // states that are told as another one
const STATES = {
  met: (number) => t("{number} met", { number }),
  other_form: (number) => t("{number} in another form", { number }),
  refused: (number) => t("{number} refused", { number }),
  lost: (number) => t("{number} not met", { number }),
  forbidden: (number) => t("{number} forbidden", { number }),
  protected: (number) => t("{number} in text that stays", { number }),
};

const isUnmet = ({ status }) => ["refused", "lost", "forbidden"].includes(status);
const countUnmet = (uses) => uses.filter(isUnmet).length;

/** Return how many terms are in each state, in words. */
function describe(uses) {
  const states = uses.map(({ status }) => GROUPS[status] ?? status);
  const counts = Object.keys(STATES).map((state) => [state, states.filter((each) => each === state).length]);
  return counts.filter(([, count]) => count).map(([state, count]) => STATES[state](count)).join(" · ");
}

export class TermsPanel {
  /** button: opens the panel; go: function that leads to a sentence; useTerms: async function of {file}. */
  constructor(root, button, view, { go, useTerms }) {
    Object.assign(this, { root, button, view, go, rows: [] });
    button.addEventListener("click", () => this.toggle(root.hidden));
    root.addEventListener("click", ({ target }) => {
      const row = target.closest("[data-row]");
      if (row) this.step(this.rows[row.dataset.row]);
      if (target.matches("[data-do=close]")) this.toggle(false);
    });
    root.querySelector("input").addEventListener("change", async ({ target }) => {
      await useTerms({ file: target.files[0] });
      target.value = "";
    });
    const changes = new MutationObserver(() => this.mark());
    changes.observe(view.root, { childList: true, subtree: true });
  }

  toggle(isOpen) {
    this.root.hidden = !isOpen;
    this.button.setAttribute("aria-expanded", isOpen);
    this.update();
    if (!isOpen) this.button.focus();
  }

  /** Show the terms of the sentences as they now are: first those that are not met. */
  update() {
    const addNumber = ({ data }) => (data.terms ?? []).map((use) => ({ ...use, number: data.number }));
    const uses = this.view.sentences.flatMap(addNumber);
    const unmet = countUnmet(uses);
    this.button.querySelector("span").textContent = unmet ? ` (${unmet})` : "";
    if (!this.root.hidden) this.list(uses);
    this.mark();
  }

  list(uses) {
    const terms = new Map(uses.map(({ term }) => [term, []]));
    uses.forEach((use) => terms.get(use.term).push(use));
    this.rows = [...terms.values()];
    this.rows.sort((one, other) => countUnmet(other) - countUnmet(one) || one[0].term.localeCompare(other[0].term));
    this.root.querySelector("ul").replaceChildren(...this.rows.map((row, number) => this.makeRow(row, number)));
    const summary = describe(uses) || t("No term of a glossary is in this document.");
    this.root.querySelector("[role=status]").textContent = summary;
  }

  makeRow(uses, number) {
    const row = this.root.querySelector("template").content.cloneNode(true);
    const [button, source, target, state] = row.querySelectorAll("button, button > *");
    const { term, wanted } = uses[0];
    button.dataset.row = number;
    button.classList.toggle("unmet", uses.some(isUnmet));
    Object.assign(source, { textContent: term, lang: this.view.languages.source });
    Object.assign(target, { textContent: wanted.join(" / ") || "–", lang: this.view.languages.target });
    const dropped = new Set(uses.flatMap((use) => (use.dropped ? use.dropped.split(", ") : [])));
    const left = dropped.size ? ` · ${t("leaves out: {words}", { words: [...dropped].join(", ") })}` : "";
    state.textContent = describe(uses) + left;
    return row;
  }

  /** Lead to the next sentence with a term. */
  step(uses) {
    const numbers = uses.map(({ number }) => number);
    this.go(numbers.find((each) => each > this.view.current) ?? numbers[0]);
  }

  /** Mark the terms in both texts while the panel is open. */
  mark() {
    if (!globalThis.Highlight || (this.root.hidden && !CSS.highlights.has("term"))) return; // or an old browser
    const ranges = { met: [], unmet: [] };
    for (const use of this.root.hidden ? [] : this.rows.flat().slice(0, MARKED)) {
      const { source, target, data } = this.view.sentences[use.number] ?? {};
      if (!data) continue; // another document comes
      const [start, end] = use.span.map((length) => [...data.source].slice(0, length).join("").length); // code points
      ranges[isUnmet(use) ? "unmet" : "met"].push(makeRange(source, { start, end }));
      const place = use.found && data.target ? data.target.indexOf(use.found) : -1;
      if (place < 0) continue;
      ranges.met.push(makeRange(target, { start: place, end: place + use.found.length }));
    }
    CSS.highlights.set("term", new Highlight(...ranges.met));
    CSS.highlights.set("unmet-term", new Highlight(...ranges.unmet));
  }
}
