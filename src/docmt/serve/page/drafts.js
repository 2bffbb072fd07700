// Texts that were written and not kept yet. The browser keeps them, so that they survive a closed tab.

const name = (id) => `docmt-drafts-${id}`;
const read = (id) => JSON.parse(localStorage.getItem(name(id)) ?? "{}");

/** Return the draft of a sentence of a document, or undefined. */
export const findDraft = (id, number) => read(id)[number];

/** Keep a draft. undefined: there is none any more. */
export function keepDraft(id, number, text) {
  const drafts = { ...read(id), [number]: text };
  if (Object.values(drafts).some((each) => each !== undefined)) localStorage.setItem(name(id), JSON.stringify(drafts));
  else forgetDrafts(id);
}

export const forgetDrafts = (id) => localStorage.removeItem(name(id));
