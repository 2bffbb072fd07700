"""Write the development set of the terminology task of WMT 2021 as files that docmt reads.

python -m benchmarks.wmt21_terms DATA DIRECTORY [STEP]

DATA has dev.en-fr.en.sgm and dev.en-fr.fr.sgm (github.com/mahfuzibnalam/terminology_evaluation, folder data). Written
are test.en, test.fr (each STEP-th sentence with a term, an empty line between documents) and terms.tsv.
"""

from __future__ import annotations

import html
import re
import sys
from pathlib import Path

from sacremoses import MosesDetokenizer


def read_segments(path: Path) -> list[list[str]]:
    """Return the segments of each document, with their markup."""
    documents = re.findall(r"<doc .*?</doc>", path.read_text(encoding="utf-8"), re.DOTALL)
    return [re.findall(r"<seg [^>]*>(.*?)</seg>", document, re.DOTALL) for document in documents]


def main(data: Path, directory: Path, step: int) -> None:
    """Write the files."""
    sides = [read_segments(data / f"dev.en-fr.{language}.sgm") for language in ("en", "fr")]
    terms: dict[str, dict[str, None]] = {}
    text = "".join(segment for document in sides[0] for segment in document)
    for source, targets in re.findall(r'src="([^"]*)" tgt="([^"]*)"', text):
        alternatives = map(str.strip, html.unescape(targets).split("|"))
        terms.setdefault(html.unescape(source).strip(), {}).update(dict.fromkeys(alternatives))
    chosen = [[n for n, text in enumerate(document) if "<term" in text][::step] for document in sides[0]]
    for side, language in zip(sides, ("en", "fr"), strict=True):
        join = MosesDetokenizer(language).detokenize
        texts = [
            "\n".join(join(html.unescape(re.sub("<[^>]*>", " ", document[n])).split()) for n in numbers)
            for document, numbers in zip(side, chosen, strict=True)
        ]
        (directory / f"test.{language}").write_text("\n\n".join(filter(None, texts)) + "\n", encoding="utf-8")
    rows = [f"{source}\t{' | '.join(targets)}" for source, targets in terms.items()]
    (directory / "terms.tsv").write_text("\n".join(["source\ttarget", *rows]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]), int((*sys.argv[3:], 1)[0]))
