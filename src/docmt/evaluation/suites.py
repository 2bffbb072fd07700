"""Test suites for context: their items, the files in which they are published, and those that come with docmt.

Each published format is read into `Item`s by a short function. The entries of the first item tell which format a file
has. Read as they were found: docmt's own JSONL, and the JSONL with `src_context` in which several sets are handed
round. The layouts of ContraPro, of the consistency sets and of DiscEvalMT are those that their repositories document;
the files themselves have to be fetched from there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, islice
from pathlib import Path
from typing import Any

from docmt.core.errors import DocmtError
from docmt.core.plain_text import GZIP_SUFFIX, decoded_lines
from docmt.documents.input_formats import LONE_SURROGATE

Record = Mapping[str, object]
MOST = 1_000_000
"""Sentences that nothing decides over."""
JOINT = "_eos"
"""What stands between the sentences of an item of the consistency sets."""
Question = tuple[Sequence[str], Sequence[Sequence[str]], int, int]
"""The source, the candidates, which of them is right, and the sentence that is decided (both from 0)."""
SHIPPED = ("pronouns", "phenomena")
"""Names of the English-German test sets that come with docmt, in the synthetic language of `docmt demo`."""
_FOLDER = Path(__file__).with_name("test_sets")
_LANGUAGES = re.compile(r"[._]([a-z]{2})-([a-z]{2})(?=[._]|$)")


@dataclass(frozen=True)
class Item:
    """One question. Contrastive: which of these target documents is the translation of the source?

    Generative (without candidates): does the translation of a sentence have the `expected` form?
    """

    id: str
    phenomenon: str
    """what is asked for; empty if the file does not say"""
    distance: int | None
    """sentences back to the one that decides; None if the file does not say"""
    source: tuple[str, ...]
    candidates: tuple[tuple[str, ...], ...]
    """two or more, each with one sentence for each of the source"""
    correct: int
    """index of the right candidate"""
    sentence: int
    """index of the sentence that is decided: the one in which candidates differ, or that is looked at"""
    label: str = ""
    """what else the file tells items apart by: the right pronoun, its gender and number, or the rule"""
    expected: str = ""
    """of generative items the form that must be there"""

    @property
    def wrong(self) -> list[int]:
        """The candidates that are not the right one, nor a copy of it."""
        return [number for number, each in enumerate(self.candidates) if each != self.candidates[self.correct]]

    @property
    def chance(self) -> float:
        """How often guessing is right: equal candidates count as one. Of generative items nobody knows: 0."""
        return 1 / len(set(self.candidates)) if self.candidates else 0.0

    @property
    def has_context(self) -> bool:
        """Whether there is anything beside the sentence that is decided."""
        return any(text.strip() for number, text in enumerate(self.source) if number != self.sentence)


@dataclass(frozen=True)
class Suite:
    """A test set."""

    name: str
    items: tuple[Item, ...]
    languages: tuple[str, str] | None = None
    """codes of source and target; None where nothing says so"""

    @property
    def generative(self) -> bool:
        """Whether it asks for translations."""
        return not self.items[0].candidates

    def remarks(self) -> list[str]:
        """What somebody should know who reads its numbers, a sentence each."""
        alone = sum(not item.has_context for item in self.items)
        distinct = [len(set(item.candidates)) for item in self.items]
        equal = sum(1 < count < len(item.candidates) for count, item in zip(distinct, self.items, strict=True))
        found = (
            (alone, "have no context, so that nothing decides them"),
            (equal, "have candidates that are equal, which count as one"),
            (distinct.count(1), "have nothing but equal candidates, so that they are ties, which count as wrong"),
        )
        return [f"{count:,} of {len(self.items):,} items of {self.name} {what}" for count, what in found if count]

    def check_languages(self, model: str, languages: tuple[str, str]) -> None:
        """Raises DocmtError for a model that translates between other languages, as far as both are known."""
        for wanted, known in zip(self.languages or (), languages, strict=False):
            if known and re.split("[-_]", known.lower())[0] != wanted:
                raise DocmtError(
                    f"the test set {self.name} is {'-'.join(self.languages or ())}, but {model} translates "
                    f"{'-'.join(code or '?' for code in languages)}: name a model of its languages"
                )


def read_suite(given: Path | str) -> Suite:
    """The test set of that name or in that file. Raises DocmtError for a name that is unknown and a file that is none.

    The languages are those between dots in the name of the file: lcpt.en-fr.jsonl.
    """
    path = Path(given)
    if str(given) in SHIPPED and not path.is_file():
        return Suite(str(given), tuple(read_items(_FOLDER / f"{given}.en-de.jsonl.gz")), ("en", "de"))
    if not path.exists() and path.name == str(given) and not path.suffix:
        raise DocmtError(f"there is no test set {str(given)!r}: choose one of {', '.join(SHIPPED)}, or name a file")
    found = _LANGUAGES.search(path.name.removesuffix(GZIP_SUFFIX))
    return Suite(path.name, tuple(read_items(path)), (found[1], found[2]) if found else None)


def own(record: Record, where: str) -> Question:
    """docmt's: `source`, `candidates` (target documents), `correct`, `sentence`, `distance`."""
    source = sentences(record.get("source"), where, "source")
    variants = listed(record, "candidates", where, "two or more translations")
    found = [sentences(each, where, f"candidate {number}") for number, each in enumerate(variants, 1)]
    if len(set(found)) == 1 < len(found):
        raise DocmtError(f"{where}: all candidates are equal, so that none can be right: give different ones")
    sentence = index(record, "sentence", len(source), where)
    if len({len(each) for each in found}) == 1 < len({(*each[:sentence], *each[sentence + 1 :]) for each in found}):
        raise DocmtError(
            f"{where}: the `candidates` differ elsewhere than in sentence {sentence} (from 0): name the one in which "
            "they differ in `sentence`, and let the others be equal"
        )
    text(record, "id", where)
    return source, found, index(record, "correct", len(found), where), sentence


def with_context(record: Record, where: str) -> Question:
    """`src_context`, `src`, `tgt_context`, `candidates` (the last sentence), `correct_index`, `ctx_dist`.

    Where the candidates have different contexts, `candidate_contexts` has one for each. `type` is what DiscEvalMT says
    of the right pronoun (m.sg).
    """
    source = _after_context(record, where)
    variants = sentences(listed(record, "candidates", where, "two or more translations"), where, "`candidates`")
    contexts = record.get("candidate_contexts")
    if contexts is None:
        contexts = [record.get("tgt_context")] * len(variants)
    if not isinstance(contexts, list) or len(contexts) != len(variants):
        raise DocmtError(
            f"{where}: `candidate_contexts` is no list of one context for each candidate: give such a list"
        )
    before = [sentences(context, where, "the target context", empty=True) for context in contexts]
    found = [(*context, variant) for context, variant in zip(before, variants, strict=True)]
    return source, found, index(record, "correct_index", len(variants), where), len(source) - 1


def ctxpro(record: Record, where: str) -> Question:
    """ctxPro (Wicks and Post 2023): `src_context`, `src`, and the form that is `expected` in its translation."""
    source = _after_context(record, where)
    return source, [], 0, len(source) - 1


def _after_context(record: Record, where: str) -> tuple[str, ...]:
    context = sentences(record.get("src_context"), where, "src_context", empty=True)
    return (*context, text(record, "src", where, True))


def consistency(record: Record, where: str) -> Question:
    """The consistency sets (Voita et al. 2019), objects with `src`, `dst`, `true_ind` and `ctx_dist`.

    `src` and each variant of `dst` are four sentences with ` _eos ` between them, or lists. The name of the file says
    which phenomenon it is: deixis, lex_cohesion, ellipsis_infl, ellipsis_vp.
    """
    variants = listed(record, "dst", where, "variants")
    source = _parted(record.get("src"), where, "src")
    found = [_parted(each, where, f"variant {count}") for count, each in enumerate(variants, 1)]
    return source, found, index(record, "true_ind", len(variants), where), len(source) - 1


CONSISTENCY = ("deixis", "lex_cohesion", "ellipsis_infl", "ellipsis_vp")


def _parted(value: object, where: str, what: str) -> tuple[str, ...]:
    """The sentences of a text with marks between them."""
    parts = value.split(JOINT) if isinstance(value, str) else value
    return tuple(part.strip() for part in sentences(parts, where, what))


def contrapro(record: Record, where: str) -> Question:
    """ContraPro (Müller et al. 2018): `src segment`, `ref segment` and `errors`, each with its `contrastive` segment.

    The sentences before stand in other files, which its scripts extract from OpenSubtitles: X.text.en, X.context.en
    and X.text.de, X.context.de beside X.json, a line of text for each candidate in order, the reference first, and the
    same number of lines of context for each. Without them items have no context.
    """
    source, reference = text(record, "src segment", where, True), text(record, "ref segment", where, True)
    errors = listed(record, "errors", where, "objects", dict, empty=True)
    variants = [reference, *(text(each, "contrastive", where, True) for each in errors)]
    return [source], [[variant] for variant in variants], 0, 0


def discevalmt(record: Record, where: str) -> Question:
    """DiscEvalMT (Bawden et al. 2018), an example of a block: `src` (two sentences) and `trg`, with one translation
    that is `correct` or `semi-correct` and one that is `incorrect`; `type` says of which form the pronoun is."""
    sides = record.get("trg")
    if not isinstance(sides, dict):
        raise DocmtError(f"{where}: `trg` is no object with a correct and an incorrect translation: give one")
    right = next((sides[name] for name in ("correct", "semi-correct") if name in sides), None)
    found = [sentences(each, where, what) for each, what in ((right, "correct"), (sides.get("incorrect"), "incorrect"))]
    source = sentences(record.get("src"), where, "src")
    return source, found, 0, len(source) - 1


@dataclass(frozen=True)
class Format:
    """How the items of a test set are laid out."""

    entries: tuple[str, ...]
    """that tell it from the others"""
    read: Callable[[Record, str], Question]
    label: str = ""
    """the entry of it, if there is one"""
    distance: str = "ctx_dist"
    id: str = ""
    """the entry of it; without, items have their numbers"""
    phenomenon: Callable[[Path], str] = lambda path: ""
    """what the file asks for where items do not say it"""
    nearest: int | None = None
    """the distance of all items that do not say one"""


FORMATS = (
    Format(("source", "candidates"), own, "label", "distance", "id"),
    Format(("src_context", "candidates"), with_context, "type"),
    Format(("src_context", "expected"), ctxpro, "rule"),
    Format(
        ("dst", "true_ind"),
        consistency,
        phenomenon=lambda path: next((name for name in CONSISTENCY if name in path.name), path.stem),
    ),
    Format(("ref segment", "errors"), contrapro, "ref pronoun", "ante distance", "segment id", lambda path: "pronoun"),
    Format(("src", "trg"), discevalmt, "type", phenomenon=lambda path: path.stem.split(".")[0], nearest=1),
)
DEEPEST = 4
"""Brackets around the items of a file: a list, blocks, examples."""


def read_items(path: Path) -> list[Item]:
    """The items of a test set in any of the formats. Raises DocmtError, naming line or item, for what is none."""
    records = list(_records(path))
    if not records:
        raise DocmtError(f"{path} is empty: give a contrastive test set, one JSON object a line")
    layout = _format_of(records[0][0])
    if layout is None:
        raise _no_item(records[0][1])
    if layout.read is consistency:
        records = _with_extracted_sources(records, path)
    items = [_item(record, layout, path, number, where) for number, (record, where) in enumerate(records, 1)]
    if not any(item.expected or item.wrong for item in items):
        raise DocmtError(f"{records[0][1]}: all candidates are equal, as in all other items: give different ones")
    return _with_extracted_context(items, path) if layout.read is contrapro else items


def _item(record: Record, layout: Format, path: Path, number: int, where: str) -> Item:
    """Return the item of a record. Raises DocmtError, saying where, for candidates that ask nothing."""
    source, candidates, correct, sentence = layout.read(record, where)
    generative = layout.read is ctxpro
    if len(candidates) < 2 and not generative:
        raise DocmtError(f"{where}: one candidate only, so that it is right whatever a model says: give two or more")
    for count, candidate in enumerate(candidates, 1):
        if len(candidate) != len(source):
            raise DocmtError(
                f"{where}: candidate {count} has {len(candidate)} sentences and the source {len(source)}: give one "
                "for each"
            )
        if not candidate[sentence].strip():
            raise DocmtError(f"{where}: candidate {count} is empty: give every candidate a text, or leave it out")
    within = record.get("intrasegmental") is True  # of ContraPro
    return Item(
        id=str(record.get(layout.id, "" if layout.read is own else number)),
        phenomenon=text(record, "phenomenon", where) or layout.phenomenon(path),
        distance=0 if within else distance(record, layout.distance, where, layout.nearest),
        source=tuple(source),
        candidates=tuple(map(tuple, candidates)),
        correct=correct,
        sentence=sentence,
        label=text(record, layout.label, where) if layout.label else "",
        expected=text(record, "expected", where, True) if generative else "",
    )


def _format_of(record: Record) -> Format | None:
    return next((each for each in FORMATS if record.keys() >= set(each.entries)), None)


def _no_item(where: str) -> DocmtError:
    return DocmtError(
        f"{where}: this is no item of a test set that docmt knows: give `source`, `candidates`, `correct` and "
        "`sentence`, or a published format (docs/evaluation.md)"
    )


def _records(path: Path) -> Iterator[tuple[Record, str]]:
    """The objects of a file, and where they stand: of JSON Lines, or of one list, or those within blocks."""
    lines = [(number, line) for number, line in decoded_lines(path) if line.strip()]
    first = _parsed(lines[0][1]) if lines else None
    is_item = isinstance(first, dict) and _format_of(first) is not None
    if not is_item and (whole := _parsed("".join(line for _, line in lines))) is not None:
        for number, record in enumerate(_within(whole, {}, str(path)), 1):
            yield record, f"{path}, item {number}"
        return
    for number, line in lines:
        where, record = f"{path}, line {number}", _parsed(line)
        if record is None:
            raise DocmtError(f"{where}: not valid JSON: a contrastive test set has one object a line")
        if not isinstance(record, dict):
            raise DocmtError(f"{where}: not a JSON object: a contrastive test set has one a line")
        yield record, where


def _parsed(data: str) -> Any:
    """What JSON says; None for anything else."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def _within(value: object, around: Mapping[str, object], where: str, depth: int = 0) -> Iterator[Record]:
    """The items in lists and blocks, in order. Examples of a block may share its `src`."""
    if isinstance(value, dict):
        if _format_of({**around, **value}) is not None:
            yield {**around, **value}
            return
        around = {"src": value["src"]} if "src" in value else around
        value = [each for each in value.values() if isinstance(each, dict | list) and each is not value.get("src")]
    if not isinstance(value, list) or not value or depth > DEEPEST:
        raise _no_item(where)
    for each in value:
        yield from _within(each, around, where, depth + 1)


def _with_extracted_sources(records: list[tuple[Record, str]], path: Path) -> list[tuple[Record, str]]:
    """The consistency sets' objects with `src`; where they have none it stands in X.src, a line for each variant."""
    if all("src" in record for record, _ in records):
        return records
    lines = _lines(path.with_suffix(".src"))
    counts = [len(listed(record, "dst", where, "variants")) for record, where in records]
    if len(lines) != sum(counts):
        raise DocmtError(
            f"{path.with_suffix('.src')} has {len(lines)} lines for {sum(counts)} variants: fetch it again"
        )
    ends = accumulate(counts)
    return [({**record, "src": lines[end - 1]}, where) for (record, where), end in zip(records, ends, strict=True)]


def _with_extracted_context(items: list[Item], path: Path) -> list[Item]:
    """ContraPro's items with the lines of context that its scripts put beside them; see `contrapro`."""
    files = {file.suffix: file for file in sorted(path.parent.glob(f"{path.stem}.context.*"))}
    if not files:
        return items
    texts = {suffix: _lines(path.with_name(f"{path.stem}.text{suffix}")) for suffix in files}
    rows = [candidate[-1] for item in items for candidate in item.candidates]
    source = [suffix for suffix, lines in texts.items() if lines[:1] == [items[0].source[-1].strip()]]
    if len(files) != 2 or len(source) != 1 or any(len(lines) != len(rows) for lines in texts.values()):
        raise DocmtError(
            f"{path.stem}.text and {path.stem}.context beside {path} are not those of its {len(rows)} candidates: "
            "extract them again, for two languages"
        )
    sides = [_lines(file) for _, file in sorted(files.items(), key=lambda pair: pair[0] not in source)]
    count = len(sides[0]) // len(rows)
    if any(len(side) != count * len(rows) for side in sides):
        raise DocmtError(f"{files[source[0]]} has not equally many lines for each candidate: extract the context again")
    # As many for each side of each candidate.
    sources, targets = ([list(islice(lines, count)) for _ in rows] for lines in map(iter, sides))
    ends = accumulate(len(item.candidates) for item in items)
    return [
        _with_lines(item, sources[end - 1], targets[end - len(item.candidates) : end])
        for item, end in zip(items, ends, strict=True)
    ]


def _with_lines(item: Item, source: Sequence[str], contexts: Sequence[Sequence[str]]) -> Item:
    """The item after its context, on the target side one for each candidate; lines empty everywhere are missing."""
    kept = [number for number in range(len(source)) if source[number] or any(context[number] for context in contexts)]
    candidates = [
        (*(context[number] for number in kept), *candidate)
        for context, candidate in zip(contexts, item.candidates, strict=True)
    ]
    own = (*(source[number] for number in kept), *item.source)
    return replace(item, source=own, candidates=tuple(candidates), sentence=len(kept))


def _lines(path: Path) -> list[str]:
    return [line.strip() for _, line in decoded_lines(path)]


def listed(record: Record, entry: str, where: str, content: str, kind: type = object, empty: bool = False) -> list[Any]:
    """A list of things of a kind. Raises DocmtError for anything else, and for an empty one unless that is allowed."""
    values = record.get(entry)
    if not isinstance(values, list) or not (values or empty) or not all(isinstance(value, kind) for value in values):
        raise DocmtError(f"{where}: `{entry}` is no list of {content}: give such a list")
    return values


def sentences(values: object, where: str, what: str, empty: bool = False) -> tuple[str, ...]:
    """A list of texts. Raises DocmtError for anything else, and for an empty one unless that is allowed."""
    if not isinstance(values, list) or not (values or empty) or not all(isinstance(value, str) for value in values):
        raise DocmtError(f"{where}: {what} is no list of sentences: give strings in brackets")
    if any(LONE_SURROGATE.search(value) for value in values):
        raise DocmtError(f"{where}: {what} holds a lone surrogate, which is no character: remove it")
    return tuple(values)


def text(record: Record, entry: str, where: str, needed: bool = False) -> str:
    """A text; empty if there is none, unless it is needed. Raises DocmtError for anything else."""
    value = record.get(entry, None if needed else "")
    if not isinstance(value, str) or LONE_SURROGATE.search(value) or (needed and not value.strip()):
        raise DocmtError(f"{where}: `{entry}` is no text: give a string{'' if needed else ', or leave it out'}")
    return value


def index(record: Record, entry: str, end: int, where: str) -> int:
    """A whole number from 0 to end - 1. Raises DocmtError for anything else."""
    if entry not in record:
        wanted = "0" if end == 1 else f"a whole number from 0 to {end - 1:,}"
        raise DocmtError(f"{where}: `{entry}` is missing: give {wanted}")
    value = record[entry]
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < end:
        raise DocmtError(f"{where}: `{entry}` is no whole number from 0 to {end - 1:,}: give one")
    return value


def distance(record: Record, entry: str, where: str, usual: int | None) -> int | None:
    """How far back what decides stands, if the file says so."""
    return usual if record.get(entry) is None else index(record, entry, MOST, where)
