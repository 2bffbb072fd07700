"""Write the synthetic language as a corpus: training, development and test texts, and contrastive test sets.

The contrastive test set follows Müller et al. (2018), "A Large-Scale Test Set for the Evaluation of Context-Aware
Pronoun Translation in Neural Machine Translation": the right pronoun against its alternatives.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from docmt.core.errors import DocmtError
from docmt.core.files import atomic_directory, write_text
from docmt.core.plain_text import read_lines
from docmt.documents.corpus_files import ParallelDocument, write_parallel
from docmt.synthetic.grammar import Pronoun, SyntheticDocument, stream_documents
from docmt.synthetic.lexicon import NOUNS, Case, Gender
from docmt.synthetic.phenomena import MarkedDocument, make_documents

CONTRASTIVE_FILE, PRONOUNS_FILE = "test.contrastive.jsonl", "test.pronouns.jsonl"
CORPUS_FILES = frozenset(f"{split}.{language}" for split in ("train", "dev", "test") for language in ("en", "de")) | {
    CONTRASTIVE_FILE,
    PRONOUNS_FILE,
}


@dataclass(frozen=True)
class ContrastiveItem:
    """A contrastive test item. `candidates` are whole target documents that differ in one sentence only.

    `correct` is the index of the right candidate, `sentence` the index of the differing sentence. `distance` counts
    sentences back to the deciding one (for a pronoun: its antecedent).
    """

    id: str
    source: tuple[str, ...]
    candidates: tuple[tuple[str, ...], ...]
    correct: int
    sentence: int
    distance: int


@dataclass(frozen=True)
class PhenomenonItem(ContrastiveItem):
    """A contrastive item of one of `PHENOMENA`."""

    phenomenon: str


def make_contrastive_items(documents: Iterable[SyntheticDocument]) -> list[ContrastiveItem]:
    """Return one item for each pronoun. The order of candidates depends on the document id only."""
    return [
        _make_contrastive_item(item.document, pronoun, f"{item.document.id}-{index}")
        for item in documents
        for index, pronoun in enumerate(item.pronouns)
    ]


def _make_contrastive_item(document: ParallelDocument, pronoun: Pronoun, id: str) -> ContrastiveItem:
    sentence = document.target[pronoun.sentence]
    variants = [sentence[: pronoun.start] + form + sentence[pronoun.end :] for form in pronoun.candidates]
    return _shuffle(id, document, pronoun.sentence, variants, pronoun.correct, pronoun.distance)


def make_phenomenon_items(documents: Iterable[MarkedDocument]) -> list[PhenomenonItem]:
    """Return one item for each document, with its id. The order of candidates depends on the id only."""
    return [
        PhenomenonItem(
            **vars(_shuffle(m.document.id, m.document, m.sentence, m.candidates, m.correct, m.distance)),
            phenomenon=m.phenomenon,
        )
        for m in documents
    ]


def _shuffle(
    id: str, document: ParallelDocument, sentence: int, variants: Sequence[str], correct: int, distance: int
) -> ContrastiveItem:
    """Return the item with these variants of one sentence, in an order that depends on the id only."""
    order = list(range(len(variants)))
    random.Random(id).shuffle(order)
    preceding, following = document.target[:sentence], document.target[sentence + 1 :]
    return ContrastiveItem(
        id=id,
        source=document.source,
        candidates=tuple((*preceding, variants[index], *following) for index in order),
        correct=order.index(correct),
        sentence=sentence,
        distance=distance,
    )


def write_corpus(directory: Path, *, train: int, dev: int, test: int, seed: int) -> None:
    """Write a corpus with these numbers of documents. No document is in two splits.

    train/dev/test `.en` and `.de` have one sentence a line and an empty line between documents. test.contrastive.jsonl
    has one `ContrastiveItem` a line. test.pronouns.jsonl has one test document a line with its pronouns (see
    `read_pronouns`). Development and test documents use only nouns of the training documents. An existing corpus is
    replaced. Raises DocmtError for an empty split, a directory that cannot be written, and one with other files.
    """
    _check_directory(directory)
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
    contrastive = [asdict(item) for item in make_contrastive_items(splits["test"])]
    marked = [{**asdict(item.document), "pronouns": list(map(asdict, item.pronouns))} for item in splits["test"]]
    _write_files(directory, splits, {CONTRASTIVE_FILE: contrastive, PRONOUNS_FILE: marked})


def write_phenomena(directory: Path, *, train: int, dev: int, test: int, seed: int) -> None:
    """Write a corpus of all `PHENOMENA`, with equal numbers of documents for each phenomenon and distance.

    train/dev/test `.en` and `.de` have one sentence a line and an empty line between documents, in random order.
    test.contrastive.jsonl has one `PhenomenonItem` a line, in the order of the test documents. No source document is
    in two splits. Within a split it may recur with another translation where only the target decides. With a multiple
    of 288 test documents, a model that does not see the deciding sentence scores exactly at chance. An existing corpus
    is replaced. Raises DocmtError for a split with too few documents for every phenomenon and distance, a directory
    that cannot be written, and one with other files.
    """
    _check_directory(directory)
    used_sources: set[tuple[str, ...]] = set()
    splits = {
        name: make_documents(count, name, f"{seed} {name}", used_sources)
        for name, count in (("train", train), ("dev", dev), ("test", test))
    }
    _write_files(directory, splits, {CONTRASTIVE_FILE: list(map(asdict, make_phenomenon_items(splits["test"])))})


def _write_files(
    directory: Path,
    splits: Mapping[str, Sequence[SyntheticDocument | MarkedDocument]],
    tests: Mapping[str, list[dict[str, object]]],
) -> None:
    """Write the texts of the splits, and the test sets by file name."""
    with atomic_directory(directory) as temporary:
        for name, items in splits.items():
            pairs = (item.document for item in items)
            write_parallel(pairs, temporary / f"{name}.en", temporary / f"{name}.de")
        for file, records in tests.items():
            lines = (json.dumps(record, ensure_ascii=False) + "\n" for record in records)
            write_text(temporary / file, "".join(lines))


def _check_directory(directory: Path) -> None:
    """Raise DocmtError for a directory with files other than a synthetic corpus."""
    if directory.is_dir():
        other_files = sorted({path.name for path in directory.iterdir()} - CORPUS_FILES)
        if other_files or directory.resolve() == Path.cwd():
            reason = f"it contains {other_files[0]}" if other_files else "it is the current directory"
            raise DocmtError(f"{directory} is not a synthetic corpus to replace ({reason}). Name a new directory.")


def read_pronouns(path: Path) -> list[SyntheticDocument]:
    """Read the documents and pronouns of a test.pronouns.jsonl. Raises DocmtError, naming the line, for damage."""
    documents = []
    for number, line in read_lines(path):
        try:
            documents.append(_parse_document(json.loads(line)))
        except (ValueError, TypeError, KeyError) as error:
            raise DocmtError(
                f"{path}, line {number} is not a document with pronouns ({error}). Write the corpus again."
            ) from error
    return documents


def _parse_document(record: Any) -> SyntheticDocument:
    document = ParallelDocument(record["id"], tuple(record["source"]), tuple(record["target"]))
    pronouns = (
        fields
        | {"candidates": tuple(fields["candidates"]), "gender": Gender(fields["gender"]), "case": Case(fields["case"])}
        for fields in record["pronouns"]
    )
    return SyntheticDocument(document, tuple(Pronoun(**fields) for fields in pronouns))


@dataclass(frozen=True)
class PronounScore:
    """Counts of right pronouns. `by_distance` has (correct, total) for each antecedent distance."""

    correct: int
    total: int
    by_distance: dict[int, tuple[int, int]]

    @property
    def accuracy(self) -> float:
        """Share of right pronouns, 0 to 1; 0 without pronouns."""
        return self.correct / self.total if self.total else 0.0


def score_pronouns(documents: Sequence[SyntheticDocument], hypotheses: Sequence[Sequence[str]]) -> PronounScore:
    """Score translated documents: hypothesis d has one target sentence for each source sentence of document d.

    A pronoun is right if its sentence has its form as a whole word, in any letter case, and no other form of its case.
    The grammar puts no second er, sie, es, ihn, ihm or ihr into the sentence, so no other word can be mistaken for it.
    """
    by_distance: dict[int, tuple[int, int]] = {}
    for item, hypothesis in zip(documents, hypotheses, strict=True):
        for pronoun in item.pronouns:
            correct, total = by_distance.get(pronoun.distance, (0, 0))
            correct += _is_right(pronoun, hypothesis[pronoun.sentence])
            by_distance[pronoun.distance] = (correct, total + 1)
    counts = by_distance.values()
    return PronounScore(sum(right for right, _ in counts), sum(total for _, total in counts), by_distance)


def _is_right(pronoun: Pronoun, sentence: str) -> bool:
    words = set(re.findall(r"\w+", sentence.casefold()))
    present = [index for index, candidate in enumerate(pronoun.candidates) if candidate.casefold() in words]
    return present == [pronoun.correct]
