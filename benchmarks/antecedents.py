"""Distance of the nearest possible antecedent in a test set of French pronouns, from the genders of nouns in a corpus.

python -m benchmarks.antecedents CORPUS.fr SUITE.jsonl OUTPUT.jsonl [--before N]

The gender of a noun is that of the determiners before it in the corpus (five or more, nine of ten alike). Each item
gets `ctx_dist`, the sentences back to the nearest one whose translation has a determiner and a noun of the gender and
number of the right pronoun. --before: at most so many sentences of context remain.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from docmt.core.plain_text import read_lines, write_text

PRONOUNS = {"il": "m", "elle": "f", "ils": "m", "elles": "f"}
_GENDERS = {
    **dict.fromkeys(["le", "un", "ce", "cet", "du", "au", "aucun", "mon"], "m"),
    **dict.fromkeys(["la", "une", "cette", "aucune", "ma", "sa"], "f"),
}
_PLURAL = "les|des|ces|aux|nos|vos|leurs|mes|ses|deux|trois|plusieurs|certains|certaines"
_NOUN = r"([^\W\d_]{3,})"
_GENDERED = re.compile(rf"\b({'|'.join(_GENDERS)}) {_NOUN}", re.IGNORECASE)
_SINGULAR = re.compile(rf"(?:\b(?:{'|'.join(_GENDERS)}|son|notre|votre|leur|chaque) |\bl['’]){_NOUN}", re.IGNORECASE)
_PLURALS = re.compile(rf"\b(?:{_PLURAL}) {_NOUN}", re.IGNORECASE)
_LEAST_COUNT, _LEAST_SHARE = 5, 0.9


def count_genders(lines: Iterable[str]) -> dict[str, str]:
    """Return the gender of each noun, m or f, by the determiners before it."""
    counts = Counter((word.lower(), _GENDERS[d.lower()]) for line in lines for d, word in _GENDERED.findall(line))
    genders = {}
    for (word, gender), count in counts.items():
        if count >= _LEAST_COUNT and count >= _LEAST_SHARE * (count + counts[word, "fm"[gender == "f"]]):
            genders[word] = gender
    return genders


def find_distance(context: list[str], pronoun: str, genders: Mapping[str, str]) -> int | None:
    """Return the sentences back to the nearest possible antecedent; None: there is none."""
    is_plural = pronoun.endswith("s")
    for distance, sentence in enumerate(reversed(context), 1):
        nouns = [word.lower() for word in (_PLURALS if is_plural else _SINGULAR).findall(sentence)]
        forms = [[word, word[:-1], re.sub("aux$", "al", word)] if is_plural else [word] for word in nouns]
        if any(genders.get(form) == PRONOUNS[pronoun] for words in forms for form in words):
            return distance
    return None


def main() -> None:
    """Write the test set with distances, and print how many items have which."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.antecedents", description=__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("suite", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--before", type=int, default=1000)
    options = parser.parse_args()
    genders = count_genders(line for _, line in read_lines(options.corpus))
    records = [json.loads(line) for _, line in read_lines(options.suite)]
    for record in records:
        for side in ("src_context", "tgt_context"):
            record[side] = record[side][max(len(record[side]) - options.before, 0) :]
        record["ctx_dist"] = find_distance(record["tgt_context"], record["phenomenon"], genders)
    write_text(options.output, "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records))
    counts = Counter(record["ctx_dist"] or 0 for record in records)
    print(f"{len(genders):,} nouns; items by distance (0: none found):", dict(sorted(counts.items())))


if __name__ == "__main__":
    main()
