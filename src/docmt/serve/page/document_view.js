// The two columns: paragraphs of sentences, drawn in batches, lit in pairs.

import { judge } from "./doubts.js";

const DRAWN_AT_ONCE = 200; // sentences in an animation frame
const WITHOUT_SPACES = ["zh", "ja", "th", "lo", "km", "my"];

export class DocumentView {
  /** root: the element of the paragraphs; reason: the tooltip. */
  constructor(root, reason) {
    this.root = root;
    this.reason = reason;
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
    pair.target.setAttribute("role", "button");
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
      if (pair.data?.[side] !== data[side]) pair[side].textContent = data[side] || "(not translated)";
      pair[side].classList.add("sentence");
    }
    pair.data = data;
    const { doubts, faults } = judge(data);
    const marks = { edited: data.edited, failed: !data.target, doubtful: doubts.length, faulty: faults.length };
    for (const [name, holds] of Object.entries(marks)) pair.target.classList.toggle(name, Boolean(holds));
    pair.target.classList.remove("stale");
    pair.reasons = [...faults, ...doubts];
    if (data.number === this.lit) this.light(data.number);
  }

  /** Dim the sentences after a number, which are being translated again. */
  markStale(number) {
    for (const pair of this.sentences.slice(number + 1)) pair.target.classList.toggle("stale", !pair.data.edited);
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
    this.sentences[this.lit]?.target.removeAttribute("aria-describedby");
    for (const side of ["source", "target"]) {
      this.sentences[this.lit]?.[side].classList.remove("lit");
      this.sentences[number]?.[side].classList.add("lit");
    }
    this.lit = number;
    const { target, reasons = [] } = this.sentences[number] ?? {};
    this.reason.textContent = reasons.join("\n");
    this.reason.hidden = !reasons.length || target.classList.contains("chosen"); // of the chosen one the panel has them
    if (!reasons.length) return;
    target.setAttribute("aria-describedby", this.reason.id);
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
    if (this.sentences[this.current]) this.sentences[this.current].target.tabIndex = -1;
    this.current = number;
    this.sentences[number].target.tabIndex = 0;
    this.light(number);
  }

  /** Return the number of the next sentence with a reason, from the start again after the last, or -1. */
  nextMarked(number) {
    const marked = this.sentences.filter((pair) => pair.reasons.length).map((pair) => pair.data.number);
    return marked.find((each) => each > number) ?? marked[0] ?? -1;
  }

  countMarked() {
    return this.sentences.filter((pair) => pair.reasons.length).length;
  }

  /** Return the translation, a line a paragraph. */
  text() {
    const textOf = (node) => (node.dataset ? this.sentences[this.numberAt(node)].data.target : node.textContent);
    const paragraphs = [...this.root.querySelectorAll("p.target")];
    return paragraphs.map((paragraph) => [...paragraph.childNodes].map(textOf).join("")).join("\n");
  }
}

/** Wait for the next animation frame, or a little longer in a tab that is hidden and has no frames. */
function nextFrame() {
  return new Promise((resolve) => {
    requestAnimationFrame(resolve);
    setTimeout(resolve, 250);
  });
}
