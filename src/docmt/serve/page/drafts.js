// Texts that were written and not kept yet. The browser keeps them, so that they survive a closed tab.

const name = (id) => `docmt-drafts-${id}`;
const read = (id) => JSON.parse(localStorage.getItem(name(id)) ?? "{}");

/** Return the draft of a sentence of a document: {text, version}, that of the translation that it is to replace. */
export function findDraft(id, number) {
  const draft = read(id)[number];
  return typeof draft === "string" ? { text: draft, version: 0 } : draft; // of an earlier page
}

/** Keep a draft. undefined: there is none any more. */
export function keepDraft(id, number, draft) {
  const drafts = { ...read(id), [number]: draft };
  if (Object.values(drafts).some((each) => each !== undefined)) localStorage.setItem(name(id), JSON.stringify(drafts));
  else forgetDrafts(id);
}

export const forgetDrafts = (id) => localStorage.removeItem(name(id));
