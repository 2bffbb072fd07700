// Requests to the server: JSON, uploads, downloads and the stream of events. Only this module knows addresses and keys.

import { t } from "./messages.js";

const KEY = "docmt-key";
const KEY_KEPT = 12 * 3_600_000; // milliseconds: a working day, in all tabs
const SILENCE = 30_000; // milliseconds without a byte after which a stream counts as held back by a proxy
const LONGEST_PAUSE = 8_000;

export class ServiceError extends Error {
  /**
   * status: of HTTP; 0: no answer. language: of the message, unless it is that of the page. sentences: as they are now,
   * if somebody changed them meanwhile.
   */
  constructor(message, status = 0, language = undefined, sentences = undefined) {
    super(message);
    Object.assign(this, { status, language, sentences });
  }
}

export function readKey() {
  const { key, until } = JSON.parse(localStorage.getItem(KEY) ?? "{}");
  return until > Date.now() ? key : null;
}

export const forgetKey = () => localStorage.removeItem(KEY);

let askForKey = async () => "";
let asking = null; // requests that are refused together ask one question

/** Set the function that asks the user for a key. It gets whether the last key was refused. */
export function onKeyNeeded(ask) {
  askForKey = ask;
}

async function renewKey(refused) {
  if (readKey() !== refused) return; // another request, or another tab, has asked meanwhile
  asking ??= askForKey(refused !== null).finally(() => (asking = null));
  localStorage.setItem(KEY, JSON.stringify({ key: await asking, until: Date.now() + KEY_KEPT }));
}

/** Return the response, asking for a key as often as needed. Addresses are relative: a proxy may add a prefix. */
async function request(path, options = {}) {
  for (;;) {
    const key = readKey();
    const headers = { ...options.headers, ...(key && { Authorization: `Bearer ${key}` }) };
    let response;
    try {
      response = await fetch(path, { ...options, headers });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new ServiceError(t("The server does not answer."));
    }
    if (response.ok) return response;
    if (response.status !== 401) throw await describeFailure(response);
    await renewKey(key);
  }
}

async function describeFailure(response) {
  const { status } = response;
  const { error, sentences } = await response.json().catch(() => ({}));
  if (error) return new ServiceError(error, status, "en", sentences);
  return new ServiceError(t("The server answered {status}.", { status }), status);
}

async function json(path, method = "GET", body = undefined, signal = undefined) {
  const options = { method, signal };
  if (body) Object.assign(options, { body: JSON.stringify(body), headers: { "Content-Type": "application/json" } });
  return (await request(path, options)).json();
}

const address = (id, rest = "") => `v1/documents/${encodeURIComponent(id)}${rest}`;

export const listModels = async () => (await json("v1/models")).models;
export const listDocuments = async () => (await json("v1/documents")).documents;
export const getStatus = (id) => json(address(id));
export const getSentences = (id) => json(address(id, "/sentences")); // {sentences, last_event}
export const getText = async (id, format) => (await request(address(id, `/result?format=${format}`))).text();
// The document may have come to its end meanwhile: then it stays.
export const stopDocument = (id) => json(address(id, "?keep=true"), "DELETE");

export async function removeDocument(id) {
  await stopDocument(id);
  await request(address(id), { method: "DELETE" });
}

export const resumeDocument = (id) => json(address(id, "/resume"), "POST");
export const translateText = (text, model, signal) => json("v1/translate", "POST", { text, model }, signal);
/** targets and versions: by the number of the sentence. */
export const editSentences = (id, targets, versions, retranslate) =>
  json(address(id, "/sentences"), "POST", { targets, versions, retranslate });
export const confirmSentence = (id, { number, version }, confirmed) =>
  json(address(id, `/sentences/${number}`), "POST", { confirmed, version });
export const restoreSentence = (id, { number, version }) =>
  json(address(id, `/sentences/${number}?version=${version}`), "DELETE");
export const undoChange = (id, last_change) => json(address(id, "/undo"), "POST", { last_change });
export const listAlternatives = async (id, number, count = 5) =>
  (await json(address(id, `/sentences/${number}/alternatives?count=${count}`))).alternatives;
export const getAlignment = async (id, number) => (await json(address(id, `/sentences/${number}/alignment`))).alignment;

/** values: file and model; fields, and a glossary as terms. */
export const createDocument = (values) => sendForm("v1/documents", values);
/** values: source and target, or a glossary as file. */
export const useTerms = (id, values) => sendForm(address(id, "/terms"), values);
export const uploadReviewed = (id, file) => sendForm(address(id, "/xliff"), { file });

async function sendForm(path, values) {
  const body = new FormData();
  for (const [name, value] of Object.entries(values)) if (value) body.append(name, value);
  return (await request(path, { method: "POST", body })).json();
}

/** Download a result. A link alone could not send the key. */
export async function download(id, format) {
  const response = await request(address(id, `/result?format=${format}`));
  const link = document.createElement("a");
  link.href = URL.createObjectURL(await response.blob());
  link.download = readFileName(response.headers.get("Content-Disposition") ?? "") || "translation";
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

function readFileName(disposition) {
  const encoded = /filename\*=utf-8''([^;]+)/i.exec(disposition);
  return encoded ? decodeURIComponent(encoded[1]) : (/filename="?([^";]+)/i.exec(disposition)?.[1] ?? "");
}

/**
 * Yield the events of a document after number `feed.after`, which rises with them. After one named "done" come those of
 * later changes.
 *
 * A stream that breaks is opened again. One that brought nothing is replaced by plain requests: a proxy may hold
 * streams back. Yields "lost" when the server does not answer at all. Errors that waiting cannot mend are thrown.
 */
export async function* follow(feed, signal) {
  let pause = 500;
  while (!signal.aborted) {
    const before = feed.after;
    let isHeard = false;
    try {
      for await (const event of readStream(feed, signal)) {
        isHeard = true;
        yield event;
      }
      if (!isHeard) {
        const events = await pollOnce(feed.id);
        yield* events;
        if (events.at(-1).name === "done") return;
      }
    } catch (error) {
      if (signal.aborted) return;
      if (error.status >= 400 && error.status < 500 && error.status !== 429) throw error;
      yield { name: "lost" };
    }
    pause = feed.after === before ? Math.min(2 * pause, LONGEST_PAUSE) : 500;
    await new Promise((resolve) => setTimeout(resolve, pause));
  }
}

// EventSource would do most of this, but it cannot send a key.
async function* readStream(feed, signal) {
  const silence = new AbortController();
  let timer;
  const restart = () => {
    clearTimeout(timer);
    timer = setTimeout(() => silence.abort(), SILENCE);
  };
  restart();
  try {
    const options = {
      headers: { "Last-Event-ID": String(feed.after), Accept: "text/event-stream" },
      signal: AbortSignal.any([signal, silence.signal]),
    };
    const response = await request(address(feed.id, "/events?stay=true"), options);
    let rest = "";
    for await (const text of chunks(response.body.pipeThrough(new TextDecoderStream()))) {
      restart();
      const blocks = (rest + text).split(/\r?\n\r?\n/);
      rest = blocks.pop();
      for (const block of blocks) {
        const event = parseEvent(block);
        if (!event) continue;
        feed.after = Math.max(feed.after, event.id);
        yield event;
      }
    }
  } catch (error) {
    if (error instanceof ServiceError) throw error; // else the stream broke, and the caller opens it again
  } finally {
    clearTimeout(timer);
    silence.abort();
  }
}

async function* chunks(stream) {
  const reader = stream.getReader(); // Safari cannot iterate over streams
  for (let part = await reader.read(); !part.done; part = await reader.read()) yield part.value;
}

function parseEvent(block) {
  const event = { id: 0, name: "message" };
  const data = [];
  for (const line of block.split(/\r?\n/)) {
    const [, field, value] = /^(\w+): ?(.*)$/.exec(line) ?? [];
    if (field === "id") event.id = Number(value);
    else if (field === "event") event.name = value;
    else if (field === "data") data.push(value);
  }
  return data.length ? { ...event, data: JSON.parse(data.join("\n")) } : null;
}

async function pollOnce(id) {
  const status = await getStatus(id);
  const { sentences } = await getSentences(id);
  const events = sentences.map((data) => ({ id: 0, name: "sentence", data }));
  const ended = !["queued", "running"].includes(status.status);
  return [...events, { id: 0, name: ended ? "done" : "progress", data: status }];
}
