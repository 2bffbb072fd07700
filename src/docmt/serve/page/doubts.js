// Why a sentence deserves a second look, in words.

import { capitalize, t, translateServerText } from "./messages.js";

// Mean probability of a token below which a sentence counts as doubtful. Scores are natural logarithms.
const LEAST_PROBABILITY = 0.4;

const WARNINGS = {
  failed: t("This sentence could not be translated, so it stands as it was."),
  sentence_count: t("The model wrote another number of sentences here, so they may be divided otherwise."),
  length_limit: t("The translation reached its longest length, so words may be missing."),
  missing_text: t("A part of the sentence seems not to be translated."),
  long_source: t("The sentence is longer than the model reads at once. Most systems translate it without its context."),
};

/** Return a finding, "kind: message; message", in the language of the page. */
function translateFinding(text) {
  const [kind, ...rest] = text.split(": ");
  const parts = rest.join(": ").split("; ").map(translateServerText);
  return `${capitalize(translateServerText(kind))}: ${parts.join("; ")}`;
}

/** Return {doubts, faults}: reasons from the model, and findings of the checks. */
export function judge(sentence) {
  const doubts = (sentence.warnings ?? []).map((name) => WARNINGS[name] ?? name);
  const probability = sentence.tokens ? Math.exp(sentence.score / sentence.tokens) : 1;
  if (probability < LEAST_PROBABILITY && !sentence.edited) {
    const percent = Math.round(100 * probability);
    doubts.push(t("The model was unsure: it gave its words a probability of {percent}% on average.", { percent }));
  }
  return { doubts, faults: (sentence.findings ?? []).map(translateFinding) };
}
