// Search and replace in the sentences that are shown. Matches are marked by ranges, which leave sentences as they are.

import { FILTERS } from "./document_view.js";
import { plural, t } from "./messages.js";

const MARKED = 1_000; // matches before and after the current one

export class SearchBar {
  /** edit: async function of new translations by number; attempt: function that runs an action and shows its error. */
  constructor(form, view, { edit, attempt }) {
    const { query, replacement, side, matchCase } = form.elements;
    Object.assign(this, { form, view, edit, query, replacement, side, matchCase, matches: [], current: null });
    const actions = {
      previous: () => this.step(-1),
      next: () => this.step(1),
      replace: () => this.replace([this.current]),
      replaceAll: () => this.replace(this.matches),
      close: () => this.close(),
    };
    form.addEventListener("click", ({ target }) => attempt(() => actions[target.dataset.do]?.()));
    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && event.target === query) this.step(event.shiftKey ? -1 : 1);
      if (event.key !== "Escape") return;
      event.stopPropagation(); // the panel stays
      this.close();
    });
    form.addEventListener("input", ({ target }) => {
      if (target === replacement) return;
      this.current = { number: view.current, start: 0 }; // from the chosen sentence on
      this.find();
      this.show();
    });
    const changes = new MutationObserver(() => this.find());
    changes.observe(view.root, { childList: true, subtree: true, attributeFilter: ["hidden"] });
  }

  open() {
    this.form.hidden = false;
    this.query.select();
    this.find();
  }

  close() {
    this.form.hidden = true;
    this.find();
    this.view.focus(this.view.current);
  }

  /** Find all matches. The current one is that at the place of the last one, or the next after it. */
  find() {
    const isSearched = !this.form.hidden && this.query.value;
    if (!isSearched && !this.matches.length) return;
    const pattern = makePattern(this.query.value, this.matchCase.checked);
    const shown = isSearched ? this.view.sentences.filter(FILTERS[this.view.filter]) : [];
    this.matches = shown.flatMap(({ data }) =>
      Array.from((data[this.side.value] ?? "").matchAll(pattern), ({ index, 0: text }) => {
        return { number: data.number, start: index, end: index + text.length };
      }),
    );
    const { number, start } = this.current ?? { number: 0, start: 0 };
    const isAfter = (each) => each.number > number || (each.number === number && each.start >= start);
    this.current = this.matches.find(isAfter) ?? this.matches[0] ?? null;
    this.mark();
  }

  mark() {
    const { matches, current, side } = this;
    const [number, all] = [matches.indexOf(current) + 1, matches.length];
    this.form.querySelector("[role=status]").textContent = this.query.value && t("{number} of {all}", { number, all });
    this.replacement.parentElement.hidden = side.value === "source";
    if (!globalThis.Highlight) return; // an old browser: the sentence of the match is lit
    const marked = matches.slice(Math.max(0, number - MARKED), number + MARKED);
    const ranges = marked.map((each) => makeRange(this.view.sentences[each.number][side.value], each));
    CSS.highlights.set("match", new Highlight(...ranges));
    CSS.highlights.set("current-match", new Highlight(...ranges.filter((_, index) => marked[index] === current)));
  }

  /** Lead to the current match. The focus stays in the field. */
  show() {
    if (!this.current) return;
    this.view.enter(this.current.number);
    this.view.reason.hidden = true; // it would hide other matches
    this.view.sentences[this.current.number][this.side.value].scrollIntoView({ block: "center" });
  }

  step(step) {
    const { matches } = this;
    this.current = matches.at((matches.indexOf(this.current) + step) % matches.length) ?? null;
    this.mark();
    this.show();
  }

  /** Replace matches as one change, and lead to the next one. */
  async replace(matches) {
    if (!this.current) return;
    const targets = {};
    for (const { number, start, end } of matches.toReversed()) { // the last one first: the places of the others stay
      const text = targets[number] ?? this.view.sentences[number].data.target;
      targets[number] = text.slice(0, start) + this.replacement.value + text.slice(end);
    }
    if (Object.values(targets).some((text) => !text.trim())) throw new Error(t("A translation cannot be empty."));
    const { number, start } = this.current;
    const message = plural(matches.length, "{count} match replaced.", "{count} matches replaced.");
    this.current = null; // a double click replaces nothing twice
    try {
      await this.edit(targets, { message });
    } finally {
      this.current = { number, start: start + this.replacement.value.length };
      await this.view.drawing;
      this.find();
      this.show();
    }
  }
}

/** Return a regular expression for a text. All spaces are equal in it, as are both apostrophes. */
function makePattern(text, matchCase) {
  const literal = text.replace(/[\^$\\.*+?()[\]{}|/]/g, "\\$&");
  return new RegExp(literal.replace(/\s/g, "\\s").replace(/['’]/g, "['’]"), matchCase ? "gu" : "giu");
}

/** Return the range of characters of an element, whose words may be elements. */
export function makeRange(element, { start, end }) {
  const range = new Range();
  const texts = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
  for (let before = 0; texts.nextNode(); before += texts.currentNode.length) {
    const node = texts.currentNode;
    if (start >= before && start < before + node.length) range.setStart(node, start - before);
    if (end > before && end <= before + node.length) range.setEnd(node, end - before);
  }
  return range;
}
