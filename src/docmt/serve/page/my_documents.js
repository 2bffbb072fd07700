// The list of the user's documents: those that were opened in this browser, and all of the key if the server has keys.

import * as service from "./service.js";
import { forgetDrafts } from "./drafts.js";
import { t } from "./messages.js";

const IDS = "docmt-documents";
const MOST = 100;
const PAUSE = 5_000; // milliseconds between two looks at documents that are translated

const read = () => JSON.parse(localStorage.getItem(IDS) ?? "[]");
const write = (ids) => localStorage.setItem(IDS, JSON.stringify(ids.slice(0, MOST)));

export const remember = (id) => write([id, ...read().filter((each) => each !== id)]);

/** Forget a document that is no longer there, and what was written for it. */
export function forget(id) {
  write(read().filter((each) => each !== id));
  forgetDrafts(id);
}

/** Return the newest document with a name, if there is one. */
export const findByName = async (name) => (await list()).find((each) => each.name === name);

/** Return the status of each document, the newest first. Those that the server has no longer are forgotten. */
async function list() {
  const documents = await service.listDocuments();
  const known = new Set(documents.map(({ id }) => id));
  const others = read().filter((id) => !known.has(id));
  const statuses = await Promise.all(
    others.map((id) => service.getStatus(id).catch((error) => error.status === 404 && forget(id))),
  );
  documents.push(...statuses.filter(Boolean));
  return documents.sort((one, other) => other.created.localeCompare(one.created));
}

/**
 * Show the list in a section, as long as it is on the page. describe: function from a status to its text; remove: async
 * function that deletes a document, if the user means it; attempt: function that runs an action and shows its error.
 */
export class MyDocuments {
  constructor(section, { describe, remove, attempt }) {
    Object.assign(this, { section, describe, timer: 0 });
    this.rows = section.querySelector("ul");
    section.addEventListener("click", (event) => {
      const { id } = event.target.dataset;
      if (id) attempt(async () => (await remove(id)) && this.show());
    });
  }

  async show() {
    clearTimeout(this.timer);
    const documents = await list();
    this.section.hidden = !documents.length;
    this.rows.replaceChildren(...documents.map((status) => this.makeRow(status)));
    const isRunning = documents.some(({ status }) => ["queued", "running"].includes(status));
    // The form, in which the list stands, is hidden while a document is open.
    if (isRunning && this.section.offsetParent) this.timer = setTimeout(() => this.show().catch(() => {}), PAUSE);
  }

  makeRow(status) {
    const row = this.section.querySelector("template").content.cloneNode(true);
    const link = row.querySelector("a");
    Object.assign(link, { href: `#${status.id}`, textContent: status.name });
    row.querySelector("p").textContent = this.describe(status);
    const button = row.querySelector("button");
    button.dataset.id = status.id;
    button.setAttribute("aria-label", t("Delete {name}", { name: status.name }));
    return row;
  }
}
