"""Statistics of a prepared corpus, as data, as JSON and as a table."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, TypeVar

from docmt.core.errors import printable
from docmt.core.files import parse_json

STATISTICS_FILE = "statistics.json"
Checked = TypeVar("Checked", "SplitStatistics", "CorpusStatistics", "CorpusCounts")


class StatisticsError(ValueError):
    """Error for a value of the wrong type in statistics that are read."""


@dataclass(frozen=True)
class CorpusCounts:
    """Number of documents and sentences of a split from one of its corpora."""

    documents: int
    sentences: int


@dataclass(frozen=True)
class SplitStatistics:
    """Counts of one split. Costs are tokens as instances count them: the longer side with boundary tokens."""

    documents: int
    sentences: int
    """Sentence pairs."""
    instances: int
    source_tokens: int
    """Subwords of the source, without boundary tokens."""
    target_tokens: int
    cost: int
    """Summed cost of all sentences."""
    longest_cost: int
    """Cost of the longest sentence pair."""
    longest_document: str
    """Id of the document with the longest pair; `longest_sentence` counts in it from 1."""
    longest_sentence: int
    over_limit: int
    """Sentences at or over the limit of an instance. Each is an instance of its own; nothing is truncated."""
    skipped: dict[str, int] = field(default_factory=dict)
    """Reasons for skipped pairs, with the number of cases."""
    skipped_examples: dict[str, list[str]] = field(default_factory=dict)
    """First few locations for each reason."""
    corpora: dict[str, CorpusCounts] = field(default_factory=dict)
    """Counts by corpus, if there are several."""
    crc32: dict[str, str] = field(default_factory=dict)
    """Checksum of every file of the split. Files without one are not checked."""

    def reversed(self) -> SplitStatistics:
        """Return the statistics with source and target exchanged."""
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
    """Contents and settings of a prepared store."""

    source_language: str
    target_language: str
    tokenizer: str
    """Kind of the tokenizer."""
    vocabulary_size: int
    instance_tokens: int
    """Token limit of the counted instances."""
    splits: dict[str, SplitStatistics]

    @property
    def languages(self) -> tuple[str, str]:
        """Codes of source and target language; empty if unknown."""
        return self.source_language, self.target_language

    def reversed(self) -> CorpusStatistics:
        """Return the statistics with source and target exchanged."""
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
        """Parse the output of `to_json`. Raises ValueError, TypeError or KeyError for anything else."""
        values: dict[str, Any] = dict(parse_json(data))
        splits = {str(name): _parse_split(split) for name, split in dict(values.pop("splits")).items()}
        return _check_types(cls(**values, splits=splits))


def _parse_split(values: Any) -> SplitStatistics:
    if not isinstance(values, dict):
        raise StatisticsError(f"a split is {values!r}"[:80])
    corpora = {name: _check_types(CorpusCounts(**counts)) for name, counts in dict(values.get("corpora", {})).items()}
    split = _check_types(SplitStatistics(**{**values, "corpora": corpora}))
    for reason, count in split.skipped.items():
        locations = split.skipped_examples.get(reason, [])
        if not isinstance(count, int) or not all(isinstance(location, str) for location in locations):
            raise StatisticsError("its counts of skipped pairs are not numbers")
    if not all(isinstance(value, str) for value in split.crc32.values()):
        raise StatisticsError("its checksums are not strings")
    return split


def _check_types(statistics: Checked) -> Checked:
    """Return the statistics unchanged. Raises StatisticsError if a field has the wrong type."""
    types = {"str": str, "int": int}
    for entry in fields(statistics):
        value, type_ = getattr(statistics, entry.name), types.get(str(entry.type), dict)
        if not isinstance(value, type_) or isinstance(value, bool):
            raise StatisticsError(f"{entry.name} is {value!r}"[:80])
    return statistics


def format_statistics(statistics: CorpusStatistics) -> str:
    """Return the statistics as text: a table with a column for each split, then skipped pairs."""
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
        for corpus, counts in split.corpora.items():
            lines.append(f"{name}: {counts.documents:,} documents, {counts.sentences:,} sentences from {corpus}")
        lines.append(f"{name}: longest is sentence {split.longest_sentence} of document {split.longest_document}")
        for reason, count in split.skipped.items():
            locations = split.skipped_examples.get(reason, [])
            ellipsis = ", ..." if count > len(locations) else ""
            lines.append(f"{name}: skipped {count:,} x {reason} ({'; '.join(locations)}{ellipsis})")
    return "\n".join(map(printable, lines))
