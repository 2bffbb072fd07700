"""Writes the synthetic language as a corpus: training, development and test texts, and contrastive test sets.

The contrastive test set follows the idea of Müller et al. 2018, "A Large-Scale Test Set for the Evaluation of
Context-Aware Pronoun Translation in Neural Machine Translation": the right pronoun against its alternatives.
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
from docmt.core.plain_text import decoded_lines
from docmt.documents.corpus_files import ParallelDocument, write_parallel
from docmt.synthetic.grammar import Pronoun, SyntheticDocument, write_documents
from docmt.synthetic.lexicon import NOUNS, Case, Gender
from docmt.synthetic.phenomena import MarkedDocument, write_marked

CONTRASTIVE_FILE, PRONOUNS_FILE = "test.contrastive.jsonl", "test.pronouns.jsonl"
CORPUS_FILES = frozenset(f"{split}.{language}" for split in ("train", "dev", "test") for language in ("en", "de")) | {
    CONTRASTIVE_FILE,
    PRONOUNS_FILE,
}


@dataclass(frozen=True)
class ContrastiveItem:
    """One choice as a test: `candidates` are whole target documents that differ in one sentence alone.

    `correct` is the index of the right one; `sentence` that of the sentence that differs; `distance` counts sentences
    back to the one it depends on (of a pronoun: its antecedent).
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


def contrastive_items(documents: Iterable[SyntheticDocument]) -> list[ContrastiveItem]:
    """Makes one item a pronoun; the candidates are shuffled, always in the same way for the same document id."""
    return [
        _contrastive_item(item.document, pronoun, f"{item.document.id}-{index}")
        for item in documents
        for index, pronoun in enumerate(item.pronouns)
    ]


def _contrastive_item(document: ParallelDocument, pronoun: Pronoun, id: str) -> ContrastiveItem:
    sentence = document.target[pronoun.sentence]
    variants = [sentence[: pronoun.start] + form + sentence[pronoun.end :] for form in pronoun.candidates]
    return _shuffled(id, document, pronoun.sentence, variants, pronoun.correct, pronoun.distance)


def phenomenon_items(documents: Iterable[MarkedDocument]) -> list[PhenomenonItem]:
    """Makes one item a document, with its id; the candidates are shuffled, in the same way for the same id."""
    return [
        PhenomenonItem(
            **vars(_shuffled(m.document.id, m.document, m.sentence, m.candidates, m.correct, m.distance)),
            phenomenon=m.phenomenon,
        )
        for m in documents
    ]


def _shuffled(
    id: str, document: ParallelDocument, sentence: int, variants: Sequence[str], correct: int, distance: int
) -> ContrastiveItem:
    """The item with these variants of one sentence, in an order that depends on the id alone."""
    order = list(range(len(variants)))
    random.Random(id).shuffle(order)
    before, after = document.target[:sentence], document.target[sentence + 1 :]
    return ContrastiveItem(
        id=id,
        source=document.source,
        candidates=tuple((*before, variants[index], *after) for index in order),
        correct=order.index(correct),
        sentence=sentence,
        distance=distance,
    )


def write_corpus(directory: Path, *, train: int, dev: int, test: int, seed: int) -> None:
    """Writes a corpus with that many documents a split; no document stands in two splits.

    train/dev/test `.en` and `.de` hold one sentence a line and an empty line between documents;
    test.contrastive.jsonl one `ContrastiveItem` a line; test.pronouns.jsonl one test document a line with its pronouns
    (see `read_pronouns`). Development and test documents use only nouns of the training documents. A corpus that stands
    there is replaced. Raises DocmtError if a split would be empty, if the directory cannot be written, or if it holds
    anything else.
    """
    _check_place(directory)
    if min(train, dev, test) < 1:
        raise DocmtError(
            f"a synthetic corpus needs at least one document a split, not train={train}, dev={dev}, test={test};"
            " raise the numbers"
        )
    splits: dict[str, list[SyntheticDocument]] = {}
    seen: set[tuple[str, ...]] = set()
    nouns = NOUNS
    for name, count in (("train", train), ("dev", dev), ("test", test)):
        # A generator for each split: more training documents leave the draw of the others as it was.
        stream = write_documents(random.Random(f"{seed} {name}"), nouns, name, seen)
        splits[name] = list(islice(stream, count))
        if name == "train":
            known = {pronoun.antecedent for item in splits[name] for pronoun in item.pronouns}
            nouns = tuple(noun for noun in NOUNS if noun.german in known)
    contrastive = [asdict(item) for item in contrastive_items(splits["test"])]
    marked = [{**asdict(item.document), "pronouns": list(map(asdict, item.pronouns))} for item in splits["test"]]
    _write(directory, splits, {CONTRASTIVE_FILE: contrastive, PRONOUNS_FILE: marked})


def write_phenomena(directory: Path, *, train: int, dev: int, test: int, seed: int) -> None:
    """Writes a corpus of all `PHENOMENA` with that many documents a split, for each phenomenon and distance alike many.

    train/dev/test `.en` and `.de` hold one sentence a line and an empty line between documents, in random order;
    test.contrastive.jsonl one `PhenomenonItem` a line, in the order of the test documents. No source document stands in
    two splits; within one it may come again with another translation, where only the target decides. With a multiple of
    288 test documents a model that does not see the deciding sentence gets exactly the share that chance gives.
    A corpus that stands there is replaced. Raises DocmtError if a split has too few documents for every phenomenon and
    distance, if the directory cannot be written, or if it holds anything else.
    """
    _check_place(directory)
    seen: set[tuple[str, ...]] = set()
    splits = {
        name: write_marked(count, name, f"{seed} {name}", seen)
        for name, count in (("train", train), ("dev", dev), ("test", test))
    }
    _write(directory, splits, {CONTRASTIVE_FILE: list(map(asdict, phenomenon_items(splits["test"])))})


def _write(
    directory: Path,
    splits: Mapping[str, Sequence[SyntheticDocument | MarkedDocument]],
    tests: Mapping[str, list[dict[str, object]]],
) -> None:
    """Writes the texts of the splits, and the test sets by their file names."""
    with atomic_directory(directory) as temporary:
        for name, items in splits.items():
            pairs = (item.document for item in items)
            write_parallel(pairs, temporary / f"{name}.en", temporary / f"{name}.de")
        for file, records in tests.items():
            lines = (json.dumps(record, ensure_ascii=False) + "\n" for record in records)
            write_text(temporary / file, "".join(lines))


def _check_place(directory: Path) -> None:
    """Raises DocmtError where something stands that is no synthetic corpus, and would be lost."""
    if directory.is_dir():
        others = sorted({path.name for path in directory.iterdir()} - CORPUS_FILES)
        if others or directory.resolve() == Path.cwd():
            what = f"{others[0]} stands in it" if others else "it is the current directory"
            raise DocmtError(f"{directory} is no synthetic corpus that can be replaced ({what}): name a new directory")


def read_pronouns(path: Path) -> list[SyntheticDocument]:
    """Read the documents and pronouns of a test.pronouns.jsonl. Raises DocmtError, naming the line, for damage."""
    documents = []
    for number, line in decoded_lines(path):
        try:
            documents.append(_document(json.loads(line)))
        except (ValueError, TypeError, KeyError) as error:
            raise DocmtError(
                f"{path}, line {number} is not a document with its pronouns ({error}): write the corpus anew"
            ) from error
    return documents


def _document(record: Any) -> SyntheticDocument:
    document = ParallelDocument(record["id"], tuple(record["source"]), tuple(record["target"]))
    pronouns = (
        fields
        | {"candidates": tuple(fields["candidates"]), "gender": Gender(fields["gender"]), "case": Case(fields["case"])}
        for fields in record["pronouns"]
    )
    return SyntheticDocument(document, tuple(Pronoun(**fields) for fields in pronouns))


@dataclass(frozen=True)
class PronounScore:
    """How many marked pronouns were right; `by_distance` holds (correct, total) for each antecedent distance."""

    correct: int
    total: int
    by_distance: dict[int, tuple[int, int]]

    @property
    def accuracy(self) -> float:
        """The share of right pronouns, 0 to 1; 0 where there were none."""
        return self.correct / self.total if self.total else 0.0


def pronoun_accuracy(documents: Sequence[SyntheticDocument], hypotheses: Sequence[Sequence[str]]) -> PronounScore:
    """Scores translated documents: hypothesis d holds one target sentence for each source sentence of document d.

    A pronoun is right if its form stands in its sentence as a whole word, in any letter case, and no other form of its
    case does. The grammar puts no second er, sie, es, ihn, ihm or ihr beside a marked pronoun, so no other word can
    be taken for it.
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
    found = [index for index, candidate in enumerate(pronoun.candidates) if candidate.casefold() in words]
    return found == [pronoun.correct]
