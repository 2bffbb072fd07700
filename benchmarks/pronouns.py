"""English-French data for pronouns: training documents that need context, and distances for a test set.

python -m benchmarks.pronouns documents SOURCE TARGET SOURCE_OUTPUT TARGET_OUTPUT [--before N] [--whole N]
python -m benchmarks.pronouns split SOURCE TARGET SOURCE_OUTPUT TARGET_OUTPUT
python -m benchmarks.pronouns hide SOURCE TARGET SOURCE_OUTPUT TARGET_OUTPUT
python -m benchmarks.pronouns distances CORPUS.fr SUITE.jsonl OUTPUT.jsonl [--before N]

documents: short documents that end in a sentence with "it" or "they", and in French il or elle, ils or elles. Sentences
with both genders are left out, and so is il with a verb that is mostly impersonal. There are as many il as elle, and as
many ils as elles, both where they begin the sentence and elsewhere: frequencies help nobody. In many of them, not in
all, an earlier sentence decides.

split: sentences of 8 words or more become two, the target in proportion, so that each half needs the other (Lupo et al.
2022, divide and rule).

hide: in the last sentence of each document, a tenth of the source words becomes the sign ¤, and half of the words of
five letters or more that also stand in a sentence before (CoWord dropout, Fernandes et al. 2021, there of any word).

distances: each item gets its `document` (the id before the hyphen) and `ctx_dist`, the sentences back to the nearest
one whose translation has a determiner and a noun of the gender and number of the right pronoun. The gender of a noun is
that of the determiners before it in the corpus (five or more, nine of ten alike).

--before: at most so many sentences of context remain. --whole: so many whole documents of the corpus stand among the
others, whose contexts then have 1 to --before sentences, at random.
"""

from __future__ import annotations

import argparse
import json
import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from docmt.core.plain_text import read_lines, write_text
from docmt.documents import ParallelDocument, read_parallel
from docmt.documents.corpus_files import write_parallel

GENDERS = {"il": "m", "elle": "f", "ils": "m", "elles": "f"}
"""Gender of each pronoun."""
_ENGLISH = re.compile(r"\b(?:it|they)\b", re.IGNORECASE)
_PRONOUN = re.compile(r"\b(?:ils?|elles?)\b", re.IGNORECASE)
_IMPERSONAL = re.compile(
    r"\bil (?:ne |n['’]|l['’]|s['’]|y |m['’]|me |nous |vous |leur |lui |en |se )*"
    r"(?:est|était|sera|serait|soit|fut|faut|faudra|faudrait|fallait|agit|agissait|agira|agirait|convient|conviendrait|"
    r"semble|semblerait|paraît|apparaît|existe|existait|a|avait|aura|aurait|ait|importe|suffit|reste|va|vaut|incombe|"
    r"appartient|avère|revient|doit|peut|pourrait|devrait)\b",
    re.IGNORECASE,
)
_DETERMINERS = {
    **dict.fromkeys(["le", "un", "ce", "cet", "du", "au", "aucun", "mon"], "m"),
    **dict.fromkeys(["la", "une", "cette", "aucune", "ma", "sa"], "f"),
}
_NOUN = r"([^\W\d_]{3,})"
_GENDERED = re.compile(rf"\b({'|'.join(_DETERMINERS)}) {_NOUN}", re.IGNORECASE)
_SINGULAR = re.compile(
    rf"(?:\b(?:{'|'.join(_DETERMINERS)}|son|notre|votre|leur|chaque) |\bl['’]){_NOUN}", re.IGNORECASE
)
_PLURAL = re.compile(
    rf"\b(?:les|des|ces|aux|nos|vos|leurs|mes|ses|deux|trois|plusieurs|certains|certaines) {_NOUN}", re.IGNORECASE
)
_LEAST_COUNT, _LEAST_SHARE = 5, 0.9
_SPLIT_WORDS, _CONTENT_LETTERS, _HIDDEN_SHARE, _REPEATED_SHARE = 8, 5, 0.1, 0.5
HIDDEN = "¤"


def find_pronoun(source: str, target: str) -> tuple[str, bool] | None:
    """Return the pronoun of a sentence pair, and whether it begins both sentences; None: the pair does not qualify."""
    found = list(_PRONOUN.finditer(target))
    words = [match[0].lower() for match in found]
    if not found or not _ENGLISH.search(source) or len({GENDERS[word] for word in words}) > 1:
        return None
    if words[0] == "il" and _IMPERSONAL.search(target):
        return None
    return words[0], found[0].start() == 0 and source.lower().startswith(("it ", "they "))


def select_documents(
    corpus: Iterable[ParallelDocument], before: int, whole: int = 0, seed: int = 1
) -> Iterator[ParallelDocument]:
    """Yield equally many documents of both genders, in random order; see the head of this file."""
    rng, corpus = random.Random(seed), list(corpus)
    cases = defaultdict[tuple[str, bool], list[ParallelDocument]](list)
    for document in corpus:
        for number, pair in enumerate(document):
            if number and (kind := find_pronoun(*pair)):
                count = rng.randint(1, before) if whole else before
                part = slice(max(number - count, 0), number + 1)
                id = f"{document.id}-{number + 1}"
                cases[kind].append(ParallelDocument(id, document.source[part], document.target[part]))
    chosen = rng.sample(corpus, min(whole, len(corpus)))
    for is_first in (True, False):
        for pair in (("il", "elle"), ("ils", "elles")):
            count = min(len(cases[word, is_first]) for word in pair)
            chosen += [each for word in pair for each in rng.sample(cases[word, is_first], count)]
    sizes = {word: sum(len(cases[word, is_first]) for is_first in (True, False)) for word in GENDERS}
    print(f"{len(chosen):,} documents; sentences with a pronoun:", sizes)
    rng.shuffle(chosen)
    yield from chosen


def split_sentences(document: ParallelDocument) -> ParallelDocument:
    """Return the document with long sentence pairs split in two; see the head of this file."""
    sides: tuple[list[str], list[str]] = ([], [])
    for pair in document:
        words = [sentence.split() for sentence in pair]
        is_split = len(words[0]) >= _SPLIT_WORDS and len(words[1]) > 1
        for side, parts in zip(sides, words, strict=True):
            middle = len(parts) // 2
            side += [" ".join(half) for half in ((parts[:middle], parts[middle:]) if is_split else (parts,))]
    return ParallelDocument(document.id, *sides)


def hide_words(document: ParallelDocument, rng: random.Random) -> ParallelDocument:
    """Return the document with hidden source words in its last sentence; see the head of this file."""
    *context, last = document.source
    known = {word for sentence in context for word in sentence.lower().split() if len(word) >= _CONTENT_LETTERS}
    words = [
        HIDDEN if rng.random() < (_REPEATED_SHARE if word.lower() in known else _HIDDEN_SHARE) else word
        for word in last.split()
    ]
    return ParallelDocument(document.id, [*context, " ".join(words)], document.target)


def count_genders(lines: Iterable[str]) -> dict[str, str]:
    """Return the gender of each noun, m or f, by the determiners before it."""
    counts = Counter(
        (noun.lower(), _DETERMINERS[word.lower()]) for line in lines for word, noun in _GENDERED.findall(line)
    )
    genders = {}
    for (noun, gender), count in counts.items():
        total = count + counts[noun, "f" if gender == "m" else "m"]
        if count >= max(_LEAST_COUNT, _LEAST_SHARE * total):
            genders[noun] = gender
    return genders


def find_distance(context: Iterable[str], pronoun: str, genders: Mapping[str, str]) -> int | None:
    """Return the sentences back to the nearest possible antecedent; None: there is none."""
    is_plural = pronoun.endswith("s")
    for distance, sentence in enumerate(reversed(list(context)), 1):
        for word in (_PLURAL if is_plural else _SINGULAR).findall(sentence):
            noun = word.lower()
            forms = (noun, noun[:-1], re.sub("aux$", "al", noun)) if is_plural else (noun,)
            if any(genders.get(form) == GENDERS[pronoun] for form in forms):
                return distance
    return None


def add_distances(corpus: Path, suite: Path, output: Path, before: int) -> None:
    """Write a test set with distances, and print how many items have which."""
    genders = count_genders(line for _, line in read_lines(corpus))
    records = [json.loads(line) for _, line in read_lines(suite)]
    for record in records:
        for side in ("src_context", "tgt_context"):
            record[side] = record[side][max(len(record[side]) - before, 0) :]
        record["document"] = record["id"].rpartition("-")[0]
        record["ctx_dist"] = find_distance(record["tgt_context"], record["phenomenon"], genders)
    write_text(output, "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records))
    counts = Counter(str(record["ctx_dist"]) for record in records)
    print(f"{len(genders):,} nouns; items by distance:", dict(sorted(counts.items())))


def main() -> None:
    """Run the named task."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.pronouns", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("task", choices=["documents", "split", "hide", "distances"])
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--before", type=int, default=1000)
    parser.add_argument("--whole", type=int, default=0)
    options = parser.parse_args()
    if options.task == "distances":
        add_distances(*options.files, options.before)
        return
    source, target, *outputs = options.files
    if options.task == "split":
        write_parallel(map(split_sentences, read_parallel(source, target)), *outputs)
    elif options.task == "hide":
        rng = random.Random(1)
        write_parallel((hide_words(document, rng) for document in read_parallel(source, target)), *outputs)
    else:
        write_parallel(select_documents(read_parallel(source, target), options.before, options.whole), *outputs)


if __name__ == "__main__":
    main()
