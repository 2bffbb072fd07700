// The page: the form, the open document, and what connects them. The document's id stands in the address (#ID), so
// that a reload, or the same address in another tab, shows it again.

import * as service from "./service.js";
import { DocumentView } from "./document_view.js";
import { SentencePanel } from "./sentence_panel.js";
import { listenToKeys } from "./keys.js";

const NO_TEXT = "There is no text to translate";
const NEEDS_FIELDS = /\.(json|tsv|csv|md|markdown)$/i;
const BETWEEN_ANNOUNCEMENTS = 5_000; // milliseconds

const element = (id) => document.getElementById(id);
const count = new Intl.NumberFormat("en");
const times = new Intl.DateTimeFormat("en", { month: "short", day: "numeric", hour: "numeric", minute: "2-digit" });
const languages = new Intl.DisplayNames("en", { type: "language", fallback: "code" });
const view = new DocumentView(element("text-pairs"), element("reason"));
const panel = new SentencePanel(element("panel"), view, { edit: sendEdit, readsContext, report });
let models = [];
let chosenFile = null;
let job = null; // {feed: {id, after}, status, controller, begun}: the open document
let announced = 0;

// Messages

function report(error) {
  // Messages of the server begin with a small letter. A file name at the beginning stays as it is.
  const text = error.message.replace(/^[a-z](?=[a-z]* )/, (letter) => letter.toUpperCase());
  element("notice").firstElementChild.textContent = text;
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

function nameLanguage(code) {
  try {
    return code ? languages.of(code.replaceAll("_", "-")) : "any language";
  } catch {
    return code; // a code that is no BCP 47 tag
  }
}

// The form

async function fillModels() {
  try {
    models = await service.listModels();
  } finally {
    element("start").querySelector("button.main").disabled = false;
  }
  const pairs = models.map((each) => `${nameLanguage(each.source_language)} → ${nameLanguage(each.target_language)}`);
  const options = models.map((model, index) => {
    const isUnique = pairs.indexOf(pairs[index]) === pairs.lastIndexOf(pairs[index]);
    return new Option(isUnique ? pairs[index] : `${pairs[index]} (${model.name})`, model.name);
  });
  element("model").replaceChildren(...options);
  element("model").value = localStorage.getItem("docmt-model") ?? models[0]?.name;
  if (element("model").selectedIndex < 0) element("model").selectedIndex = 0;
}

function chooseFile(file) {
  chosenFile = file ?? null;
  element("text").hidden = Boolean(file);
  element("chosen").hidden = !file;
  element("file").value = "";
  if (!file) return element("text").focus();
  element("chosen").querySelector(".file-name").textContent = file.name;
  element("chosen").querySelector(".file-size").textContent = `${count.format(Math.ceil(file.size / 1000))} kB`;
  element("fields").hidden = !NEEDS_FIELDS.test(file.name);
  element("start").querySelector("button.main").focus();
}

async function startJob(event) {
  event.preventDefault();
  const text = element("text").value;
  if (!chosenFile && !text.trim()) throw new Error("There is nothing to translate yet. Paste text, or choose a file.");
  const button = element("start").querySelector("button.main");
  button.disabled = true; // a document is sent once
  try {
    const model = element("model").value;
    localStorage.setItem("docmt-model", model);
    const fields = element("fields").hidden ? "" : element("fields").querySelector("input").value;
    const created = chosenFile
      ? service.createFromFile(chosenFile, model, fields)
      : service.createFromText(text, model);
    location.hash = (await created).id;
  } finally {
    button.disabled = false;
  }
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
    if (job) location.hash = "";
    chooseFile(event.dataTransfer.files[0]);
  });
}

// The document

/** Show what the address names: a document, or the form. */
async function showAddress() {
  const id = decodeURIComponent(location.hash.slice(1));
  job?.controller.abort();
  panel.close();
  view.clear("", "");
  job = null;
  document.title = "docmt";
  element("document").hidden = true;
  element("start").hidden = Boolean(id);
  if (!id) return;
  const opened = { feed: { id, after: 0 }, status: null, controller: new AbortController(), begun: null };
  job = opened;
  try {
    const status = await service.getStatus(id);
    if (job !== opened) return; // the user has gone elsewhere meanwhile
    view.clear(status.source_language, status.target_language);
    const [source, target] = element("document").querySelectorAll(".heads span");
    source.textContent = nameLanguage(status.source_language);
    target.textContent = nameLanguage(status.target_language);
    element("document").hidden = false;
    showStatus(status);
    element("name").focus();
    await listen();
  } catch (error) {
    if (job === opened && !opened.status) element("start").hidden = false;
    throw error;
  }
}

/** Follow the events of the open document, from the last one heard. */
async function listen() {
  job.controller.abort();
  job.controller = new AbortController();
  const followed = job;
  for await (const event of service.follow(job.feed, job.controller.signal)) {
    if (job !== followed) return;
    element("state").classList.toggle("lost", event.name === "lost");
    if (event.name === "sentence") view.put(event.data);
    else if (event.name === "progress") showProgress(event.data);
    else if (event.name === "done") showStatus(event.data);
    else if (event.name === "lost") element("state").textContent = "The server does not answer. Trying again…";
  }
}

function showProgress({ finished, sentences }) {
  const { status } = job.status;
  showStatus({ ...job.status, finished, sentences, status: status === "queued" && finished ? "running" : status });
}

const isRunning = () => ["queued", "running"].includes(job?.status.status);

function showStatus(status) {
  const wasRunning = job.status && isRunning();
  job.status = status;
  const running = isRunning();
  const name = status.name || "Pasted text";
  element("name").textContent = name;
  element("state").textContent = describeState(status);
  document.title = `${running && status.sentences ? `${percent(status)}% ` : ""}${name} – docmt`;
  const progress = element("progress");
  progress.classList.toggle("idle", !running);
  if (status.sentences) Object.assign(progress, { max: status.sentences, value: status.finished });
  element("waiting").hidden = !running;
  element("waiting").textContent = `The ${status.finished ? "next" : "first"} sentences come in a moment…`;
  element("cancel").hidden = !running;
  if (running) {
    element("delete").hidden = true;
    element("download").inert = true;
  }
  if (!running) showEnd(status, wasRunning);
  else if (Date.now() - announced > BETWEEN_ANNOUNCEMENTS) announce(element("state").textContent);
}

async function showEnd(status, wasRunning) {
  const ended = job;
  if (status.error) report(new Error(status.error));
  await view.drawing;
  if (job !== ended || isRunning()) return;
  view.endStale();
  const marked = view.countMarked();
  element("next-mark").hidden = !marked;
  element("delete").hidden = false;
  element("download").inert = status.status !== "done";
  if (marked) element("state").textContent = `${describeState(status)} · ${count.format(marked)} marked to look at`;
  if (wasRunning) announce(element("state").textContent);
}

const percent = (status) => Math.floor((100 * status.finished) / status.sentences);

function describeState(status) {
  const { finished, sentences } = status;
  const all = `${count.format(sentences)} ${sentences === 1 ? "sentence" : "sentences"}`;
  const amount = `${count.format(finished)} of ${all}`;
  const skipped = Object.entries(status.skipped ?? {}).map(([reason, number]) => `${count.format(number)} ${reason}`);
  const left = skipped.length ? ` · left as it was: ${skipped.join(", ")}` : "";
  if (status.status === "queued") return "Waiting for its turn";
  if (status.status === "running") return sentences ? amount + describeRest(status) : "Reading the document";
  if (status.status === "failed") return `Failed after ${amount}`;
  if (status.status === "cancelled") return `Cancelled after ${amount}`;
  const kept = status.expires ? ` · kept until ${times.format(new Date(status.expires))}` : "";
  return `${sentences ? all : NO_TEXT}${left}${kept}`;
}

/** Return the time that is left, by the speed since the page began to listen. */
function describeRest({ finished, sentences }) {
  job.begun ??= { time: Date.now(), finished };
  const seconds = (Date.now() - job.begun.time) / 1000;
  const speed = (finished - job.begun.finished) / seconds;
  if (seconds < 4 || !(speed > 0)) return "";
  const rest = (sentences - finished) / speed;
  return ` · about ${rest < 90 ? `${Math.ceil(rest / 10) * 10} seconds` : `${Math.round(rest / 60)} minutes`} left`;
}

/** Return whether the model of the open document reads the sentences before one. */
function readsContext() {
  return models.find((each) => each.name === job.status.model)?.reads_context !== false;
}

async function sendEdit(number, target, retranslate) {
  const edited = job;
  const status = await service.editSentence(job.feed.id, number, target, retranslate);
  if (job !== edited) return;
  view.put({ ...view.sentences[number].data, target, edited: true });
  if (retranslate) view.markStale(number);
  job.begun = null;
  showStatus(status);
  announce(retranslate ? "Kept. What follows is translated again." : "Kept.");
  listen().catch(report);
}

async function cancel() {
  const { id } = job.feed;
  await service.cancelDocument(id);
  showStatus(await service.getStatus(id));
}

async function remove() {
  if (!confirm("Delete this document and its translation from the server?")) return;
  await service.removeDocument(job.feed.id);
  panel.drafts.delete(job.feed.id);
  location.hash = "";
  announce("The document was deleted from the server.");
}

async function copy() {
  if (navigator.clipboard) await navigator.clipboard.writeText(view.text());
  else copyBySelection(view.text()); // browsers give the clipboard to https and localhost only
  element("copy").textContent = "Copied";
  announce("The translation was copied.");
  setTimeout(() => (element("copy").textContent = "Copy"), 2_000);
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
  dialog.querySelector("h2").textContent = refused ? "The server does not know this key" : "This server asks for a key";
  const field = dialog.querySelector("input");
  field.value = "";
  dialog.oncancel = (event) => event.preventDefault(); // nothing works without a key
  dialog.showModal();
  return new Promise((resolve) => dialog.addEventListener("close", () => resolve(field.value.trim()), { once: true }));
}

const openSentence = (number) => job && view.sentences[number] && panel.open(job.feed.id, number);

function listenToButtons() {
  const on = (id, type, action) => element(id).addEventListener(type, (event) => attempt(() => action(event)));
  on("start", "submit", startJob);
  on("file", "change", () => chooseFile(element("file").files[0]));
  on("chosen", "click", (event) => event.target.matches("button") && chooseFile(null));
  on("cancel", "click", cancel);
  on("delete", "click", remove);
  on("copy", "click", copy);
  on("next-mark", "click", () => view.focus(view.nextMarked(view.current)));
  on("help-button", "click", () => element("help").showModal());
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
  addEventListener("beforeunload", (event) => panel.hasDrafts && event.preventDefault());
  addEventListener("hashchange", () => attempt(showAddress));
}

service.onKeyNeeded(askForKey);
listenToButtons();
listenToDrops();
listenToKeys({ view, panel, openSentence, showHelp: () => element("help").showModal() });
attempt(async () => {
  const filled = fillModels(); // asks for a key, if one is needed, before anything else is tried
  await Promise.all([filled, showAddress()]);
});
