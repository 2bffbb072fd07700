"""How text becomes scores: the settings, and those of published systems by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from sacrebleu.metrics.bleu import BLEU

from docmt.core.errors import DocmtError
from docmt.text.moses import moses, moses_language

UNITS = ("document", "instance")
TEXTS = ("plain", "detokenized", "tokenized", "tokenized-hyphens")

DEFAULTS: Mapping[str, Any] = {"unit": "document", "text": "plain", "tokenize": "13a"}


@dataclass(frozen=True)
class Protocol:
    """How a published system was scored."""

    paper: str
    settings: Mapping[str, Any]
    """the four settings of MetricConfig that it fixes"""
    differs: str
    """what the paper did and this does not do, or what the paper does not say"""


PROTOCOLS: Mapping[str, Protocol] = {
    "gtransformer": Protocol(
        "Bao et al. 2021",
        {"unit": "instance", "text": "detokenized", "tokenize": "13a", "lowercase": False},
        "the paper's text was truecased, and detokenized an instance at a time",
    ),
    "zhang2018": Protocol(
        "Zhang et al. 2018",
        {"unit": "document", "text": "tokenized", "tokenize": "none", "lowercase": True},
        "the paper reports s-BLEU alone, by multi-bleu.perl -lc: the same number wherever a 4-gram matches",
    ),
    "multihop": Protocol(
        "Zhang et al. 2021",
        {"unit": "document", "text": "tokenized", "tokenize": "none", "lowercase": False},
        "the paper reports s-BLEU alone, of truecased text, and names neither the tool nor the case it scored",
    ),
    "rfa": Protocol(
        "Wu et al. 2022",
        {"unit": "document", "text": "tokenized-hyphens", "tokenize": "13a", "lowercase": False},
        "the paper's text was truecased; its signature says tok:none, as it had run 13a before",
    ),
}
"""By name, after the paper."""


@dataclass(frozen=True)
class MetricConfig:
    """How text becomes scores. Papers differ in all of these, so no score is comparable without them.

    A setting left empty takes the value of the protocol, or the usual one; in a finished object none is empty.
    """

    protocol: str = ""
    """score as a published system was scored: gtransformer (Bao et al. 2021), zhang2018 (Zhang et al. 2018), multihop
    (Zhang et al. 2021) or rfa (Wu et al. 2022). Sets unit, text, tokenize and lowercase; needs the language"""
    unit: str = ""
    """the segment of d-BLEU: the whole document (usual), or the instance, packed from both sides as in training and
    translated on its own, as in G-Transformer (Bao et al. 2021), where it is at most 512 tokens"""
    text: str = ""
    """the form in which BLEU compares both sides: plain, as they are (usual); tokenized by the Moses scripts, with
    entities such as &apos;; tokenized-hyphens, with @-@ for hyphens as well; or detokenized again after that"""
    language: str = ""
    """code of the language of the translations, for any text but plain"""
    tokenize: str = ""
    """the sacreBLEU tokenizer of s-BLEU and d-BLEU: 13a for plain text (usual), none for text already tokenized, also
    zh, char, intl, ja-mecab, ko-mecab, flores200 and others. chrF and TER do without, and always take plain text"""
    lowercase: bool = False
    """compare in lower case; zhang2018 always does, and so does TER"""
    ter: bool = False
    """compute TER, too: slow, about 25 ms a sentence"""

    def __post_init__(self) -> None:
        if self.protocol and self.protocol not in PROTOCOLS:
            raise DocmtError(f"metrics.protocol is {self.protocol!r}; choose one of {', '.join(PROTOCOLS)}")
        settings = PROTOCOLS[self.protocol].settings if self.protocol else DEFAULTS
        for name, value in settings.items():
            given = getattr(self, name)
            if given == "" or (name == "lowercase" and value):
                object.__setattr__(self, name, value)
            elif self.protocol and given != value:
                raise DocmtError(
                    f"metrics.{name} is {_written(given)}, but the protocol {self.protocol} has {_written(value)}; "
                    "leave one of the two out"
                )
        if self.unit not in UNITS:
            raise DocmtError(f"metrics.unit is {self.unit!r}; choose {' or '.join(UNITS)}")
        if self.text not in TEXTS:
            raise DocmtError(f"metrics.text is {self.text!r}; choose one of {', '.join(TEXTS)}")
        if self.tokenize not in BLEU.TOKENIZERS:
            raise DocmtError(f"metrics.tokenize is {self.tokenize!r}; choose one of {', '.join(BLEU.TOKENIZERS)}")
        self._check_language()

    def _check_language(self) -> None:
        if self.text != "plain":
            if not self.language:
                name = f"protocol {self.protocol}" if self.protocol else f"text {self.text}"
                raise DocmtError(
                    f"metrics.{name} needs the language of the translations; "
                    "set metrics.language to its code, such as de"
                )
            moses_language(self.language, "metrics.language ")

    def convert(self, sentence: str) -> str:
        """A sentence in the form that BLEU compares."""
        if self.text == "plain":
            return sentence
        scripts = moses(self.language)
        tokens = scripts.tokenize(sentence, split_hyphens=self.text == "tokenized-hyphens")
        return scripts.detokenize(tokens) if self.text == "detokenized" else " ".join(tokens)

    def text_signature(self) -> str | None:
        """What a signature must say about the form of the text, None for plain text."""
        if self.text == "plain":
            return None
        return f"{self.text}.{moses_language(self.language)}.sacremoses-{version('sacremoses')}"

    def describe_protocol(self) -> str | None:
        """The protocol in words, with what it cannot reproduce."""
        if not self.protocol:
            return None
        protocol = PROTOCOLS[self.protocol]
        return f"protocol {self.protocol} ({protocol.paper}; {protocol.differs})"


def _written(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
