"""Count articles that do not agree with a term: nouns of known gender are asked for in the place of another noun.

python -m benchmarks.term_articles [MODEL]
python -m benchmarks.term_articles MODEL TEXT

The first model is one from English to French. Most of the nouns are far from the sense of the sentence, so that it
knows little of them: as with the rare terms that glossaries are for. The second one knows the synthetic English and
German of `benchmarks.synthetic`, of which TEXT are English sentences: what it writes where the source has the other
noun is right.
"""

from __future__ import annotations

import random
import re
import sys
from collections import Counter
from pathlib import Path

import docmt
from docmt.core.settings import read_package_yaml
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


def measure_synthetic(model: str, path: str, count: int = 300) -> Counter[str]:
    """Return how many sentences with a term are those with its noun in the source."""
    translator, draw = docmt.Translator(model), random.Random(1)
    genders = read_package_yaml("benchmarks.synthetic", "lexicon.yaml")["nouns"]
    nouns = {english: (german, gender) for gender, pairs in genders.items() for english, german in pairs.items()}
    sentences = [line for line in Path(path).read_text(encoding="utf-8").split("\n") if line]
    counts = Counter[str]()
    for sentence in draw.sample(sentences, len(sentences)):
        noun, other = next((each for each in sentence.split() if each in nouns), ""), draw.choice(sorted(nouns))
        if not noun or nouns[other][1] == nouns[noun][1] or (noun[0] in "aeiou") != (other[0] in "aeiou"):
            continue
        truth, plain = translator.translate([sentence.replace(noun, other), sentence])
        glossary = Glossary.from_pairs({noun: nouns[other][0]}, translator.languages)
        text = translator.with_terms(glossary, "require").translate(sentence)
        counts.update(sentences=1, met=nouns[other][0] in text, right=text == truth, as_before=text == plain)
        if counts["sentences"] == count:
            break
    return counts


def measure(model: str) -> Counter[str]:
    """Return what is right or wrong before French nouns."""
    translator = docmt.Translator(model)
    documents = [docmt.Document.from_sentences([sentence]) for sentence in SENTENCES]
    counts = Counter[str]()
    for gender, nouns in NOUNS.items():
        for noun in nouns.split():
            glossary = Glossary.from_pairs({"report": noun}, translator.languages)
            made = translator.with_terms(glossary, "require").translate_all(documents)
            counts.update(judge(each.sentences[0].target, noun, gender) for each in made)
    return counts


if __name__ == "__main__":
    model, *texts = sys.argv[1:] or ["en-fr-sentence"]
    print(dict((measure_synthetic(model, *texts) if texts else measure(model)).most_common()))
