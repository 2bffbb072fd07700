// The panel of the chosen sentence: reasons, aligned words, alternatives and the editor.

import * as service from "./service.js";
import { findDraft, keepDraft } from "./drafts.js";
import { plural, t } from "./messages.js";
import { lightGroup, markNewWords, readWords, showWords } from "./word_links.js";

export class SentencePanel {
  /**
   * edit: async function (targets by number, {versions, message, retranslate}) that returns whether all is settled;
   * confirm and restore: functions of the sentence;
   * useTerms: async function of {source, target}; readsContext: function that returns whether the model of the document does; report: function that shows an error.
   */
  constructor(root, view, { edit, confirm, restore, useTerms, readsContext, report }) {
    Object.assign(this, { root, view, edit, useTerms, readsContext, report, id: "", number: -1, groups: 0, group: -1 });
    this.title = root.querySelector("h2");
    this.reasons = root.querySelector(".reasons");
    this.hint = root.querySelector(".words-hint");
    this.choices = root.querySelector(".alternatives");
    this.form = root.querySelector("form");
    this.field = root.querySelector("textarea");
    this.term = root.querySelector("#term");
    this.actions = {
      alternatives: () => this.showAlternatives(),
      edit: () => this.startEdit(),
      term: () => this.startTerm(),
      confirm: () => confirm(this.pair.data),
      restore: () => restore(this.pair.data),
      close: () => this.close(),
      discard: () => this.discard(),
    };
    root.addEventListener("click", (event) => this.click(event));
    this.form.addEventListener("submit", (event) => this.submit(event));
    this.field.addEventListener("input", () => this.noteDraft());
    this.form.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) this.save(event.shiftKey ? "retranslate" : "keep");
    });
    this.term.addEventListener("submit", (event) => this.submitTerm(event));
    view.root.addEventListener("mouseover", (event) => this.lightWord(event.target));
    view.root.addEventListener("pointerup", ({ target }) => {
      // Of the open sentence: a click on a word, or the end of a selection.
      const isWord = target.closest(".word") || !getSelection().isCollapsed;
      if (this.isOpen && isWord && this.view.numberAt(target) === this.number) this.showTerm(this.readTerm());
    });
  }

  get isOpen() {
    return !this.root.hidden;
  }

  get pair() {
    return this.view.sentences[this.number];
  }

  get draft() {
    return findDraft(this.id, this.number);
  }

  /** Remember what was written, unless it is the present translation. */
  noteDraft() {
    if (this.form.hidden || !this.isOpen) return; // the browser undoes what was typed, after the editor was closed
    const text = this.field.value;
    this.keepDraft(this.number, text !== this.pair.data.target ? { text, version: this.version } : undefined);
  }

  /** Keep a draft, and mark its sentence. undefined: there is none any more. */
  keepDraft(number, draft) {
    keepDraft(this.id, number, draft);
    const classes = this.view.sentences[number]?.target.classList;
    if (!classes || classes.contains("draft") === Boolean(draft)) return;
    classes.toggle("draft");
    this.view.onDrawn();
  }

  /** Open a sentence of a document, or move the open panel to it. */
  async open(id, number) {
    if (this.isOpen && this.number === number) return;
    this.restore();
    Object.assign(this, { id, number });
    // On a small or much enlarged page the panel would hide the sentence: it stands below its paragraph there.
    const isSmall = matchMedia("(max-height: 30rem), (max-width: 46rem)").matches;
    if (isSmall) this.pair.target.closest(".paragraph").after(this.root);
    else document.body.append(this.root);
    this.root.hidden = false;
    document.documentElement.classList.add("panel-open");
    this.refresh();
    await this.align();
  }

  /** Show the sentence as it now is. */
  refresh() {
    const { data, reasons, source, target } = this.pair;
    const states = [data.edited && t("edited"), data.confirmed && t("confirmed")].filter(Boolean);
    this.title.textContent = [t("Sentence {number}", { number: this.number + 1 }), ...states].join(", ");
    this.root.querySelector("[data-do=confirm] span").textContent = data.confirmed ? t("Remove confirmation") : t("Confirm");
    this.root.querySelector("[data-do=restore]").hidden = !data.edited;
    this.reasons.replaceChildren(...reasons.map((reason) => makeElement("li", reason)));
    this.choices.replaceChildren();
    this.form.hidden = this.term.hidden = true;
    this.hint.textContent = "";
    for (const element of [source, target]) element.classList.add("chosen");
    target.setAttribute("aria-expanded", "true");
    if (this.draft) this.showEditor(this.draft.text);
  }

  /** Show a sentence as it has become, if it is open and the user does not write. */
  async update(number) {
    await this.view.drawing;
    const isWriting = !this.form.hidden || this.term.contains(document.activeElement);
    if (!this.isOpen || this.number !== number || isWriting) return;
    this.refresh();
    await this.align();
  }

  async align() {
    const { number, pair } = this;
    try {
      const links = await service.getAlignment(this.id, number);
      if (this.number !== number || !this.isOpen || !pair.data.target) return; // the user has moved on
      this.groups = showWords(pair.source, pair.target, links);
      this.group = -1;
      this.hint.textContent = this.groups
        ? t("Words of one colour belong together. Point at one, or use the arrow keys. Click one to use it everywhere.")
        : t("No words of this sentence could be aligned.");
    } catch (error) {
      this.report(error);
    }
  }

  lightWord(element) {
    const group = element.closest?.(".word")?.dataset.group;
    if (this.isOpen && group !== undefined) this.lightGroup(Number(group));
  }

  lightGroup(group) {
    this.group = group;
    lightGroup([this.pair.source, this.pair.target], group);
  }

  /** Light the next (step 1) or the previous (-1) group of words, in the order of the source. */
  stepWord(step) {
    if (!this.groups) return;
    const before = this.group < 0 && step < 0 ? 0 : this.group; // the first step back leads to the last group
    this.lightGroup((before + step + this.groups) % this.groups);
  }

  async showAlternatives() {
    const { number } = this;
    this.form.hidden = true;
    this.choices.replaceChildren(makeElement("li", t("Searching for alternatives…"), "muted"));
    try {
      const found = await service.listAlternatives(this.id, number);
      if (this.number !== number) return;
      const others = found.filter((each) => each.target !== this.pair.data.target);
      this.choices.replaceChildren(...others.map((each) => this.makeChoice(each.target)));
      if (!others.length) this.choices.append(makeElement("li", t("The model has no other translation."), "muted"));
      this.choices.querySelector("button")?.focus();
    } catch (error) {
      this.choices.replaceChildren();
      this.report(error);
    }
  }

  /** Return an item with a button; words that the present translation does not have are marked. */
  makeChoice(text) {
    const button = makeElement("button", "", "alternative");
    Object.assign(button, { type: "button", lang: this.view.languages.target, dir: "auto" });
    const content = document.createElement("span");
    content.append(...markNewWords(text, this.pair.data.target));
    button.append(content);
    const item = document.createElement("li");
    item.append(button);
    return item;
  }

  startEdit(text = this.draft?.text ?? this.pair.data.target) {
    this.choices.replaceChildren();
    this.showEditor(text);
    this.field.focus();
  }

  showEditor(text) {
    this.form.hidden = false;
    this.version = this.draft?.version ?? this.pair.data.version;
    this.form.querySelector("[value=retranslate]").hidden = !this.readsContext(); // else nothing would change
    const count = this.listEqual().length;
    const forAll = this.form.querySelector("[value=equal]");
    Object.assign(forAll, { hidden: count < 2, textContent: t("Keep for all {count} equal sentences", { count }) });
    this.field.lang = this.view.languages.target;
    this.field.value = text;
    this.noteDraft();
  }

  /** Return the words that are selected in either text, or else are lit, with those that belong to them. */
  readTerm() {
    const [selection, { source, target }] = [getSelection(), this.pair];
    const side = [source, target].find((each) => !selection.isCollapsed && each.contains(selection.anchorNode));
    if (!side?.contains(selection.focusNode)) {
      const isLit = (word) => word.dataset.group === String(this.group);
      return { source: readWords(source, isLit), target: readWords(target, isLit) };
    }
    const selected = [...side.querySelectorAll(".word")].filter((word) => selection.containsNode(word, true));
    const groups = new Set(selected.map((word) => word.dataset.group));
    const isLinked = (word) => groups.has(word.dataset.group);
    const words = { source: readWords(source, isLinked), target: readWords(target, isLinked) };
    return { ...words, [side === source ? "source" : "target"]: selection.toString().trim() };
  }

  showTerm(term) {
    this.term.hidden = false;
    for (const [name, text] of Object.entries(term)) {
      Object.assign(this.term.elements[name], { value: text, lang: this.view.languages[name] });
    }
  }

  startTerm() {
    this.showTerm(this.readTerm());
    const { source, target } = this.term.elements;
    (source.value ? target : source).focus();
  }

  async submitTerm(event) {
    event.preventDefault();
    const { source, target } = this.term.elements;
    const button = this.term.querySelector("button");
    button.disabled = true; // it is sent once
    await this.useTerms({ source: source.value, target: target.value });
    button.disabled = false;
  }

  click(event) {
    const button = event.target.closest("button");
    if (button?.dataset.do) this.actions[button.dataset.do]();
    else if (button?.classList.contains("alternative")) this.startEdit(button.textContent);
  }

  submit(event) {
    event.preventDefault();
    this.save(event.submitter?.value);
  }

  /** Return the numbers of the translated sentences with the same source, this one included. */
  listEqual() {
    const isEqual = ({ data }) => data.source === this.pair.data.source && data.target !== null;
    return this.view.sentences.filter(isEqual).map(({ data }) => data.number);
  }

  /** how: keep, retranslate (what follows) or equal (keep it for all sentences with this source). */
  async save(how) {
    const { number } = this;
    const text = this.field.value.trim();
    if (!text) return this.report(new Error(t("A translation cannot be empty.")));
    const buttons = this.form.querySelectorAll("button");
    buttons.forEach((button) => (button.disabled = true)); // an edit is sent once
    try {
      const numbers = how === "equal" ? this.listEqual() : [number];
      const targets = Object.fromEntries(numbers.map((each) => [each, text]));
      const versions = { ...this.view.listVersions(numbers), [number]: this.version };
      const retranslate = how === "retranslate" && this.readsContext();
      const message = retranslate ? t("Kept. What follows is translated again.") : undefined;
      if (!(await this.edit(targets, { versions, message, retranslate }))) return;
      this.keepDraft(number);
      if (this.number === number) this.close();
    } catch (error) {
      this.report(error);
    } finally {
      buttons.forEach((button) => (button.disabled = false));
    }
  }

  /** Leave the editor without its draft. */
  discard() {
    this.keepDraft(this.number);
    this.leave();
  }

  /** Leave the editor, whose draft stays, or the alternatives; close the panel if neither is open. */
  leave() {
    if (this.form.hidden && this.term.hidden && !this.choices.childElementCount) return this.close();
    this.form.hidden = this.term.hidden = true;
    this.choices.replaceChildren();
    this.view.focus(this.number);
  }

  close() {
    if (!this.isOpen) return;
    const { number } = this;
    this.restore();
    this.root.hidden = true;
    document.documentElement.classList.remove("panel-open");
    this.number = -1;
    this.view.focus(number);
  }

  /** Give the chosen sentence its plain text back. */
  restore() {
    const { pair } = this;
    this.groups = 0;
    if (!pair) return;
    pair.source.textContent = pair.data.source;
    pair.target.textContent = pair.data.target || pair.target.textContent;
    for (const element of [pair.source, pair.target]) element.classList.remove("chosen");
    pair.target.removeAttribute("aria-expanded");
  }
}

function makeElement(name, text, className = "") {
  return Object.assign(document.createElement(name), { textContent: text, className });
}
