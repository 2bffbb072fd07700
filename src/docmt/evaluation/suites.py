"""Test suites for discourse phenomena: items, published file formats, and the suites shipped with docmt.

One function per format parses records into `SuiteItem` objects. The keys of the first item identify the format.
docmt's JSONL and the JSONL with `src_context`, which several test sets use, were checked on real files. The formats of
ContraPro, the consistency sets and DiscEvalMT follow the documentation of their repositories, which have the files.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, islice
from pathlib import Path
from typing import Any, NamedTuple

from docmt.core.errors import DocmtError
from docmt.core.files import parse_json_or_none
from docmt.core.plain_text import plain_name, read_lines
from docmt.documents.input_formats import LONE_SURROGATE
from docmt.formats.language_codes import is_same_language

Record = Mapping[str, object]
MAX_DISTANCE = 1_000_000
"""Largest distance in sentences."""
SENTENCE_SEPARATOR = "_eos"
"""Separator of the sentences of an item in the consistency sets."""
SHIPPED = ("pronouns", "phenomena")
"""Names of the shipped English-German test sets, in the synthetic language of `make demo-training`."""
_TEST_SETS = Path(__file__).with_name("test_sets")
_LANGUAGES = re.compile(r"[._]([a-z]{2})-([a-z]{2})(?=[._]|$)")


@dataclass(frozen=True)
class SuiteItem:
    """Item of a test suite.

    Contrastive: which candidate document is the translation of the source? Generative (without candidates): does the
    translation of the tested sentence have the `expected` form?
    """

    id: str
    phenomenon: str
    """tested phenomenon, empty if unknown"""
    distance: int | None
    """sentences back to the antecedent, None if unknown"""
    source: tuple[str, ...]
    candidates: tuple[tuple[str, ...], ...]
    """two or more target documents with the source's number of sentences"""
    correct: int
    """index of the right candidate"""
    sentence: int
    """index of the tested sentence; candidates differ only here"""
    label: str = ""
    """further property of the item: the right pronoun, its gender and number, or the rule"""
    expected: str = ""
    """form that the translation of a generative item must have"""
    document: str = ""
    """name of the document from which the item is, which others may share; empty: one of its own"""

    @property
    def wrong(self) -> list[int]:
        """Indices of the candidates that differ from the right one."""
        right = self.candidates[self.correct] if self.candidates else ()
        return [number for number, candidate in enumerate(self.candidates) if candidate != right]

    @property
    def chance(self) -> float:
        """Accuracy of guessing among distinct candidates, 0 for generative items."""
        return 1 / len(set(self.candidates)) if self.candidates else 0.0

    @property
    def has_context(self) -> bool:
        """Return whether there is any text outside the tested sentence."""
        return any(text.strip() for number, text in enumerate(self.source) if number != self.sentence)


class Question(NamedTuple):
    """What a format has for an item. `label`, `distance` and `id` are keys of the record."""

    source: Sequence[str]
    candidates: Sequence[Sequence[str]]
    correct: int
    sentence: int
    label: str = ""
    distance: str = "ctx_dist"
    id: str = ""
    phenomenon: str = ""
    """of items that name none"""
    expected: str = ""
    default_distance: int | None = None


@dataclass(frozen=True)
class Suite:
    """Test suite: a named set of items."""

    name: str
    items: tuple[SuiteItem, ...]
    languages: tuple[str, str] | None = None
    """language codes of source and target, None if unknown"""

    @property
    def generative(self) -> bool:
        """Return whether its items are translated, not scored."""
        return not self.items[0].candidates

    def remarks(self) -> list[str]:
        """Return notes on items whose results need caution, one sentence each."""
        without_context = sum(not item.has_context for item in self.items)
        distinct = [len(set(item.candidates)) for item in self.items]
        with_copies = sum(1 < count < len(item.candidates) for count, item in zip(distinct, self.items, strict=True))
        notes = (
            (without_context, "have no context to decide them"),
            (with_copies, "have equal candidates, which count as one"),
            (distinct.count(1), "have only equal candidates, so they are ties and count as wrong"),
        )
        return [f"{count:,} of {len(self.items):,} items of {self.name} {note}" for count, note in notes if count]

    def check_languages(self, model: str, languages: tuple[str, str]) -> None:
        """Raise DocmtError if the model and the suite are known to have different languages."""
        if self.languages and not all(map(is_same_language, self.languages, languages)):
            raise DocmtError(
                f"the test set {self.name} is {'-'.join(self.languages)}, but {model} translates "
                f"{'-'.join(code or '?' for code in languages)}. Name a test set and models of the same languages"
            )


def read_suite(name_or_path: Path | str) -> Suite:
    """Read a shipped test set by name, or a test set file.

    Languages are read from the file name, such as lcpt.en-fr.jsonl. Raises DocmtError for an unknown name or an invalid
    file.
    """
    name, path = str(name_or_path), Path(name_or_path)
    if name in SHIPPED and not path.is_file():
        return Suite(name, tuple(read_items(_TEST_SETS / f"{name}.en-de.jsonl.gz")), ("en", "de"))
    if not path.exists() and path.name == name and not path.suffix:
        raise DocmtError(f"there is no test set {name!r}. Choose one of {', '.join(SHIPPED)}, or give a file")
    languages = _LANGUAGES.search(plain_name(path.name))
    return Suite(path.name, tuple(read_items(path)), (languages[1], languages[2]) if languages else None)


def parse_docmt(record: Record, location: str, path: Path) -> Question:
    """Parse docmt's format: `source`, `candidates` (target documents), `correct`, `sentence`, `distance`."""
    source = check_sentences(record.get("source"), location, "source")
    content = "two or more translations"
    values = check_list(record.get("candidates"), location, "`candidates`", content, least=content)
    candidates = [check_sentences(value, location, f"candidate {number}") for number, value in enumerate(values, 1)]
    if len(set(candidates)) == 1 < len(candidates):
        raise DocmtError(f"{location}: all candidates are equal. Give different ones")
    sentence = get_index(record, "sentence", len(source), location)
    contexts = {remove_sentence(candidate, sentence) for candidate in candidates}
    if len({len(candidate) for candidate in candidates}) == 1 < len(contexts):
        raise DocmtError(
            f"{location}: `candidates` differ outside sentence {sentence} (from 0). Set `sentence` to the one in which "
            "they differ, and make the others equal"
        )
    get_text(record, "id", location)
    correct = get_index(record, "correct", len(candidates), location)
    return Question(source, candidates, correct, sentence, "label", "distance", "id")


def remove_sentence(sentences: tuple[str, ...], number: int) -> tuple[str, ...]:
    """Return all sentences but the one with this number."""
    return sentences[:number] + sentences[number + 1 :]


def parse_src_context(record: Record, location: str, path: Path) -> Question:
    """Parse `src_context`, `src`, `tgt_context`, `candidates` (the last sentence), `correct_index`, `ctx_dist`.

    Candidates with different contexts have them in `candidate_contexts`. `type` is the form of the right pronoun in
    DiscEvalMT (m.sg).
    """
    source = _source_with_context(record, location)
    variants = check_sentences(record.get("candidates"), location, "`candidates`", "two or more translations")
    contexts = record.get("candidate_contexts")
    if contexts is None:
        contexts = [record.get("tgt_context")] * len(variants)
    if not isinstance(contexts, list) or len(contexts) != len(variants):
        raise DocmtError(f"{location}: `candidate_contexts` must be a list with one context per candidate")
    contexts = [check_sentences(context, location, "the target context", "") for context in contexts]
    candidates = [(*context, variant) for context, variant in zip(contexts, variants, strict=True)]
    correct = get_index(record, "correct_index", len(variants), location)
    return Question(source, candidates, correct, len(source) - 1, "type")


def parse_ctxpro(record: Record, location: str, path: Path) -> Question:
    """Parse ctxPro (Wicks and Post 2023): `src_context`, `src`, and the `expected` form of the translation."""
    source = _source_with_context(record, location)
    expected = get_text(record, "expected", location, required=True)
    return Question(source, [], 0, len(source) - 1, "rule", expected=expected)


def _source_with_context(record: Record, location: str) -> tuple[str, ...]:
    context = check_sentences(record.get("src_context"), location, "src_context", "")
    return (*context, get_text(record, "src", location, required=True))


def parse_consistency(record: Record, location: str, path: Path) -> Question:
    """Parse the consistency sets (Voita et al. 2019): `src`, `dst`, `true_ind` and `ctx_dist`.

    `src` and each variant of `dst` are four sentences joined by ` _eos `, or lists. The phenomenon is in the file name:
    deixis, lex_cohesion, ellipsis_infl, ellipsis_vp.
    """
    variants = check_list(record.get("dst"), location, "`dst`", "variants", least="variants")
    source = _split_sentences(record.get("src"), location, "src")
    candidates = [_split_sentences(value, location, f"variant {number}") for number, value in enumerate(variants, 1)]
    phenomenon = next((name for name in CONSISTENCY if name in path.name), path.stem)
    correct = get_index(record, "true_ind", len(variants), location)
    return Question(source, candidates, correct, len(source) - 1, phenomenon=phenomenon)


CONSISTENCY = ("deixis", "lex_cohesion", "ellipsis_infl", "ellipsis_vp")


def _split_sentences(value: object, location: str, name: str) -> tuple[str, ...]:
    """Split a text at the sentence separators."""
    parts = value.split(SENTENCE_SEPARATOR) if isinstance(value, str) else value
    return tuple(part.strip() for part in check_sentences(parts, location, name))


def parse_contrapro(record: Record, location: str, path: Path) -> Question:
    """Parse ContraPro (Müller et al. 2018): `src segment`, `ref segment` and `errors` with `contrastive` segments.

    Context sentences are in other files, which its scripts extract from OpenSubtitles: X.text.en, X.context.en,
    X.text.de and X.context.de beside X.json. They have one text line per candidate in order, the reference first, and
    equally many context lines for each. Without these files items have no context.
    """
    source = get_text(record, "src segment", location, required=True)
    reference = get_text(record, "ref segment", location, required=True)
    errors = check_list(record.get("errors"), location, "`errors`", "objects", dict)
    variants = [reference, *(get_text(error, "contrastive", location, required=True) for error in errors)]
    candidates = [[variant] for variant in variants]
    return Question([source], candidates, 0, 0, "ref pronoun", "ante distance", "segment id", "pronoun")


def parse_discevalmt(record: Record, location: str, path: Path) -> Question:
    """Parse DiscEvalMT (Bawden et al. 2018), an example of a block: `src` (two sentences), `trg` and `type`.

    `trg` has a `correct` or `semi-correct` translation and an `incorrect` one. `type` is the form of the pronoun.
    """
    target = record.get("trg")
    if not isinstance(target, dict):
        raise DocmtError(f"{location}: `trg` must be an object with a correct and an incorrect translation")
    right = next((target[name] for name in ("correct", "semi-correct") if name in target), None)
    answers = {"correct": right, "incorrect": target.get("incorrect")}
    candidates = [check_sentences(sentences, location, name) for name, sentences in answers.items()]
    source = check_sentences(record.get("src"), location, "src")
    names = {"label": "type", "phenomenon": path.stem.split(".")[0]}
    return Question(source, candidates, 0, len(source) - 1, **names, default_distance=1)


FORMATS = {
    ("source", "candidates"): parse_docmt,
    ("src_context", "candidates"): parse_src_context,
    ("src_context", "expected"): parse_ctxpro,
    ("dst", "true_ind"): parse_consistency,
    ("ref segment", "errors"): parse_contrapro,
    ("src", "trg"): parse_discevalmt,
}
"""Formats by the keys that identify them."""
DOCUMENT_KEYS = ("document", "document id", "docid")
"""Keys that name the document of an item: docmt's, that of ContraPro, that of ctxPro."""
MAX_DEPTH = 4
"""Deepest nesting of items in lists, blocks and examples."""


def read_items(path: Path) -> list[SuiteItem]:
    """Read the items of a test set in any format. Raises DocmtError with the line or item of an invalid record."""
    records = list(_read_records(path))
    if not records:
        raise DocmtError(f"{path} is empty. Give a test set with one JSON object a line")
    parse = _find_format(records[0][0])
    if parse is None:
        raise _unknown_format(records[0][1])
    if parse is parse_consistency:
        records = _add_extracted_sources(records, path)
    items = [
        _build_item(record, parse(record, location, path), "" if parse is parse_docmt else number, location)
        for number, (record, location) in enumerate(records, 1)
    ]
    if not any(item.expected or item.wrong for item in items):
        raise DocmtError(f"{records[0][1]}: all candidates are equal, as in all other items. Give different ones")
    return _add_extracted_context(items, path) if parse is parse_contrapro else items


def _build_item(record: Record, question: Question, default_id: object, location: str) -> SuiteItem:
    """Return the item of a record. Raises DocmtError for invalid candidates."""
    source, candidates, correct, sentence, *_ = question
    if len(candidates) < 2 and not question.expected:
        raise DocmtError(f"{location}: there is only one candidate. Give two or more")
    for candidate_number, candidate in enumerate(candidates, 1):
        if len(candidate) != len(source):
            raise DocmtError(
                f"{location}: candidate {candidate_number} has {len(candidate)} sentences but the source has "
                f"{len(source)}. Give one for each"
            )
        if not candidate[sentence].strip():
            raise DocmtError(
                f"{location}: candidate {candidate_number} is empty. Give every candidate a text, or leave it out"
            )
    distance = question.default_distance
    if record.get("intrasegmental") is True:  # ContraPro
        distance = 0
    elif record.get(question.distance) is not None:
        distance = get_index(record, question.distance, MAX_DISTANCE, location)
    return SuiteItem(
        id=_get_name(record, question.id, default_id),
        phenomenon=get_text(record, "phenomenon", location) or question.phenomenon,
        distance=distance,
        source=tuple(source),
        candidates=tuple(map(tuple, candidates)),
        correct=correct,
        sentence=sentence,
        label=get_text(record, question.label, location) if question.label else "",
        expected=question.expected,
        document=next(filter(None, (_get_name(record, key, "") for key in DOCUMENT_KEYS)), ""),
    )


def _get_name(record: Record, entry: str, default: object) -> str:
    """Return an entry as text; null counts as missing, as in exports of tables."""
    value = record.get(entry)
    return str(default if value is None else value)


def _find_format(record: Record) -> Callable[[Record, str, Path], Question] | None:
    return next((parse for keys, parse in FORMATS.items() if record.keys() >= set(keys)), None)


def _unknown_format(location: str) -> DocmtError:
    return DocmtError(
        f"{location}: not an item of a known test set format. Give `source`, `candidates`, `correct` and `sentence`, "
        "or a published format (docs/evaluation.md)"
    )


def _read_records(path: Path) -> Iterator[tuple[Record, str]]:
    """Yield the objects of a file with their locations, from JSON Lines, one list, or nested blocks."""
    lines = [(number, line) for number, line in read_lines(path) if line.strip()]
    first = parse_json_or_none(lines[0][1]) if lines else None
    is_item = isinstance(first, dict) and _find_format(first) is not None
    if not is_item and (content := parse_json_or_none("".join(line for _, line in lines))) is not None:
        for number, record in enumerate(_nested_records(content, {}, str(path)), 1):
            yield record, f"{path}, item {number}"
        return
    for number, line in lines:
        location, record = f"{path}, line {number}", parse_json_or_none(line)
        if not isinstance(record, dict):
            problem = "not valid JSON" if record is None else "not a JSON object"
            raise DocmtError(f"{location}: {problem}. A test set has one JSON object a line")
        yield record, location


def _nested_records(value: object, shared: Mapping[str, object], location: str, depth: int = 0) -> Iterator[Record]:
    """Yield the items in lists and blocks, in order. Examples of a block may share its `src`."""
    if isinstance(value, dict):
        if _find_format({**shared, **value}) is not None:
            yield {**shared, **value}
            return
        shared = {"src": value["src"]} if "src" in value else shared
        value = [child for child in value.values() if isinstance(child, dict | list) and child is not value.get("src")]
    if not isinstance(value, list) or not value or depth > MAX_DEPTH:
        raise _unknown_format(location)
    for child in value:
        yield from _nested_records(child, shared, location, depth + 1)


def _add_extracted_sources(records: list[tuple[Record, str]], path: Path) -> list[tuple[Record, str]]:
    """Add `src` to records of the consistency sets without it, from X.src with one line per variant."""
    if all("src" in record for record, _ in records):
        return records
    lines = _read_lines(path.with_suffix(".src"))
    counts = [len(check_list(record.get("dst"), location, "`dst`", "variants")) for record, location in records]
    if len(lines) != sum(counts):
        raise DocmtError(
            f"{path.with_suffix('.src')} has {len(lines)} lines but {path} has {sum(counts)} variants. Download both "
            "again"
        )
    ends = accumulate(counts)
    pairs = zip(records, ends, strict=True)
    return [({**record, "src": lines[end - 1]}, location) for (record, location), end in pairs]


def _add_extracted_context(items: list[SuiteItem], path: Path) -> list[SuiteItem]:
    """Add the context that ContraPro's scripts extract to its items; see `parse_contrapro`."""
    files = {file.suffix: file for file in sorted(path.parent.glob(f"{path.stem}.context.*"))}
    if not files:
        return items
    texts = {suffix: _read_lines(path.with_name(f"{path.stem}.text{suffix}")) for suffix in files}
    rows = [candidate[-1] for item in items for candidate in item.candidates]
    source = [suffix for suffix, lines in texts.items() if lines[:1] == [items[0].source[-1].strip()]]
    if len(files) != 2 or len(source) != 1 or any(len(lines) != len(rows) for lines in texts.values()):
        raise DocmtError(
            f"{path.stem}.text and {path.stem}.context beside {path} do not match its {len(rows)} candidates. Extract "
            "them again for two languages"
        )
    sides = [_read_lines(file) for _, file in sorted(files.items(), key=lambda pair: pair[0] not in source)]
    count = len(sides[0]) // len(rows)
    if any(len(side) != count * len(rows) for side in sides):
        raise DocmtError(f"{files[source[0]]} has different numbers of lines per candidate. Extract the context again")
    sources, targets = ([list(islice(lines, count)) for _ in rows] for lines in map(iter, sides))
    ends = accumulate(len(item.candidates) for item in items)
    return [
        _prepend_context(item, sources[end - 1], targets[end - len(item.candidates) : end])
        for item, end in zip(items, ends, strict=True)
    ]


def _prepend_context(item: SuiteItem, source: Sequence[str], contexts: Sequence[Sequence[str]]) -> SuiteItem:
    """Return the item after its context, with a target context per candidate. Lines empty everywhere are dropped."""
    numbers = [n for n in range(len(source)) if source[n] or any(context[n] for context in contexts)]
    candidates = [
        (*(context[number] for number in numbers), *candidate)
        for context, candidate in zip(contexts, item.candidates, strict=True)
    ]
    sentences = (*(source[number] for number in numbers), *item.source)
    return replace(item, source=sentences, candidates=tuple(candidates), sentence=len(numbers))


def _read_lines(path: Path) -> list[str]:
    return [line.strip() for _, line in read_lines(path)]


def check_list(
    values: object, location: str, name: str, content: str, kind: type = object, least: str = ""
) -> list[Any]:
    """Return a list of values of a kind. Raises DocmtError for anything else.

    least: what to give in place of an empty list; empty: nothing.
    """
    if not isinstance(values, list) or not all(isinstance(value, kind) for value in values):
        raise DocmtError(f"{location}: {name} must be a list of {content}")
    if least and not values:
        raise DocmtError(f"{location}: {name} is empty. Give {least}")
    return values


def check_sentences(values: object, location: str, name: str, least: str = "one sentence or more") -> tuple[str, ...]:
    """Return a list of strings as a tuple. Raises DocmtError for anything else. least: see `check_list`."""
    texts = check_list(values, location, name, "sentences (strings)", str, least)
    if any(map(LONE_SURROGATE.search, texts)):
        raise DocmtError(f"{location}: {name} has a lone surrogate, which is not a character. Remove it")
    return tuple(texts)


def get_text(record: Record, key: str, location: str, required: bool = False) -> str:
    """Return a string, empty by default unless it is required. Raises DocmtError for anything else."""
    value = record.get(key, None if required else "")
    if not isinstance(value, str) or LONE_SURROGATE.search(value) or (required and not value.strip()):
        raise DocmtError(f"{location}: `{key}` is not a text. Give a string{'' if required else ', or leave it out'}")
    return value


def get_index(record: Record, key: str, end: int, location: str) -> int:
    """Return an integer from 0 to end - 1. Raises DocmtError for anything else."""
    if key not in record:
        allowed = "0" if end == 1 else f"an integer from 0 to {end - 1:,}"
        raise DocmtError(f"{location}: `{key}` is missing. Give {allowed}")
    value = record[key]
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < end:
        raise DocmtError(f"{location}: `{key}` must be an integer from 0 to {end - 1:,}")
    return value
