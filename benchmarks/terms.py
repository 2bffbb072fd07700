"""Measure translation with terms: success, cost and quality, with a glossary that is drawn from training text.

python -m benchmarks.terms MODEL TRAIN_SOURCE TRAIN_TARGET TEST_SOURCE TEST_TARGET [DOCUMENTS] [MODE]

The glossary has nouns with two common translations. Every other document is asked for the rarer one of every other
noun, the documents between for that of the others. Documents are parted by empty lines. As a control each noun is asked
to be the translation of another one: what obeys this as well is blind.
"""

from __future__ import annotations

import re
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import islice, pairwise
from pathlib import Path

import numpy as np
from sacrebleu.metrics import CHRF

import docmt
from docmt.checking.languages import stem
from docmt.checking.lexical_model import SentenceWords, link_words
from docmt.checking.renderings import find_nouns
from docmt.decoding.translation_results import Translation
from docmt.terms import Glossary
from docmt.terms.matching import TermMatcher
from docmt.terms.word_forms import WordForms

TRAINING_SENTENCES, TERMS = 30_000, 200
_LEAST_COUNT, _LEAST_SHARE, _LEAST_BOTH = 40, 0.15, 0.6
"""Links of a noun, share of its second translation, and of both."""
_CHRF = CHRF(word_order=2)


def read_lemmas(path: str, forms: WordForms) -> list[set[str]]:
    """Return the base forms of the words of the first sentences of a file."""
    with Path(path).open(encoding="utf-8") as file:
        lines = islice((line for line in file if line.strip()), TRAINING_SENTENCES)
        return [{forms.lemma(word) for word in re.findall(r"[^\W\d_]{4,}", line)} for line in lines]


def number_words(rows: Sequence[set[str]]) -> tuple[SentenceWords, list[str]]:
    """Return the words of sentences as numbers, without rare and very frequent ones, and their names."""
    counts = Counter(word for row in rows for word in row)
    names = [word for word, count in counts.items() if 8 <= count <= 0.2 * len(rows)]
    numbers = {word: number for number, word in enumerate(names)}
    ids = [sorted(numbers[word] for word in row if word in numbers) for row in rows]
    ids = [row if len(row) < 80 else [] for row in ids]
    sizes = np.array(list(map(len, ids)))
    flat = np.array([id for row in ids for id in row], dtype=np.int64)
    return SentenceWords(flat, np.repeat(np.arange(len(ids)), sizes), len(ids), len(names)), names


def draw_terms(source: str, target: str, languages: tuple[str, str]) -> dict[str, tuple[str, str]]:
    """Return nouns of training text with their two most common translations."""
    forms = list(map(WordForms, languages))
    sides = [read_lemmas(path, each) for path, each in zip((source, target), forms, strict=True)]
    (sources, names), (targets, target_names) = map(number_words, sides)
    pairs, linked = link_words(sources, targets)
    kinds = pairs.kind[linked]
    links: dict[str, Counter[str]] = defaultdict(Counter)
    for one, other in zip(pairs.kind_source[kinds].tolist(), pairs.kind_target[kinds].tolist(), strict=True):
        links[names[one]][target_names[other]] += 1
    nouns = []
    for path, language in zip((source, target), languages, strict=True):
        with Path(path).open(encoding="utf-8") as file:
            lines = list(islice((line.strip() for line in file if line.strip()), TRAINING_SENTENCES))
        nouns.append(find_nouns([lines], language))
    terms = {}
    for name, counts in sorted(links.items(), key=lambda each: -each[1].total()):
        (first, many), (second, fewer) = [*counts.most_common(2), ("", 0)][:2]
        total = counts.total()
        is_common = total >= _LEAST_COUNT and fewer >= _LEAST_SHARE * total and many + fewer >= _LEAST_BOTH * total
        are_nouns = stem(name) in nouns[0] and stem(first) in nouns[1] and stem(second) in nouns[1]
        if is_common and are_nouns and first[:4] != second[:4]:
            terms[name] = (first, second)
    return dict(list(terms.items())[:TERMS])


def control(
    translator: docmt.Translator, terms: dict[str, tuple[str, str]], documents: list[docmt.Document], mode: str
) -> dict[str, int]:
    """Return how often the translation of another noun was asked for, and what became of that."""
    words = [one for one, _ in terms.values()]
    pairs = {name: words[(number + len(words) // 2) % len(words)] for number, name in enumerate(terms)}
    glossary = Glossary.from_pairs(pairs, translator.languages)
    made = translator.with_terms(glossary, mode).translate_all(documents)  # type: ignore[arg-type]
    return Counter(use.status for each in made for sentence in each for use in sentence.terms)


def read_documents(path: str) -> list[list[str]]:
    """Return the documents of a file."""
    return [block.split("\n") for block in Path(path).read_text(encoding="utf-8").strip("\n").split("\n\n")]


def count_repeated(targets: Sequence[str]) -> float:
    """Return the share of words that follow themselves."""
    words = [re.findall(r"\w+", target.lower()) for target in targets]
    return sum(a == b for row in words for a, b in pairwise(row)) / max(1, sum(map(len, words)))


def main(model: str, train: tuple[str, str], test: tuple[str, str], count: int, mode: str) -> None:
    """Print the table."""
    translator = docmt.Translator(model)
    terms = draw_terms(*train, translator.languages)
    print(
        f"{len(terms)} terms: {', '.join(f'{name} {one}/{other}' for name, (one, other) in list(terms.items())[:12])}"
    )
    sources, references = (read_documents(path)[:count] for path in test)
    documents = [docmt.Document.from_sentences(each) for each in sources]
    glossaries = [
        Glossary.from_pairs(
            {name: both[(number + turn) % 2] for number, (name, both) in enumerate(terms.items())}, translator.languages
        )
        for turn in (0, 1)
    ]
    started = time.process_time()
    halves = [iter(translator.translate_all(documents[turn::2])) for turn in (0, 1)]  # the batches of the glossaries
    plain = [next(halves[number % 2]) for number in range(len(documents))]
    seconds = [time.process_time() - started]
    made: list[Translation] = []
    others = [translator.with_terms(glossary, mode) for glossary in glossaries]  # type: ignore[arg-type]
    for other in others:
        other.translate(documents[:1])  # tables of words are read
    started = time.process_time()
    results = [iter(other.translate_all(documents[turn::2])) for turn, other in enumerate(others)]
    made = [next(results[number % 2]) for number in range(len(documents))]
    seconds.append(time.process_time() - started)
    matchers = [TermMatcher(glossary) for glossary in glossaries]
    counts, losses, agreed, changed, other_changes = Counter[str](), list[float](), [], [], 0
    for number, (document, one, other, reference) in enumerate(zip(documents, plain, made, references, strict=True)):
        for n, source in enumerate(document.sentences):
            found = matchers[number % 2].find(source)
            targets = [one.sentences[n].target, other.sentences[n].target, reference[n]]
            met = [sum(map(bool, matchers[number % 2].match(found, target))) for target in targets]
            counts.update(asked=len(found), plain=met[0], terms=met[1], reference=met[2], sentences=bool(found))
            counts.update(use.status for use in other.sentences[n].terms)
            losses += [use.loss for use in other.sentences[n].terms if use.status == "second_search"]
            if targets[0] != targets[1]:
                changed.append((source, *targets))
                other_changes += not found
                if met[2] == len(found):
                    agreed.append(targets)
    flat = [[s.target for each in side for s in each] for side in (plain, made)]
    reference = [sentence for each in references for sentence in each]
    scores = [_CHRF.corpus_score(side, [reference]).score for side in flat]
    print(f"{sum(map(len, documents))} sentences, {dict(counts)}")
    for name, value in (
        (
            "success without, with, of the reference",
            [counts[each] / counts["asked"] for each in ("plain", "terms", "reference")],
        ),
        ("chrF++ without, with", scores),
        ("sentences changed", [len(changed)]),
        ("of them without a term (only in documents where another changed)", [other_changes]),
        ("sentences changed whose reference has the terms", [len(agreed)]),
        (
            "their chrF++ without, with",
            [_CHRF.corpus_score([row[k] for row in agreed], [[row[2] for row in agreed]]).score for k in (0, 1)]
            if agreed
            else [],
        ),
        ("loss in nats, quantiles 10 to 90 %", list(np.quantile(losses or [0.0], [0.1, 0.25, 0.5, 0.75, 0.9]))),
        ("repeated words without, with (%)", [100 * count_repeated(side) for side in flat]),
        ("seconds of processor time without, with", seconds),
    ):
        print(f"{name}: {', '.join(f'{each:.3f}' for each in value)}")
    print(f"words of other nouns: {control(translator, terms, documents, mode)}")
    for row in changed[:40]:
        print("", *row, sep="\n  ")


if __name__ == "__main__":
    if len(sys.argv) < 6:
        sys.exit(__doc__)
    main(
        sys.argv[1],
        (sys.argv[2], sys.argv[3]),
        (sys.argv[4], sys.argv[5]),
        int((*sys.argv[6:], 1_000_000)[0]),
        (*sys.argv[7:], "prefer")[0],
    )
