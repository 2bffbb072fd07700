"""Documents in, translated documents out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from docmt.data.instances import MARKS
from docmt.decoding.config import SearchConfig
from docmt.decoding.document import DocumentHypothesis
from docmt.decoding.frame import WordIds
from docmt.decoding.orders import translate_documents
from docmt.decoding.precision import Precision, computing_in, lower_precision
from docmt.decoding.scoring import score_documents
from docmt.decoding.task import packed_units
from docmt.documents import Document, one_line
from docmt.errors import DocmtError
from docmt.model_directory import load_languages, load_model, load_model_tokenizer
from docmt.progress import progress
from docmt.text import Side


@dataclass(frozen=True)
class TranslatedSentence:
    """One source sentence and what became of it."""

    source: str
    target: str
    score: float
    """log-probability (nats) of the target sentence"""
    source_span: tuple[int, int]
    """first character and the one after the last, in the source text"""
    target_span: tuple[int, int]
    """the same in the target text"""

    def to_json(self) -> dict[str, Any]:
        """For one line of JSONL."""
        return {
            "source": self.source,
            "target": self.target,
            "score": self.score,
            "source_span": list(self.source_span),
            "target_span": list(self.target_span),
        }


@dataclass(frozen=True)
class Translation:
    """A translated document: the gaps of the source around one target sentence per source sentence."""

    document: Document
    sentences: tuple[TranslatedSentence, ...]
    score: float
    """log-probability of the whole, normalised by length as in the search"""
    miscounted: tuple[tuple[int, int], ...] = ()
    """ranges of source sentences (first, after last) where the model gave another number of sentences: only the plain
    document system can; surplus sentences were joined to the last of the range, missing ones are empty"""
    at_limit: tuple[int, ...] = ()
    """sentences (from 0) that the length limit of the search ended, so that words may be missing"""
    overlong: tuple[int, ...] = ()
    """source sentences (from 0) of as many tokens as an instance of the training had at most, or more; each was
    translated alone"""
    alternatives: tuple[Translation, ...] = ()
    """further translations, best first, when n_best is above 1"""

    def text(self) -> str:
        """The translated text, laid out as the source was."""
        return self.document.text()

    def warnings(self) -> list[list[str]]:
        """What may be wrong with each sentence: `sentence_count`, `length_limit`, `long_source`, or nothing."""
        found: list[list[str]] = [[] for _ in self.sentences]
        joined = [number for first, last in self.miscounted for number in range(first, last)]
        for name, numbers in (
            ("sentence_count", joined),
            ("length_limit", self.at_limit),
            ("long_source", self.overlong),
        ):
            for number in numbers:
                found[number].append(name)
        return found


class Translator:
    """A model directory ready to translate and score documents."""

    def __init__(
        self,
        directory: Path | str,
        *,
        device: str = "cpu",
        search: SearchConfig | None = None,
        precision: Precision = "float32",
    ) -> None:
        """Loads the model. Raises DocmtError when the directory is missing, incomplete or damaged."""
        self.search = search or SearchConfig()
        self.precision = precision
        self.tokenizer = load_model_tokenizer(Path(directory))
        self.languages = load_languages(directory)
        """codes of the languages it translates from and to, empty where the model does not say"""
        self.model = lower_precision(load_model(Path(directory), device=device), precision)
        if self.tokenizer.vocabulary_size != self.model.config.vocabulary_size:
            raise DocmtError(
                f"the tokenizer in {directory} has {self.tokenizer.vocabulary_size} entries, but the model "
                f"{self.model.config.vocabulary_size}: they do not belong together, copy the directory again"
            )

    def translate(self, document: Document) -> Translation:
        """The translation of one document."""
        return self.translate_all([document])[0]

    def translate_all(self, documents: Sequence[Document]) -> list[Translation]:
        """Translations in the order of the documents, searched together in batches of similar length."""
        sources = [self._encode(document.sentences, "source") for document in documents]
        total = sum(map(len, sources))
        with computing_in(self.model, self.precision), progress("translating (sentences)", total) as bar:
            found = translate_documents(self.model, sources, self.tokenizer.specials, self.search, bar.advance)
        translations = []
        for document, source, hypotheses in zip(documents, sources, found, strict=True):
            best, *others = [self._translation(document, source, hypothesis) for hypothesis in hypotheses]
            translations.append(replace(best, alternatives=tuple(others)))
        return translations

    def score(self, source: Document, target: Document) -> Translation:
        """The given translation, sentence by sentence, with its log-probabilities."""
        return self.score_all([(source, target)])[0]

    def score_all(self, pairs: Sequence[tuple[Document, Document]]) -> list[Translation]:
        """Like `score` for many documents. Raises DocmtError where a pair has unequal numbers of sentences."""
        for source, target in pairs:
            if len(source.sentences) != len(target.sentences):
                raise DocmtError(
                    f"document {source.id or '?'} has {len(source.sentences)} source but {len(target.sentences)} "
                    "target sentences: give one target sentence for each"
                )
        sources = [self._encode(source.sentences, "source") for source, _ in pairs]
        targets = [self._encode(target.sentences, "target") for _, target in pairs]
        with computing_in(self.model, self.precision), progress("scoring (sentences)", sum(map(len, sources))) as bar:
            scored = score_documents(self.model, sources, targets, self.tokenizer.specials, self.search, bar.advance)
        return [
            self._with_scores(*pair, ids, hypothesis)
            for pair, ids, hypothesis in zip(pairs, sources, scored, strict=True)
        ]

    def instances(self, source: Sequence[str], target: Sequence[str]) -> list[tuple[int, int]]:
        """The instances (ranges of sentences) of a parallel document as in training: the published units of d-BLEU."""
        encoded = self._encode(source, "source"), self._encode(target, "target")
        source_lengths, target_lengths = ([len(ids) for ids in sentences] for sentences in encoded)
        return packed_units(self.model.config, source_lengths, target_lengths, [0, len(source)])[0]

    def _encode(self, sentences: Sequence[str], side: Side) -> list[list[int]]:
        # Hard-wrapped lines inside a sentence are one line to the model.
        return self.tokenizer.encode_batch([one_line(sentence) for sentence in sentences], side)

    def _translation(self, document: Document, ids: WordIds, hypothesis: DocumentHypothesis) -> Translation:
        texts = [one_line(text).strip() for text in self.tokenizer.decode_batch(hypothesis.sentences, "target")]
        return self._with_scores(document, document.replace_sentences(texts), ids, hypothesis)

    def _with_scores(
        self, source: Document, target: Document, ids: WordIds, hypothesis: DocumentHypothesis
    ) -> Translation:
        """ids: the word ids of the source sentences."""
        sentences = tuple(
            TranslatedSentence(*fields)
            for fields in zip(
                source.sentences,
                target.sentences,
                hypothesis.sentence_scores,
                source.spans(),
                target.spans(),
                strict=True,
            )
        )
        limit = self.model.config.instance_tokens
        return Translation(
            target,
            sentences,
            hypothesis.score,
            miscounted=tuple(hypothesis.miscounted),
            at_limit=tuple(hypothesis.at_limit),
            overlong=tuple(number for number, words in enumerate(ids) if len(words) + MARKS >= limit),
        )
