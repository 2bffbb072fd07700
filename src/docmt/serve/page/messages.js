// Messages in the language of the page. Their English texts are the keys of messages.json, and short texts of the server
// those of server_messages.json.

const NAME = "docmt-language";
const LANGUAGES = ["en", "de", "fr"];

const wanted = [localStorage.getItem(NAME), ...navigator.languages].map((code) => code?.slice(0, 2));
export const language = wanted.find((code) => LANGUAGES.includes(code)) ?? "en";
const locale = navigator.languages.find((code) => code.startsWith(language)) ?? language; // such as en-GB
const load = async (name) => (language === "en" ? {} : (await fetch(`page/${name}.json`)).json());
const [messages, serverMessages] = await Promise.all(["messages", "server_messages"].map(load));
const patterns = Object.keys(serverMessages).filter((text) => text.includes("{")).map(makePattern);
const numbers = new Intl.NumberFormat(locale);
const plurals = new Intl.PluralRules(language);
const names = new Intl.DisplayNames(locale, { type: "language", fallback: "code" });
const times = new Intl.DateTimeFormat(locale, { month: "short", day: "numeric", hour: "numeric", minute: "2-digit" });

/** Return a message with {names}, and a regular expression of the texts that it stands for. */
function makePattern(message) {
  const escaped = message.replace(/[\^$\\.*+?()[\]|/]/g, "\\$&");
  return [message, new RegExp(`^${escaped.replace(/{(\w+)}/g, "(?<$1>.+)")}$`, "su")];
}

/** Return a short text of the server in the language of the page, if it is known. */
export function translateServerText(text) {
  if (serverMessages[text]) return serverMessages[text][language];
  const [message, pattern] = patterns.find(([, each]) => each.test(text)) ?? [];
  const { groups } = pattern?.exec(text) ?? {};
  return message ? serverMessages[message][language].replace(/{(\w+)}/g, (_, name) => groups[name]) : text;
}

/** Return a message in the language of the page, with values for its {names}. */
export function t(text, values = {}) {
  const format = (value) => (typeof value === "number" ? numbers.format(value) : value);
  return (messages[text]?.[language] ?? text).replace(/{(\w+)}/g, (_, name) => format(values[name]));
}

/** Return a message with {count}, in the form for one or for many. */
export const plural = (count, one, many) => t(plurals.select(count) === "one" ? one : many, { count });

export const formatTime = (text) => times.format(new Date(text));
export const capitalize = (text) => text.slice(0, 1).toLocaleUpperCase(language) + text.slice(1);

export function nameLanguage(code) {
  try {
    return code ? names.of(code.replaceAll("_", "-")) : t("any language");
  } catch {
    return code; // a code that is no BCP 47 tag
  }
}

export function countText(text) {
  let words = 0; // not of a list: a book has a million segments
  for (const each of new Intl.Segmenter(undefined, { granularity: "word" }).segment(text)) words += each.isWordLike;
  const characters = plural([...text].length, "{count} character", "{count} characters");
  return `${plural(words, "{count} word", "{count} words")} · ${characters}`;
}

/** Put texts and labels of the page into its language. */
export function localizePage() {
  document.documentElement.lang = language;
  const roots = [document.body, ...[...document.querySelectorAll("template")].map((each) => each.content)];
  for (const root of roots) {
    const texts = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) localizeText(texts.currentNode);
    for (const name of ["aria-label", "placeholder"]) {
      for (const each of root.querySelectorAll(`[${name}]`)) each.setAttribute(name, t(each.getAttribute(name)));
    }
  }
}

function localizeText(node) {
  const text = node.data.trim().replace(/\s+/g, " ");
  if (messages[text]) node.data = node.data.replace(/\S(.*\S)?/s, t(text));
}

/** Choose a language. The page is loaded again, and shows the same document. */
export function chooseLanguage(code) {
  localStorage.setItem(NAME, code);
  location.reload();
}
