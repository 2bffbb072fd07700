"""Settings of the metrics: which ones, on which segments and which form of the text, and as which paper."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Literal, NamedTuple

from sacrebleu.metrics.bleu import BLEU

from docmt.core.errors import DocmtError
from docmt.core.settings import check_choice, option, quote
from docmt.text.bpe import moses, moses_language

Kind = Literal["bleu", "chrf", "chrf_pp", "ter"]


class TextMetric(NamedTuple):
    """A metric of sacreBLEU on one kind of segments."""

    label: str
    """in tables"""
    segment: Literal["sentence", "paragraph", "document"]
    """a document may be an instance; see `MetricConfig.unit`"""
    kind: Kind


TEXT_METRICS = {
    "s_bleu": TextMetric("s-BLEU", "sentence", "bleu"),
    "p_bleu": TextMetric("p-BLEU", "paragraph", "bleu"),
    "d_bleu": TextMetric("d-BLEU", "document", "bleu"),
    "chrf": TextMetric("chrF", "sentence", "chrf"),
    "p_chrf": TextMetric("p-chrF", "paragraph", "chrf"),
    "d_chrf": TextMetric("d-chrF", "document", "chrf"),
    "chrf_pp": TextMetric("chrF++", "sentence", "chrf_pp"),
    "p_chrf_pp": TextMetric("p-chrF++", "paragraph", "chrf_pp"),
    "d_chrf_pp": TextMetric("d-chrF++", "document", "chrf_pp"),
    "ter": TextMetric("TER", "sentence", "ter"),
}
"""Metrics of text by the names in `Evaluation` and JSON."""
CONSISTENCY_METRICS = {"ltcr": "LTCR", "ltcr_1": "LTCR-1"}
TERM_METRICS = {
    "terms": "terms",
    "terms_listed": "as listed",
    "terms_base": "first form",
    "consistency": "consistency",
    "repeated": "repeated",
}
HUMAN_METRICS = {"points": "points", "errors": "errors"}
METRIC_NAMES = {key: each.label for key, each in TEXT_METRICS.items()} | CONSISTENCY_METRICS | TERM_METRICS
METRIC_NAMES |= {**HUMAN_METRICS, "external": "external"}
"""Printed names by the names in `Evaluation` and JSON."""
SEGMENTS: dict[str, str] = {key: each.segment for key, each in TEXT_METRICS.items()}
SEGMENTS |= dict.fromkeys((*TERM_METRICS, "external"), "sentence")
SEGMENTS |= dict.fromkeys(("consistency", *CONSISTENCY_METRICS, *HUMAN_METRICS), "document")
"""What a metric counts: sentences, paragraphs or documents."""
CHOICES = {METRIC_NAMES[key].lower(): key for key in (*TEXT_METRICS, *CONSISTENCY_METRICS)}
"""What may be asked for, by the printed name in small letters."""
USUAL = {"paragraph": ("p_bleu", "d_bleu", "p_chrf", "d_chrf"), "": ("s_bleu", "d_bleu", "chrf", "d_chrf")}
"""Metrics by the unit where none is named."""

DEFAULTS: Mapping[str, Any] = {"unit": "document", "text": "plain", "tokenize": "13a"}


@dataclass(frozen=True)
class Protocol:
    """Scoring settings of a published system."""

    paper: str
    settings: Mapping[str, Any]
    """the four fields of MetricConfig that it sets"""
    differences: str
    """differences from the paper, and facts that the paper does not report"""


PROTOCOLS: Mapping[str, Protocol] = {
    "gtransformer": Protocol(
        "Bao et al. 2021",
        {"unit": "instance", "text": "detokenized", "tokenize": "13a", "lowercase": False},
        "the paper's text was truecased and detokenized per instance",
    ),
    "zhang2018": Protocol(
        "Zhang et al. 2018",
        {"unit": "document", "text": "tokenized", "tokenize": "none", "lowercase": True},
        "the paper reports only s-BLEU, by multi-bleu.perl -lc: the same number wherever a 4-gram matches",
    ),
    "multihop": Protocol(
        "Zhang et al. 2021",
        {"unit": "document", "text": "tokenized", "tokenize": "none", "lowercase": False},
        "the paper reports only s-BLEU of truecased text, and names neither the tool nor the case",
    ),
    "rfa": Protocol(
        "Wu et al. 2022",
        {"unit": "document", "text": "tokenized-hyphens", "tokenize": "13a", "lowercase": False},
        "the paper's text was truecased; its signature has tok:none because 13a ran before",
    ),
}
"""Protocols by name."""


@dataclass(frozen=True)
class MetricConfig:
    """Settings of the metrics. Papers differ in all of them, so scores with different settings are not comparable.

    An empty setting takes the value of the protocol, or the default. In a finished object none is empty.
    """

    protocol: str = ""
    """score as a paper did: gtransformer, zhang2018, multihop or rfa (needs --language)"""
    unit: str = ""
    """document; sentence or paragraph: align others with --source; instance: as in training"""
    text: str = ""
    """text form for BLEU: plain, detokenized, tokenized or tokenized-hyphens (Moses)"""
    language: str = ""
    """language code of the translations (for any text but plain)"""
    tokenize: str = ""
    """sacreBLEU tokenizer for BLEU, such as 13a, none, zh, char, intl, ja-mecab or flores200"""
    lowercase: bool = False
    """compare in lower case (TER always does)"""
    names: list[str] = option([], flags=("--metrics",), metavar="NAME")
    """what to score, in this order, such as s-bleu d-chrf++ ter ltcr"""

    def __post_init__(self) -> None:
        if self.protocol:
            check_choice("metrics.protocol", self.protocol, tuple(PROTOCOLS))
        settings = PROTOCOLS[self.protocol].settings if self.protocol else DEFAULTS
        for name, value in settings.items():
            configured = getattr(self, name)
            if configured == "" or (name == "lowercase" and value):
                object.__setattr__(self, name, value)
            elif self.protocol and configured != value:
                raise DocmtError(
                    f"metrics.{name} is {_format_setting(configured)} but protocol {self.protocol} sets it to "
                    f"{_format_setting(value)}. Leave one of them out"
                )
        check_choice("metrics.unit", self.unit, ("document", "sentence", "paragraph", "instance"))
        names = [name.lower().replace("_", "-") for each in self.names for name in filter(None, each.split(","))]
        if unknown := [name for name in names if name not in CHOICES]:
            raise DocmtError(f"there is no metric {quote(unknown[0])}: choose from {', '.join(CHOICES)}")
        object.__setattr__(self, "names", list(dict.fromkeys(names)))
        check_choice("metrics.text", self.text, ("plain", "detokenized", "tokenized", "tokenized-hyphens"))
        check_choice("metrics.tokenize", self.tokenize, tuple(BLEU.TOKENIZERS))
        if self.text != "plain":
            if not self.language:
                name = f"protocol {self.protocol}" if self.protocol else f"text {self.text}"
                models = "; it scores models, not files" if self.unit == "instance" else ""
                raise DocmtError(f"metrics.{name} needs metrics.language, a code such as de, for translations{models}")
            moses_language(self.language, "metrics.language ")

    @property
    def keys(self) -> tuple[str, ...]:
        """The metrics in the order of tables, by their names in `Evaluation`."""
        return tuple(CHOICES[name] for name in self.names) or USUAL.get(self.unit, USUAL[""])

    def convert(self, sentence: str) -> str:
        """Return a sentence in the form that BLEU compares."""
        if self.text == "plain":
            return sentence
        scripts = moses(self.language)
        tokens = scripts.tokenize(sentence, split_hyphens=self.text == "tokenized-hyphens")
        return scripts.detokenize(tokens) if self.text == "detokenized" else " ".join(tokens)

    def text_signature(self) -> str | None:
        """Return the signature entry for the text form, None for plain text."""
        if self.text == "plain":
            return None
        return f"{self.text}.{moses_language(self.language)}.sacremoses-{version('sacremoses')}"

    def describe_protocol(self) -> str | None:
        """Return the protocol with its paper and the differences from it, None without a protocol."""
        if not self.protocol:
            return None
        protocol = PROTOCOLS[self.protocol]
        return f"protocol {self.protocol} ({protocol.paper}; {protocol.differences})"


def _format_setting(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
