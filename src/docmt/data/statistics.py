"""What a prepared corpus holds, as data, as JSON and as a table."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, TypeVar

from docmt.core.errors import printable
from docmt.core.files import parse_json

STATISTICS_FILE = "statistics.json"
Typed = TypeVar("Typed", "SplitStatistics", "CorpusStatistics", "CorpusCounts")


class StatisticsError(ValueError):
    """A value of the wrong type in statistics that are read; the message says which."""


@dataclass(frozen=True)
class CorpusCounts:
    """How much of a split comes from one of its corpora."""

    documents: int
    sentences: int


@dataclass(frozen=True)
class SplitStatistics:
    """Counts of one split. Costs are tokens as instances count them: the longer side, marks included."""

    documents: int
    sentences: int
    """Pairs of sentences."""
    instances: int
    source_tokens: int
    """Words (subwords) of the source, without marks."""
    target_tokens: int
    cost: int
    """The sum of the costs of all sentences."""
    longest_cost: int
    """The cost of the longest sentence pair."""
    longest_document: str
    """The id of the document where it stands, and its number there, counted from 1."""
    longest_sentence: int
    over_limit: int
    """Sentences that reach the limit of an instance; each is an instance of its own, nothing is cut."""
    skipped: dict[str, int] = field(default_factory=dict)
    """What was left out: reason and number of cases."""
    skipped_examples: dict[str, list[str]] = field(default_factory=dict)
    """The first few places for each reason."""
    corpora: dict[str, CorpusCounts] = field(default_factory=dict)
    """What came from which files, where there are several corpora."""
    crc32: dict[str, str] = field(default_factory=dict)
    """The checksum of every file of the split; of a store of an earlier version, none."""

    def reversed(self) -> SplitStatistics:
        """With source and target in each other's place."""
        return replace(self, source_tokens=self.target_tokens, target_tokens=self.source_tokens)

    @property
    def sentences_per_instance(self) -> float:
        return self.sentences / self.instances

    @property
    def tokens_per_instance(self) -> float:
        """Mean cost of an instance."""
        return self.cost / self.instances


@dataclass(frozen=True)
class CorpusStatistics:
    """What a prepared store holds and how it was made."""

    source_language: str
    target_language: str
    tokenizer: str
    """The kind of the tokenizer."""
    vocabulary_size: int
    instance_tokens: int
    """The limit with which the instances were counted."""
    splits: dict[str, SplitStatistics]

    @property
    def languages(self) -> tuple[str, str]:
        """Codes of those that are translated from and to; empty where they are not known."""
        return self.source_language, self.target_language

    def reversed(self) -> CorpusStatistics:
        """With source and target in each other's place."""
        return replace(
            self,
            source_language=self.target_language,
            target_language=self.source_language,
            splits={name: split.reversed() for name, split in self.splits.items()},
        )

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=2, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, data: bytes) -> CorpusStatistics:
        """Raises ValueError, TypeError or KeyError for anything but the output of `to_json` in UTF-8."""
        values: dict[str, Any] = dict(parse_json(data))
        splits = {str(name): _split(split) for name, split in dict(values.pop("splits")).items()}
        return _typed(cls(**values, splits=splits))


def _split(values: Any) -> SplitStatistics:
    if not isinstance(values, dict):
        raise StatisticsError(f"a split is {values!r}"[:80])
    corpora = {name: _typed(CorpusCounts(**counts)) for name, counts in dict(values.get("corpora", {})).items()}
    found = _typed(SplitStatistics(**{**values, "corpora": corpora}))
    for reason, count in found.skipped.items():
        places = found.skipped_examples.get(reason, [])
        if not isinstance(count, int) or not all(isinstance(place, str) for place in places):
            raise StatisticsError("what was skipped is not counted in it")
    if not all(isinstance(value, str) for value in found.crc32.values()):
        raise StatisticsError("its checksums are none")
    return found


def _typed(found: Typed) -> Typed:
    """The same. Raises StatisticsError where a text or a number is something else, before anybody computes with it."""
    kinds = {"str": str, "int": int}
    for entry in fields(found):
        value, kind = getattr(found, entry.name), kinds.get(str(entry.type), dict)
        if not isinstance(value, kind) or isinstance(value, bool):
            raise StatisticsError(f"{entry.name} is {value!r}"[:80])
    return found


def format_statistics(statistics: CorpusStatistics) -> str:
    """The statistics as text: a table with one column for each split, then what was skipped."""
    splits = statistics.splits
    rows: list[tuple[str, list[str]]] = [
        ("", list(splits)),
        ("documents", [f"{split.documents:,}" for split in splits.values()]),
        ("sentences", [f"{split.sentences:,}" for split in splits.values()]),
        ("instances", [f"{split.instances:,}" for split in splits.values()]),
        ("source tokens", [f"{split.source_tokens:,}" for split in splits.values()]),
        ("target tokens", [f"{split.target_tokens:,}" for split in splits.values()]),
        ("sentences per instance", [f"{split.sentences_per_instance:.1f}" for split in splits.values()]),
        ("tokens per instance", [f"{split.tokens_per_instance:.1f}" for split in splits.values()]),
        ("longest sentence (tokens)", [f"{split.longest_cost:,}" for split in splits.values()]),
        (f"sentences of {statistics.instance_tokens} tokens or more", [f"{s.over_limit:,}" for s in splits.values()]),
    ]
    title_width = max(len(title) for title, _ in rows)
    width = max(len(cell) for _, cells in rows for cell in cells)
    languages = f"{statistics.source_language or 'source'} to {statistics.target_language or 'target'}"
    lines = [f"{languages}, {statistics.tokenizer} vocabulary of {statistics.vocabulary_size:,}", ""]
    lines += [title.ljust(title_width) + "".join(f"  {cell:>{width}}" for cell in cells) for title, cells in rows]
    lines += ["", "Tokens per instance and of a sentence: the longer side, with <s> and </s>. Nothing is cut."]
    for name, split in splits.items():
        for corpus, own in split.corpora.items():
            lines.append(f"{name}: {own.documents:,} documents, {own.sentences:,} sentences from {corpus}")
        lines.append(f"{name}: longest is sentence {split.longest_sentence} of document {split.longest_document}")
        for reason, count in split.skipped.items():
            places = split.skipped_examples.get(reason, [])
            more = ", ..." if count > len(places) else ""
            lines.append(f"{name}: skipped {count:,} x {reason} ({'; '.join(places)}{more})")
    return "\n".join(map(printable, lines))
