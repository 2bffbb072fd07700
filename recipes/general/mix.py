"""Mix everyday text with Europarl: python recipes/general/mix.py GENERAL EUROPARL OUT --europarl 300000

GENERAL has train.en.gz, train.fr.gz and train.docs.tsv, in which an id begins with its source: tatoeba/17.
Documents stay whole, and come in a random order. Legal text is thinned out, everyday sentences come twice. Sources
whose licence does not allow every use are left out. Of thirty documents one is written in capitals, one loses its final
full stops, and three begin their sentences with small letters: a verb such as "Mix" looks like a name otherwise. Half of the
documents write "€20" for "EUR 20".
"""

from __future__ import annotations

import argparse
import gzip
import random
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

LEFT_OUT = {"multi30k", "wmtnews", "stories", "freedict", "pixeldungeon", "tails", "yunohost"}
"""for research, not for sale, or under a licence that those who change a text must keep"""
SHARE = {"laws": 0.4, "tatoeba": 2.0}
"""how often a document comes"""
STRAIGHT = str.maketrans("’‘“”\u00a0\u202f", "''\"\"  ")
SPACED = re.compile(r"(?<=[^\W\d])([;:?!])(?=\s|$)")

Pairs = list[tuple[str, str]]


def read_documents(directory: Path) -> Iterator[Pairs]:
    """Yield the documents of train.en.gz and train.fr.gz. An empty line ends a document."""
    document: Pairs = []
    with (
        gzip.open(directory / "train.en.gz", "rt", encoding="utf-8") as sources,
        gzip.open(directory / "train.fr.gz", "rt", encoding="utf-8") as targets,
    ):
        for source, target in zip(sources, targets, strict=True):
            if source.strip():
                source, target = (text.strip().translate(STRAIGHT) for text in (source, target))
                document.append((source, SPACED.sub(r" \1", target)))
            elif document:
                yield document
                document = []
    if document:
        yield document


def change(document: Pairs, chance: random.Random) -> Pairs:
    """Write some documents in capitals, some without final full stops, some with small letters first or with €."""
    if chance.random() < 0.5:
        document = [(re.sub(r"\bEUR (?=\d)", "€", source), target) for source, target in document]
    match chance.randrange(30):
        case 0:
            return [(source.upper(), target.upper()) for source, target in document]
        case 1:
            return [
                (source[:-1], target[:-1]) if source.endswith(".") and target.endswith(".") else (source, target)
                for source, target in document
            ]
        case 2 | 3 | 4:
            return [(lower_first(source), lower_first(target)) for source, target in document]
    return document


def lower_first(text: str) -> str:
    """Begin a text with a small letter, unless it begins with a word of one letter or of capitals."""
    return text[:1].lower() + text[1:] if text[1:2].islower() else text


def main() -> None:
    """Write the mix as two text files."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("general", type=Path)
    parser.add_argument("europarl", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--europarl", dest="pairs", type=int, default=300_000, help="sentence pairs of Europarl")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    chance, counts = random.Random(arguments.seed), Counter[str]()
    rows = (arguments.general / "train.docs.tsv").read_text(encoding="utf-8").splitlines()
    mixed: list[Pairs] = []
    for row, document in zip(rows, read_documents(arguments.general), strict=True):
        name = row.split("\t")[1].split("/")[0]
        if name in LEFT_OUT:
            continue
        for _ in range(int(SHARE.get(name, 1.0) + chance.random())):
            mixed.append(change(document, chance))
            counts[name] += len(document)
    debates = list(read_documents(arguments.europarl))
    chance.shuffle(debates)
    for document in debates:
        if counts["europarl"] >= arguments.pairs:
            break
        mixed.append(change(document, chance))
        counts["europarl"] += len(document)
    chance.shuffle(mixed)
    arguments.out.mkdir(parents=True, exist_ok=True)
    for side, suffix in enumerate(("en", "fr")):
        text = "\n\n".join("\n".join(pair[side] for pair in document) for document in mixed)
        (arguments.out / f"train.{suffix}").write_text(text + "\n", encoding="utf-8")
    for name, count in counts.most_common():
        print(f"{name}\t{count:,}")


if __name__ == "__main__":
    main()
