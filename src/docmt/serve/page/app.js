// The page: the form, the open document, and what connects them. The document's id stands in the address (#ID), so
// that a reload, or the same address in another tab, shows it again.

import * as service from "./service.js";
import { ConflictDialog } from "./conflict_dialog.js";
import { DocumentView } from "./document_view.js";
import { findDraft } from "./drafts.js";
import { SentencePanel } from "./sentence_panel.js";
import { listenToKeys } from "./keys.js";
import { LiveTranslation, describeLanguage } from "./live_translation.js";
import * as messages from "./messages.js";
import { capitalize, nameLanguage, plural, t } from "./messages.js";
import { MyDocuments, findByName, forget, remember } from "./my_documents.js";
import { keepInSight, keepInside } from "./placement.js";
import { SearchBar } from "./search_bar.js";
import { TermsPanel } from "./terms_panel.js";

const XLIFF = /\.(xlf|xliff)$/i;
const NEEDS_FIELDS = /\.(json|tsv|csv|md|markdown)$/i;
const REASONS_SHOWN = 8;
const BETWEEN_ANNOUNCEMENTS = 5_000; // milliseconds
const STATES = {
  all: t("All sentences"),
  open: t("Open"),
  edited: t("Edited"),
  confirmed: t("Confirmed"),
  marked: t("Marked"),
  draft: t("Drafts"),
};
const NAME_LENGTH = 40;
const LONG = 1_000; // sentences of a document that is translated only after a question

const element = (id) => document.getElementById(id);
const hasDraft = (number) => findDraft(job.feed.id, number) !== undefined;
const view = new DocumentView(element("text-pairs"), element("reason"), hasDraft);
const actions = { edit: sendEdits, confirm: confirmSentence, restore: restoreSentence, useTerms, readsContext, report };
const panel = new SentencePanel(element("panel"), view, actions);
const conflict = new ConflictDialog(element("conflict"), view);
const search = new SearchBar(element("search"), view, { edit: sendEdits, attempt });
const terms = new TermsPanel(element("terms"), element("terms-button"), view, { go, useTerms });
const readText = () => (chosenFile ? "" : element("text").value);
const live = new LiveTranslation(element("live"), element("while-typing"), readText, () => element("model").value);
const describe = (status) => `${messages.formatTime(status.created)} · ${describeState(status)}`;
const myDocuments = new MyDocuments(element("my-documents"), { describe, remove, attempt });
let models = [];
let chosenFile = null;
let glossary = null; // a file
let job = null; // {feed: {id, after}, status, controller, begun, isUndone, changes, opened}: the open document
let announced = 0;
let lastChange = Promise.resolve(); // so that each is based on the ones before it

// Messages

function report(error, isFault = true) {
  // Messages of the server begin with a small letter. A file name at the beginning stays as it is.
  const text = error.message.replace(/^[a-z](?=[a-z]* )/, capitalize);
  Object.assign(element("notice").firstElementChild, { textContent: text, lang: error.language ?? messages.language });
  element("notice").classList.toggle("good", !isFault);
  element("notice").hidden = false;
}

function announce(text) {
  element("announcement").textContent = text;
  announced = Date.now();
}

/** Run an action of the user; show its error. */
async function attempt(action) {
  element("notice").hidden = true;
  try {
    await action();
  } catch (error) {
    report(error);
  }
}

// The form

async function fillModels() {
  try {
    models = await service.listModels();
  } finally {
    element("start").querySelector("button.main").disabled = false;
  }
  const pairs = models.map(({ source_language, target_language }) => {
    return capitalize([source_language, target_language].map(nameLanguage).join(" → "));
  });
  const options = models.map((model, index) => {
    const isUnique = pairs.indexOf(pairs[index]) === pairs.lastIndexOf(pairs[index]);
    const note = isServer(model) ? t("{name}, another server", model) : !isUnique && model.name;
    return new Option(note ? `${pairs[index]} (${note})` : pairs[index], model.name);
  });
  element("model").replaceChildren(...options);
  element("model").value = localStorage.getItem("docmt-model") ?? models[0]?.name;
  if (element("model").selectedIndex < 0) element("model").selectedIndex = 0;
  showWay();
}

const isServer = ({ system }) => system === "endpoint";

/** Show which servers get a text. */
function showWay() {
  const isFar = models.some((each) => each.name === element("model").value && isServer(each));
  const [here, elsewhere] = element("start").querySelectorAll(".note");
  [here.hidden, elsewhere.hidden] = [isFar, !isFar];
}

function chooseFile(file) {
  chosenFile = file ?? null;
  element("text").hidden = Boolean(file);
  element("chosen").hidden = !file;
  element("file").value = "";
  showText();
  if (!file) return element("text").focus();
  element("chosen").querySelector(".file-name").textContent = file.name;
  element("chosen").querySelector(".file-size").textContent = t("{size} kB", { size: Math.ceil(file.size / 1000) });
  element("fields").hidden = !NEEDS_FIELDS.test(file.name);
  element("start").querySelector("button.main").focus();
}

function chooseGlossary(file) {
  glossary = file ?? null;
  element("glossary").value = "";
  element("glossary-name").textContent = file?.name ?? "";
  element("no-glossary").hidden = !file;
}

/** Show what is known of the text before it is sent, or of a file of plain text: its size, and its translation. */
async function showText() {
  live.update();
  const isText = chosenFile && /\.txt$/i.test(chosenFile.name);
  const text = isText ? await chosenFile.text() : readText();
  element("count").textContent = text && messages.countText(text);
}

/** Ask whether a document in another language than that of the model, or a long one, is meant to be translated. */
async function confirmDocument(created) {
  const language = describeLanguage(created);
  if (language) return confirm(`${language} ${t("Translate it anyway?")}`);
  if (created.sentences <= LONG) return true;
  const { sentences } = await service.getSentences(created.id);
  const size = describeSize(sentences);
  return confirm(t("{name} has {size}. Translate all of it?", { name: created.name, size }));
}

function describeSize(sentences) {
  const text = sentences.map(({ source }) => source).join(" ");
  return `${plural(sentences.length, "{count} sentence", "{count} sentences")} · ${messages.countText(text)}`;
}

/** Return a file name for a pasted text: its first words. */
function nameText(text) {
  const [first] = text.trim().split("\n");
  return `${first.slice(0, NAME_LENGTH).replaceAll(/[\\/."]+/g, " ").trim() || t("Pasted text")}.txt`;
}

async function startJob(event) {
  event.preventDefault();
  const text = element("text").value;
  const isEmpty = !chosenFile && !text.trim();
  if (isEmpty) throw new Error(t("There is nothing to translate yet. Paste text, or choose a file."));
  if (chosenFile && (await startReview(chosenFile))) return;
  const button = element("start").querySelector("button.main");
  button.disabled = true; // a document is sent once
  live.stop();
  try {
    const model = element("model").value;
    localStorage.setItem("docmt-model", model);
    const fields = element("fields").hidden ? "" : element("fields").querySelector("input").value;
    const file = chosenFile ?? new File([text], nameText(text)); // a form would change the line ends of a text
    const created = await service.createDocument({ file, model, fields, terms: glossary });
    if (!created.sentences && XLIFF.test(created.name)) {
      await service.removeDocument(created.id);
      throw new Error(
        t("All of this XLIFF is translated already. If it is a reviewed file, open its document and upload it there, under Download."),
      );
    }
    if (!(await confirmDocument(created))) return await service.removeDocument(created.id);
    element("text").value = "";
    sessionStorage.removeItem("docmt-text");
    chooseFile(null);
    location.hash = created.id;
  } finally {
    button.disabled = false;
  }
}

/** Take a reviewed XLIFF over into the document that it names, if the user means that. Return whether it is done. */
async function startReview(file) {
  if (!XLIFF.test(file.name)) return false;
  const root = new DOMParser().parseFromString(await file.text(), "application/xml");
  const reviewed = await findByName(root.querySelector("file")?.getAttribute("original"));
  const values = reviewed && { name: reviewed.name, time: messages.formatTime(reviewed.created) };
  if (!reviewed || !confirm(t("Is this the reviewed XLIFF of {name} of {time}, to be taken over there?", values))) return false;
  chooseFile(null);
  history.pushState(null, "", `#${reviewed.id}`);
  await showAddress();
  if (job?.feed.id === reviewed.id) await uploadReviewed(file);
  return true;
}

function listenToDrops() {
  const isFile = (event) => event.dataTransfer?.types.includes("Files");
  addEventListener("dragover", (event) => {
    if (!isFile(event)) return;
    event.preventDefault();
    element("drop").hidden = false;
  });
  addEventListener("dragleave", (event) => {
    if (!event.relatedTarget) element("drop").hidden = true;
  });
  addEventListener("drop", (event) => {
    element("drop").hidden = true;
    if (!isFile(event)) return;
    event.preventDefault();
    if (event.dataTransfer.files.length > 1) return report(new Error(t("Please send one file after the other.")));
    if (job) location.hash = "";
    chooseFile(event.dataTransfer.files[0]);
  });
}

// The document

/** Show what the address names: a document, or the form. */
async function showAddress() {
  const id = location.hash.slice(1);
  job?.controller.abort();
  panel.close();
  view.clear("", "");
  job = null;
  document.title = "docmt";
  element("document").hidden = true;
  element("start").hidden = Boolean(id);
  if (!id) return myDocuments.show();
  const opened = { feed: { id, after: 0 }, status: null, controller: new AbortController(), begun: null };
  opened.changes = new Set(); // that were made here
  job = opened;
  try {
    if (!/^[\w-]+$/.test(id)) throw new service.ServiceError(t("This address names no document."), 404);
    const [status, { sentences, last_event }] = await Promise.all([service.getStatus(id), service.getSentences(id)]);
    if (job !== opened) return; // the user has gone elsewhere meanwhile
    remember(id);
    opened.feed.after = last_event;
    opened.opened = status.last_change;
    view.clear(status.source_language, status.target_language);
    const [source, target] = element("document").querySelectorAll(".heads span");
    source.textContent = `${capitalize(nameLanguage(status.source_language))} · ${describeSize(sentences)}`;
    target.textContent = capitalize(nameLanguage(status.target_language));
    element("document").hidden = false;
    sentences.forEach((each) => view.put(each)); // the source can be read before it is translated
    showStatus(status);
    element("name").focus();
    listen().catch(report);
  } catch (error) {
    if (error.status === 404) forget(id);
    if (job === opened && !opened.status) {
      element("start").hidden = false;
      myDocuments.show().catch(report);
    }
    throw error;
  }
}

/** Follow the events of the open document, from the last one heard, as long as it is looked at or translated. */
async function listen() {
  job.controller.abort();
  job.controller = new AbortController();
  const followed = job;
  for await (const event of service.follow(job.feed, job.controller.signal)) {
    if (job !== followed) return;
    element("state").classList.toggle("lost", event.name === "lost");
    if (event.name === "sentence") showSentence(event.data);
    else if (event.name === "progress") showProgress(event.data);
    else if (event.name === "done") showStatus(event.data);
    else if (event.name === "lost") element("state").textContent = t("The server does not answer. Trying again…");
    if (event.name === "done" && document.hidden) return;
  }
}

async function showSentence(data) {
  view.put(data);
  panel.update(data.number);
  if (!job.isUndone) return;
  job.isUndone = false;
  await view.drawing;
  view.focus(data.number); // where something was undone
}

const showProgress = (progress) => showStatus({ ...job.status, ...progress });

const isRunning = () => ["queued", "running"].includes(job?.status.status);

function showStatus(status) {
  const wasRunning = job.status && isRunning();
  job.status = status;
  const running = isRunning();
  const name = status.name || t("Pasted text");
  element("name").textContent = name;
  element("state").textContent = describeState(status);
  document.title = `${running && status.sentences ? `${percent(status)}% ` : ""}${name} – docmt`;
  const progress = element("progress");
  progress.classList.toggle("idle", !running);
  if (status.sentences) Object.assign(progress, { max: status.sentences, value: status.finished });
  element("stop").hidden = !running;
  element("resume").hidden = running || status.status === "done" || status.finished === status.sentences;
  const isDelivered = !running && status.status !== "failed";
  element("download").inert = element("copy").disabled = !isDelivered;
  element("undo").disabled = !status.last_change;
  if (running) element("delete").hidden = true;
  if (!running) showEnd(status, wasRunning);
  else if (Date.now() - announced > BETWEEN_ANNOUNCEMENTS) announce(element("state").textContent);
}

async function showEnd(status, wasRunning) {
  const ended = job;
  if (status.error && wasRunning !== false) report(new Error(status.error)); // once
  await view.drawing;
  if (job !== ended || isRunning()) return;
  view.endStale();
  const marked = view.count("marked");
  element("delete").hidden = false;
  const left = marked ? ` · ${t("{marked} marked to look at", { marked })}` : "";
  element("state").textContent = describeState(status) + left;
  if (wasRunning) announce(element("state").textContent);
}

/** Show how many sentences are in each state. */
function showCounts() {
  const options = Object.entries(STATES).map(([filter, name]) => {
    const count = view.count(filter).toLocaleString(messages.language);
    return new Option(`${name} (${count})`, filter, false, filter === view.filter);
  });
  element("filter").replaceChildren(...options);
  element("next-mark").hidden = !view.count("marked");
}

const percent = (status) => Math.floor((100 * status.finished) / status.sentences);

function describeState(status) {
  const { finished, sentences } = status;
  const all = plural(sentences, "{count} sentence", "{count} sentences");
  const amount = t("{number} of {all}", { number: finished, all });
  const skipped = Object.entries(status.skipped ?? {}).map(([reason, number]) => {
    return `${number} ${messages.translateServerText(reason)}`;
  });
  const left = skipped.length ? ` · ${t("left as it was: {list}", { list: skipped.join(", ") })}` : "";
  if (status.status === "queued") return t("Waiting for its turn");
  if (status.status === "running") return sentences ? amount + describeRest(status) : t("Reading the document");
  if (status.status === "failed") return t("Failed after {amount}", { amount });
  if (status.status === "cancelled") return t("Stopped after {amount}", { amount });
  const kept = status.expires ? ` · ${t("kept until {time}", { time: messages.formatTime(status.expires) })}` : "";
  return `${sentences ? all : t("There is no text to translate")}${left}${kept}`;
}

/** Return the time that is left, by the speed since the page began to listen. */
function describeRest({ id, finished, sentences }) {
  if (job?.status.id !== id) return "";
  job.begun ??= { time: Date.now(), finished };
  const seconds = (Date.now() - job.begun.time) / 1000;
  const speed = (finished - job.begun.finished) / seconds;
  if (seconds < 4 || !(speed > 0)) return "";
  const rest = (sentences - finished) / speed;
  if (rest < 90) return ` · ${t("about {number} seconds left", { number: Math.ceil(rest / 10) * 10 })}`;
  return ` · ${t("about {number} minutes left", { number: Math.round(rest / 60) })}`;
}

/** Return whether the model of the open document reads the sentences before one. */
function readsContext() {
  return models.find((each) => each.name === job.status.model)?.reads_context !== false;
}

/**
 * Send a change of the open document after earlier ones, and follow what it causes. send: async function of the
 * document's id. isNew: whether it can be undone. Return whether the document is still open.
 */
function change(send, message, isNew = true) {
  const changed = job;
  const answer = lastChange.then(() => makeChange(changed, send, message, isNew));
  lastChange = answer.catch(() => (changed.isUndone = false));
  return answer;
}

async function makeChange(changed, send, message, isNew) {
  const status = await send(changed.feed.id).catch((error) => {
    if (error.sentences && job === changed) {
      error.sentences.forEach(showSentence);
      const message = t("Nothing was done: this was changed elsewhere meanwhile, and is shown as it is now.");
      Object.assign(error, { message, language: undefined });
    }
    throw error;
  });
  if (job !== changed) return false;
  job.begun = null;
  element("notice").hidden = true; // of an earlier attempt
  if (isNew) job.changes.add(status.last_change);
  status.updated?.forEach((each) => view.put(each));
  showStatus(status);
  announce(message);
  listen().catch(report);
  await view.drawing; // the next change is based on what is shown then
  return true;
}

/**
 * Send translations by the numbers of their sentences, as one change. versions: of those that they replace. What was
 * changed meanwhile is asked about. Return whether all is settled.
 */
async function sendEdits(targets, { versions = view.listVersions(Object.keys(targets)), message = t("Kept."), retranslate = false }) {
  const edited = job;
  while (job === edited && Object.keys(targets).length) {
    const send = (id) => {
      if (retranslate) view.markStale(Math.min(...Object.keys(targets))); // their events may come before the answer
      return service.editSentences(id, targets, versions, retranslate);
    };
    try {
      return await change(send, message);
    } catch (error) {
      if (retranslate) view.endStale();
      if (!error.sentences) throw error;
      const others = error.sentences.filter(({ number, target }) => target !== targets[number]);
      const choice = others.length ? await conflict.ask(others, targets) : "theirs";
      if (!choice) return false;
      [targets, versions] = [{ ...targets }, { ...versions }];
      for (const { number, version } of error.sentences) {
        versions[number] = version;
        if (choice === "theirs") [targets, versions].forEach((each) => delete each[number]);
      }
    }
  }
  return job === edited;
}

/** Confirm a sentence and go on to the next open one, or take the confirmation back. */
function confirmSentence({ number, confirmed }) {
  return attempt(async () => {
    const send = (id) => service.confirmSentence(id, view.sentences[number].data, !confirmed);
    const isOpen = await change(send, confirmed ? t("No longer confirmed.") : t("Confirmed."));
    if (isOpen && !confirmed && view.current === number) go(view.next(number, "open"));
  });
}

function restoreSentence({ number }) {
  const send = (id) => service.restoreSentence(id, view.sentences[number].data);
  return attempt(() => change(send, t("The sentence has the machine's version again.")));
}

/** Search sentences again for a term, or for a glossary, and tell what became of them. */
function useTerms(values) {
  return attempt(() => searchTerms(values));
}

async function searchTerms(values) {
  const [asked, before] = [job, job.status];
  showStatus({ ...before, status: "running" }); // what is there is not downloaded before the end of the search
  element("state").textContent = t("Sentences are searched again…");
  announce(element("state").textContent);
  const status = await service.useTerms(job.feed.id, values).catch((error) => {
    if (job === asked) showStatus(before);
    throw error;
  });
  if (job !== asked) return;
  const { changed, kept, refused, waiting, skipped_rows: skipped } = status;
  const lines = [t("Sentences with the term now: {changed}; yours, which stay: {kept}; without it: {refused}.", { changed, kept, refused })];
  if (waiting) lines.push(t("Not searched yet: {waiting}", { waiting }));
  if (skipped) lines.push(t("Rows of the glossary that were left out: {skipped}", { skipped }));
  await change(async () => status, lines[0]);
  report(new Error(lines.join("\n")), false);
}

function undo() {
  const undone = Object.assign(job, { isUndone: true });
  const send = async (id) => {
    const { last_change } = undone.status;
    const isMine = last_change <= undone.opened || undone.changes.has(last_change);
    if (isMine || confirm(t("The last change was made elsewhere. Undo it?"))) return service.undoChange(id, last_change);
    throw new Error(t("Nothing was undone."));
  };
  return change(send, t("The last change was undone."), false);
}

/** Take the translations of a reviewed XLIFF file over, and tell what was left out. */
async function uploadReviewed(file) {
  const reviewed = job;
  const status = await service.uploadReviewed(job.feed.id, file).finally(() => {
    element("reviewed").value = "";
    element("download").open = false;
  });
  if (job !== reviewed) return;
  const { changed, replaced, confirmed, problems } = status;
  const message = t("Sentences with another translation: {changed}; confirmed: {confirmed}.", { changed, confirmed });
  await change(async () => status, message);
  const reasons = problems.length ? [t("Left out: {count}", { count: problems.length }), ...problems] : [];
  if (replaced) reasons.unshift(t("Your edits that it replaced: {replaced}. Undo brings them back.", { replaced }));
  report(new Error([message, ...reasons.slice(0, REASONS_SHOWN)].join("\n")), problems.length + replaced > 0);
}

async function stop() {
  const stopped = job;
  const status = await service.stopDocument(job.feed.id);
  if (job === stopped) showStatus(status);
}

/** Delete a document. Return whether the user meant it. */
async function remove(id) {
  if (!confirm(t("Delete this document and its translation from the server?"))) return false;
  await service.removeDocument(id);
  forget(id);
  announce(t("The document was deleted from the server."));
  return true;
}

function copyDocument() {
  const hasLayout = ["text", "markdown"].includes(job.status.format); // then the file is what is pasted elsewhere
  return copy(service.getText(job.feed.id, hasLayout ? "original" : "txt"), element("copy"));
}

/** Copy a text that is on its way, and say so on a button. */
async function copy(text, button) {
  if (navigator.clipboard) {
    const data = text.then((each) => new Blob([each], { type: "text/plain" })); // Safari waits for no answer before
    await Promise.all([text, navigator.clipboard.write([new ClipboardItem({ "text/plain": data })])]);
  } else copyBySelection(await text); // browsers give the clipboard to https and localhost only
  button.textContent = t("Copied");
  announce(t("The translation was copied."));
  setTimeout(() => (button.textContent = t("Copy")), 2_000);
}

function copyBySelection(text) {
  const field = Object.assign(document.createElement("textarea"), { value: text, className: "unseen" });
  document.body.append(field);
  field.select();
  document.execCommand("copy");
  field.remove();
}

// Dialogs

function askForKey(refused) {
  const dialog = element("key-dialog");
  dialog.querySelector("h2").textContent = refused
    ? t("The server does not know this key")
    : t("This server asks for a key");
  const field = dialog.querySelector("input");
  field.value = "";
  dialog.oncancel = (event) => event.preventDefault(); // nothing works without a key
  dialog.showModal();
  return new Promise((resolve) => dialog.addEventListener("close", () => resolve(field.value.trim()), { once: true }));
}

function showHelp() {
  element("forget-key").hidden = !service.readKey();
  element("help").showModal();
}

const openSentence = (number) => job && view.sentences[number]?.data.target && panel.open(job.feed.id, number);

/** Lead to a sentence; the open panel goes along. */
function go(number) {
  view.focus(number);
  if (panel.isOpen) openSentence(number);
}

/** Let the browser keep what is chosen. It is on at first. */
function keepChoice(id) {
  const name = `docmt-${id}`;
  element(id).checked = localStorage.getItem(name) !== "off";
  element(id).addEventListener("change", () => localStorage.setItem(name, element(id).checked ? "on" : "off"));
}

function listenToButtons() {
  const on = (id, type, action) => element(id).addEventListener(type, (event) => attempt(() => action(event)));
  on("start", "submit", startJob);
  on("file", "change", () => chooseFile(element("file").files[0]));
  on("chosen", "click", (event) => event.target.matches("button") && chooseFile(null));
  on("text", "input", showText);
  on("model", "change", () => {
    showWay();
    return showText();
  });
  on("while-typing", "change", showText);
  on("glossary", "change", () => chooseGlossary(element("glossary").files[0]));
  on("no-glossary", "click", () => chooseGlossary(null));
  on("stop", "click", stop);
  on("resume", "click", () => change(service.resumeDocument, t("The translation goes on."), false));
  on("undo", "click", undo);
  on("reviewed", "change", () => uploadReviewed(element("reviewed").files[0]));
  on("delete", "click", async () => (await remove(job.feed.id)) && (location.hash = ""));
  on("filter", "change", () => view.applyFilter(element("filter").value));
  on("forget-key", "click", service.forgetKey);
  on("language", "change", () => {
    sessionStorage.setItem("docmt-text", element("text").value);
    messages.chooseLanguage(element("language").value);
  });
  on("copy", "click", copyDocument);
  on("search-button", "click", () => search.open());
  const copyLive = (button) => copy(Promise.resolve(live.output.textContent), button);
  on("live", "click", ({ target }) => target.matches("button") && copyLive(target));
  on("next-open", "click", () => go(view.next(view.current, "open")));
  on("next-mark", "click", () => go(view.next(view.current, "marked")));
  on("help-button", "click", showHelp);
  on("text-pairs", "click", (event) => {
    const number = view.numberAt(event.target);
    if (number < 0 || !getSelection().isCollapsed) return; // selecting text to copy it is no click
    view.focus(number);
    return openSentence(number);
  });
  on("download", "click", async (event) => {
    const { format } = event.target.dataset;
    if (format) await service.download(job.feed.id, format).finally(() => (element("download").open = false));
  });
  element("notice").querySelector("button").addEventListener("click", () => (element("notice").hidden = true));
  addEventListener("click", (event) => {
    if (!event.target.closest("#download")) element("download").open = false;
  });
  element("text").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) element("start").requestSubmit();
  });
  addEventListener("hashchange", () => attempt(showAddress));
  addEventListener("visibilitychange", () => {
    if (!job?.status || isRunning()) return;
    if (document.hidden) job.controller.abort(); // a browser has few connections for all its tabs
    else listen().catch(report); // what was changed elsewhere
  });
}

service.onKeyNeeded(askForKey);
messages.localizePage();
element("language").value = messages.language;
element("text").value ||= sessionStorage.getItem("docmt-text") ?? "";
["letters", "while-typing"].forEach(keepChoice);
listenToButtons();
listenToDrops();
keepInSight(document.querySelector(".tools"), element("search"), panel);
keepInside(element("download"));
// A text may be there already: typed before all of this was loaded, or put back by the browser, perhaps later.
showText();
addEventListener("pageshow", showText);
view.onDrawn = () => {
  showCounts();
  terms.update();
};
const hasLetters = () => element("letters").checked;
listenToKeys({ view, panel, search, go, openSentence, undo: () => attempt(undo), showHelp, hasLetters });
attempt(async () => {
  const filled = fillModels(); // asks for a key, if one is needed, before anything else is tried
  await Promise.all([filled, showAddress()]);
});
