"""Count articles that do not agree with a term: nouns of known gender are asked for in the place of another noun.

python -m benchmarks.term_articles [MODEL]

The model is one from English to French. Most of the nouns are far from the sense of the sentence, so that it knows
little of them: as with the rare terms that glossaries are for.
"""

from __future__ import annotations

import re
import sys
from collections import Counter

import docmt
from docmt.terms import Glossary

NOUNS = {
    "m": "plan projet document texte livre bureau contrat budget parti peuple pays travail siècle message tableau "
    "moyen problème conseil prix train avocat étage ordinateur arbre",
    "f": "réunion table maison lettre page liste carte ville fête semaine valeur somme chose guerre santé porte "
    "voiture lampe clef chaise étude assemblée école industrie",
}
SENTENCES = (
    "I read a report yesterday.",
    "The report is on the table.",
    "We need a new report.",
    "He spoke about the report.",
    "This report was adopted by Parliament.",
    "They sent the report to the Commission.",
    "My report is ready.",
    "According to the report, prices rose.",
    "The conclusions of the report are clear.",
    "It is a good report.",
)
ARTICLES = {
    "m": {"le", "un", "du", "au", "ce", "cet", "nouveau", "nouvel", "bon", "mon"},
    "f": {"la", "une", "cette", "nouvelle", "bonne", "ma"},
}
_ADJECTIVES = r"(?:\s+(?:nouvel\w*|nouveau|bon\w*))?"


def judge(text: str, noun: str, gender: str) -> str:
    """Return what is wrong with the word before a noun."""
    match = re.search(rf"(\w+){_ADJECTIVES}(\s|['’]){noun}\b", text, re.I)
    if match is None:
        return "no term"
    article, has_vowel = match[1].lower(), noun[0] in "aeiouéè"
    if not match[2].isspace():
        return "right" if has_vowel else "vowel"
    if has_vowel and article in ("le", "la", "de", "du", "au", "ce", "ma"):
        return "vowel"
    if article in ARTICLES[gender] or (has_vowel and article == "mon"):
        return "right"
    return "gender" if any(article in words for words in ARTICLES.values()) else "no article"


def main(model: str = "en-fr-sentence") -> None:
    """Print how many articles are right."""
    translator = docmt.Translator(model)
    documents = [docmt.Document.from_sentences([sentence]) for sentence in SENTENCES]
    counts = Counter[str]()
    for gender, nouns in NOUNS.items():
        for noun in nouns.split():
            glossary = Glossary.from_pairs({"report": noun}, translator.languages)
            made = translator.with_terms(glossary, "require").translate_all(documents)
            counts.update(judge(each.sentences[0].target, noun, gender) for each in made)
    print(dict(counts.most_common()))


if __name__ == "__main__":
    main(*sys.argv[1:])
