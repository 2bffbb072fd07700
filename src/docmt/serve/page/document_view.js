// The two columns: paragraphs of sentences, drawn in batches, lit in pairs.

import { judge } from "./doubts.js";
import { t } from "./messages.js";

const DRAWN_AT_ONCE = 200; // sentences in an animation frame
const WITHOUT_SPACES = ["zh", "ja", "th", "lo", "km", "my"];

const isMarked = ({ data, reasons }) => reasons.length > 0 && !data.confirmed;

/** The states of a sentence, and marked ones, as functions of a pair. */
export const FILTERS = {
  all: () => true,
  open: ({ data }) => !data.edited && !data.confirmed,
  edited: ({ data }) => data.edited && !data.confirmed,
  confirmed: ({ data }) => data.confirmed,
  marked: isMarked,
  draft: ({ target }) => target.classList.contains("draft"),
};

export class DocumentView {
  /** root: the element of the paragraphs; reason: the tooltip; hasDraft: function of the number of a sentence. */
  constructor(root, reason, hasDraft) {
    Object.assign(this, { root, reason, hasDraft });
    this.drawing = null; // a promise while sentences are drawn
    // One listener for all sentences: a document may have thousands.
    root.addEventListener("mouseover", (event) => this.hover(event));
    root.addEventListener("mouseleave", (event) => this.hover(event));
    root.addEventListener("focusin", (event) => this.enter(this.numberAt(event.target)));
    root.addEventListener("focusout", () => this.light(-1));
    this.clear("", "");
  }

  clear(sourceLanguage, targetLanguage) {
    this.languages = { source: sourceLanguage, target: targetLanguage };
    this.sentences = []; // by number: {data, source, target}, the last two are elements
    this.coming = new Map(); // sentences by number that are not drawn yet
    this.paragraph = null; // the last one: {number, source, target}
    this.current = 0; // the sentence that the Tab key reaches
    this.lit = -1;
    this.filter = "all";
    this.root.replaceChildren();
    this.reason.hidden = true;
  }

  /** Add or replace a sentence. It is drawn at the next animation frame, together with others. */
  put(data) {
    this.coming.set(data.number, data);
    this.drawing ??= this.drawAll().finally(() => (this.drawing = null));
  }

  async drawAll() {
    do await nextFrame();
    while (this.drawBatch());
    this.applyFilter();
    this.onDrawn?.();
  }

  /** Draw sentences up to one whose predecessor is not there yet: an edited one comes after those that follow it. */
  drawBatch() {
    const fragment = document.createDocumentFragment();
    let drawn = 0;
    for (const number of [...this.coming.keys()].sort((one, other) => one - other)) {
      if (number > this.sentences.length || drawn === DRAWN_AT_ONCE) break;
      const data = this.coming.get(number);
      if (number === this.sentences.length) this.append(data, fragment);
      this.fill(data);
      this.coming.delete(number);
      drawn++;
    }
    this.root.append(fragment);
    return drawn === DRAWN_AT_ONCE;
  }

  append(data, fragment) {
    if (this.paragraph?.number !== data.paragraph) this.startParagraph(data.paragraph, fragment);
    const pair = { data: null };
    for (const side of ["source", "target"]) {
      const element = document.createElement("span");
      element.dataset.number = data.number;
      const spaced = !WITHOUT_SPACES.includes(this.languages[side].slice(0, 2));
      if (this.paragraph[side].hasChildNodes() && spaced) this.paragraph[side].append(" ");
      this.paragraph[side].append(element);
      pair[side] = element;
    }
    // In the accessibility tree: the source is named with its translation, and the translation described by its source.
    const ids = [`source-${data.number}`, `target-${data.number}`];
    [pair.source.id, pair.target.id] = ids;
    pair.source.setAttribute("role", "note");
    pair.source.setAttribute("aria-labelledby", ids.join(" "));
    pair.target.setAttribute("role", "button");
    pair.target.setAttribute("aria-describedby", ids[0]);
    pair.target.tabIndex = data.number === this.current ? 0 : -1;
    this.sentences[data.number] = pair;
  }

  startParagraph(number, fragment) {
    const row = document.createElement("div");
    row.className = "paragraph";
    this.paragraph = { number };
    for (const side of ["source", "target"]) {
      const text = document.createElement("p");
      Object.assign(text, { className: side, lang: this.languages[side], dir: "auto" });
      row.append(text);
      this.paragraph[side] = text;
    }
    fragment.append(row);
  }

  fill(data) {
    const pair = this.sentences[data.number];
    for (const side of ["source", "target"]) {
      // A sentence whose words are aligned now keeps them if only its marks change.
      const empty = data.target === null ? "…" : t("(not translated)");
      if (!pair.data || pair.data[side] !== data[side]) pair[side].textContent = data[side] || empty;
      pair[side].classList.add("sentence");
    }
    pair.data = data;
    const { doubts, faults } = judge(data);
    pair.reasons = [...faults, ...doubts];
    const { edited, confirmed } = data;
    const draft = this.hasDraft(data.number);
    const marks = { edited, confirmed, draft, pending: data.target === null, failed: data.target === "", stale: false };
    Object.assign(marks, { doubtful: doubts.length && !confirmed, faulty: faults.length && !confirmed });
    for (const [name, holds] of Object.entries(marks)) pair.target.classList.toggle(name, Boolean(holds));
    if (data.number === this.lit) this.light(data.number);
  }

  /** Dim the sentences after a number, which are being translated again. */
  markStale(number) {
    for (const pair of this.sentences.slice(number + 1)) {
      pair.target.classList.toggle("stale", pair.data.target !== null && !pair.data.edited && !pair.data.confirmed);
    }
  }

  endStale() {
    for (const element of this.root.querySelectorAll(".stale")) element.classList.remove("stale");
  }

  numberAt(element) {
    return Number(element?.closest?.("[data-number]")?.dataset.number ?? -1);
  }

  /** Light the sentence under the mouse, else the one with the focus. */
  hover({ type, target, screenX, screenY }) {
    // When the page scrolls under a mouse that rests, as it does for the keyboard's focus, nobody points at anything.
    if (this.mouse === `${screenX} ${screenY}` && type === "mouseover") return;
    this.mouse = `${screenX} ${screenY}`;
    const number = this.numberAt(target);
    this.light(number < 0 ? this.numberAt(document.activeElement) : number);
  }

  /** Light a sentence and its partner, and show why it is marked. -1: none. */
  light(number) {
    this.sentences[this.lit]?.target.setAttribute("aria-describedby", `source-${this.lit}`);
    for (const side of ["source", "target"]) {
      this.sentences[this.lit]?.[side].classList.remove("lit");
      this.sentences[number]?.[side].classList.add("lit");
    }
    this.lit = number;
    const { target, reasons = [] } = this.sentences[number] ?? {};
    this.reason.textContent = reasons.join("\n");
    this.reason.hidden = !reasons.length || target.classList.contains("chosen"); // of the chosen one the panel has them
    if (!reasons.length) return;
    target.setAttribute("aria-describedby", `source-${number} ${this.reason.id}`);
    this.placeReason(target);
  }

  placeReason(target) {
    const last = [...target.getClientRects()].at(-1);
    if (!last) return;
    const left = Math.max(8, Math.min(last.left, document.documentElement.clientWidth - this.reason.offsetWidth - 8));
    Object.assign(this.reason.style, { left: `${left + scrollX}px`, top: `${last.bottom + scrollY + 6}px` });
  }

  focus(number) {
    this.sentences[number]?.target.focus();
  }

  /** Light the sentence that has the focus. The Tab key reaches only this one: else it had a thousand stops. */
  enter(number) {
    if (number < 0) return; // the panel may stand among the paragraphs
    if (this.sentences[this.current]) this.sentences[this.current].target.tabIndex = -1;
    this.current = number;
    this.sentences[number].target.tabIndex = 0;
    this.light(number);
  }

  /** Return the number of the next sentence that a filter lets through, from the start again after the last, or -1. */
  next(number, filter) {
    const isWanted = (pair) => pair.data.target !== null && FILTERS[filter](pair);
    const wanted = this.sentences.filter(isWanted).map((pair) => pair.data.number);
    return wanted.find((each) => each > number) ?? wanted[0] ?? -1;
  }

  /** Return the number of the next (step 1) or previous (-1) sentence that is shown, or the same one at the end. */
  neighbour(number, step) {
    let other = number + step;
    while (this.sentences[other] && !FILTERS[this.filter](this.sentences[other])) other += step;
    return this.sentences[other] ? other : number;
  }

  /** Return the versions of sentences, by number. */
  listVersions(numbers) {
    return Object.fromEntries(numbers.map((each) => [each, this.sentences[each].data.version]));
  }

  count(filter) {
    return this.sentences.filter(FILTERS[filter]).length;
  }

  /** Hide paragraphs without a sentence that the filter lets through, and dim the others of those that stay. */
  applyFilter(filter = this.filter) {
    if (filter === "all" && this.filter === "all") return;
    this.filter = filter;
    const kept = new Set();
    for (const pair of this.sentences) {
      const isKept = FILTERS[filter](pair);
      for (const side of ["source", "target"]) pair[side].classList.toggle("aside", !isKept);
      if (isKept) kept.add(pair.target.closest(".paragraph"));
    }
    for (const paragraph of this.root.querySelectorAll(".paragraph")) paragraph.hidden = !kept.has(paragraph);
  }
}

/** Wait for the next animation frame, or a little longer in a tab that is hidden and has no frames. */
function nextFrame() {
  return new Promise((resolve) => {
    requestAnimationFrame(resolve);
    setTimeout(resolve, 250);
  });
}
