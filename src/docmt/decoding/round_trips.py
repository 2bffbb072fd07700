"""Sampled round trips: translations with the errors of a model, for training its repair (Voita et al. 2019)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from random import Random

from docmt.decoding.search_config import SearchConfig
from docmt.decoding.translator import Translator
from docmt.documents import Document
from docmt.documents.words import Span, find_words


def sample_round_trips(
    reverse: Translator,
    forward: Translator,
    documents: Sequence[Document],
    samples: int,
    temperature: float,
    seed: int,
    first: int = 0,
) -> list[tuple[Document, ...]]:
    """Translate documents with `reverse`, and back with `forward`, whose tokens are sampled.

    Return `samples` round trips of each document, with one sentence for each of its own. first: number of the first
    document in its corpus, from 0, so that equal documents have other samples. Raises DocmtError where a document
    cannot be translated.
    """
    sampler = forward.with_search(SearchConfig(beam=1, sampling=True, temperature=temperature, seed=seed))
    sources = [translation.document for translation in reverse.translate_all(documents)]
    repeated = [source for source in sources for _ in range(samples)]
    copies = range(first * samples, first * samples + len(repeated))
    sampled = iter([each.document for each in sampler.translate_all(repeated, copies=copies)])
    return [tuple(islice(sampled, samples)) for _ in documents]


def list_words(documents: Iterable[Document]) -> list[str]:
    """Return the distinct words of documents, without signs, in alphabetical order."""
    sentences = (sentence for document in documents for sentence in document.sentences)
    return sorted({sentence[first:last] for sentence in sentences for first, last in _find_words(sentence)})


def replace_words(sentence: str, share: float, vocabulary: Sequence[str], chance: Random) -> str:
    """Return a sentence in which each word is, with probability `share`, a random word of the vocabulary."""
    parts, end = [], 0
    for first, last in _find_words(sentence):
        if vocabulary and chance.random() < share:
            # `random` gives the same numbers in every version of Python, `choice` does not.
            parts += [sentence[end:first], vocabulary[int(chance.random() * len(vocabulary))]]
            end = last
    return "".join([*parts, sentence[end:]])


def _find_words(sentence: str) -> list[Span]:
    """Return the words that are no signs."""
    return [(first, last) for first, last in find_words(sentence) if sentence[first].isalnum()]
