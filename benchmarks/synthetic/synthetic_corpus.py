"""Write the synthetic language as a corpus: training, development and test texts, and contrastive test sets.

The contrastive test set follows Müller et al. (2018), "A Large-Scale Test Set for the Evaluation of Context-Aware
Pronoun Translation in Neural Machine Translation": the right pronoun against its alternatives.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from benchmarks.synthetic.grammar import NOUNS, SyntheticDocument, stream_documents
from docmt.core.errors import DocmtError
from docmt.core.files import atomic_directory, write_text
from docmt.documents.corpus_files import ParallelDocument, write_parallel

CONTRASTIVE_FILE = "test.contrastive.jsonl"
CORPUS_FILES = frozenset(f"{split}.{language}" for split in ("train", "dev", "test") for language in ("en", "de")) | {
    CONTRASTIVE_FILE
}


def make_pronoun_items(documents: Iterable[SyntheticDocument]) -> list[dict[str, Any]]:
    """Return a contrastive item for each pronoun, as a line of the test set has it; see `make_item`."""
    items = []
    for item in documents:
        for index, pronoun in enumerate(item.pronouns):
            sentence = item.document.target[pronoun.sentence]
            variants = [sentence[: pronoun.start] + form + sentence[pronoun.end :] for form in pronoun.candidates]
            id = f"{item.document.id}-{index}"
            items.append(make_item(id, item.document, pronoun.sentence, variants, pronoun.correct, pronoun.distance))
    return items


def make_item(
    id: str, document: ParallelDocument, sentence: int, variants: Sequence[str], correct: int, distance: int
) -> dict[str, Any]:
    """Return a contrastive item with these variants of the marked sentence, in an order that depends on the id only.

    candidates: whole target documents, which differ in one sentence. correct: index of the right one. sentence: index
    of the differing sentence. distance: sentences back to the deciding one (for a pronoun: its antecedent).
    """
    order = list(range(len(variants)))
    random.Random(id).shuffle(order)
    preceding, following = document.target[:sentence], document.target[sentence + 1 :]
    return {
        "id": id,
        "source": document.source,
        "candidates": [(*preceding, variants[index], *following) for index in order],
        "correct": order.index(correct),
        "sentence": sentence,
        "distance": distance,
    }


def write_corpus(directory: Path, *, train: int, dev: int, test: int, seed: int) -> None:
    """Write a corpus with these numbers of documents. No document is in two splits.

    train/dev/test `.en` and `.de` have one sentence a line and an empty line between documents. test.contrastive.jsonl
    has an item a line (see `make_pronoun_items`). Development and test documents use only nouns of the training
    documents. An existing corpus is replaced. Raises DocmtError for an empty split, a directory that cannot be written,
    and one with other files.
    """
    check_directory(directory)
    if min(train, dev, test) < 1:
        raise DocmtError(
            f"a synthetic corpus needs at least one document a split, not train={train}, dev={dev}, test={test}. "
            "Raise the numbers."
        )
    splits: dict[str, list[SyntheticDocument]] = {}
    used_sources: set[tuple[str, ...]] = set()
    nouns = NOUNS
    for name, count in (("train", train), ("dev", dev), ("test", test)):
        # One generator a split, so that the number of training documents does not change the others.
        stream = stream_documents(random.Random(f"{seed} {name}"), nouns, name, used_sources)
        splits[name] = list(islice(stream, count))
        if name == "train":
            known_nouns = {pronoun.antecedent for item in splits[name] for pronoun in item.pronouns}
            nouns = tuple(noun for noun in NOUNS if noun.german in known_nouns)
    contrastive = make_pronoun_items(splits["test"])
    documents = {name: [item.document for item in items] for name, items in splits.items()}
    write_splits(directory, documents, {CONTRASTIVE_FILE: contrastive})


def write_splits(
    directory: Path, splits: Mapping[str, Iterable[ParallelDocument]], tests: Mapping[str, Sequence[Mapping[str, Any]]]
) -> None:
    """Write the texts of the splits, and the test sets by file name."""
    with atomic_directory(directory) as temporary:
        for name, documents in splits.items():
            write_parallel(documents, temporary / f"{name}.en", temporary / f"{name}.de")
        for file, records in tests.items():
            lines = (json.dumps(record, ensure_ascii=False) + "\n" for record in records)
            write_text(temporary / file, "".join(lines))


def check_directory(directory: Path) -> None:
    """Raise DocmtError for a directory with files other than a synthetic corpus."""
    if directory.is_dir():
        other_files = sorted({path.name for path in directory.iterdir()} - CORPUS_FILES)
        if other_files or directory.resolve() == Path.cwd():
            reason = f"it contains {other_files[0]}" if other_files else "it is the current directory"
            raise DocmtError(f"{directory} is not a synthetic corpus to replace ({reason}). Name a new directory.")
