"""Documents of any length, translated and scored piece by piece.

A piece is an instance of the model: sentences in document order, packed as in training. Pieces of one document are
independent; the caller sees whole documents.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch

from docmt.data import pack_source
from docmt.decoding.config import SearchConfig
from docmt.decoding.frame import WordIds
from docmt.decoding.search import Hypothesis, search, split_stream
from docmt.errors import DocmtError
from docmt.model import ModelConfig, TranslationModel, pack
from docmt.text import SpecialTokens


@dataclass(frozen=True)
class Piece:
    """Sentences first..last-1 of a document."""

    document: int
    first: int
    last: int


@dataclass(frozen=True)
class DocumentHypothesis:
    """A translation of a whole document: one (possibly empty) target sentence per source sentence."""

    sentences: list[list[int]]
    """word ids of each target sentence"""
    sentence_scores: list[float]
    """log-probability (nats) of each"""
    score: float
    """log-probability divided by (number of free tokens ** length_penalty)"""
    miscounted: list[Piece]
    """pieces whose translation had another number of sentences (plain document system only): surplus sentences are
    joined to the piece's last one, missing ones are empty"""
    at_limit: list[int]
    """sentences (from 0) that the length limit ended, so that words may be missing (of the plain document system the
    last sentence of a piece)"""


def cut(documents: Sequence[WordIds], model: ModelConfig, config: SearchConfig) -> list[Piece]:
    """Packs every document into pieces by the rule of training. Raises DocmtError where a sentence cannot fit."""
    pieces = []
    for number, document in enumerate(documents):
        lengths = [len(sentence) for sentence in document]
        limit = model.instance_tokens
        if model.position_encoding == "learned" and model.positions == "document":
            # The longest translation that the search may try must have positions too.
            lengths = [max(n, config.sentence_limit(n)) for n in lengths]
            limit = min(limit, model.max_positions)
            if lengths and max(lengths) + 2 > model.max_positions:
                sentence = lengths.index(max(lengths)) + 1
                raise DocmtError(
                    f"sentence {sentence} of the document may need {max(lengths) + 2} positions, but the model has "
                    f"{model.max_positions}: split the sentence, or use a model with sinusoidal positions"
                )
        most = 1 if model.system == "sentence" else max(len(document), 1)
        pieces += [Piece(number, a, b) for a, b in pack_source(lengths, limit=limit, max_sentences=most)]
    return pieces


def translate_documents(
    model: TranslationModel,
    documents: Sequence[WordIds],
    specials: SpecialTokens,
    config: SearchConfig,
    on_sentences: Callable[[int], object] = lambda count: None,
) -> list[list[DocumentHypothesis]]:
    """The best translations of each document (word ids without marks), best first.

    With `n_best` above 1 the j-th translation joins the j-th best of every piece. Empty sentences stay empty; the
    model does not see them. `on_sentences` is told how many more sentences are translated.
    """
    places = [[i for i, sentence in enumerate(document) if sentence] for document in documents]
    filled = [[document[i] for i in own] for document, own in zip(documents, places, strict=True)]
    pieces = cut(filled, model.config, config)
    on_sentences(sum(map(len, documents)) - sum(map(len, filled)))
    found: dict[Piece, list[Hypothesis]] = {}
    for batch in batches(filled, pieces, config.batch_tokens):
        sources = [filled[piece.document][piece.first : piece.last] for piece in batch]
        found.update(zip(batch, search(model, sources, specials, config), strict=True))
        on_sentences(sum(piece.last - piece.first for piece in batch))
    joined = []
    for number, own in enumerate(_by_document(pieces, len(documents))):
        ranks = [[_at(found[piece], rank) for piece in own] for rank in range(_ranks(own, found))]
        whole = [_join(own, hypotheses, filled[number], model.config.framed, config) for hypotheses in ranks]
        joined.append([_spread(hypothesis, places[number], len(documents[number])) for hypothesis in whole])
    return joined


def translate_ids(
    model: TranslationModel, documents: Sequence[WordIds], specials: SpecialTokens, config: SearchConfig
) -> list[list[list[int]]]:
    """The best translation of each document: one list of word ids per source sentence."""
    return [found[0].sentences for found in translate_documents(model, documents, specials, config)]


@torch.inference_mode()
def score_documents(
    model: TranslationModel,
    sources: Sequence[WordIds],
    targets: Sequence[WordIds],
    specials: SpecialTokens,
    config: SearchConfig,
    on_sentences: Callable[[int], object] = lambda count: None,
) -> list[DocumentHypothesis]:
    """The given translations with the log-probabilities that the search would have given them.

    sources and targets: documents of the same numbers of sentences of word ids. The context is the translator's:
    the same pieces; a sentence exactly at its length limit has its `</s>` forced there, so it costs nothing here.
    Pairs of empty sentences cost nothing either. Raises ValueError where the counts of sentences differ.
    """
    places, counts = [], [len(document) for document in sources]
    for source_document, target_document in zip(sources, targets, strict=True):
        both = enumerate(zip(source_document, target_document, strict=True))
        places.append([i for i, (one, other) in both if one or other])
    sources, targets = (
        [[document[i] for i in own] for document, own in zip(side, places, strict=True)] for side in (sources, targets)
    )
    pieces = cut(sources, model.config, config)
    on_sentences(sum(counts) - sum(map(len, sources)))
    found: dict[Piece, Hypothesis] = {}
    for batch in batches(sources, pieces, config.batch_tokens):
        source = [sources[piece.document][piece.first : piece.last] for piece in batch]
        target = [targets[piece.document][piece.first : piece.last] for piece in batch]
        found.update(zip(batch, _score(model, source, target, specials, config), strict=True))
        on_sentences(sum(piece.last - piece.first for piece in batch))
    joined = []
    for number, own in enumerate(_by_document(pieces, len(sources))):
        whole = _join(own, [found[piece] for piece in own], sources[number], model.config.framed, config)
        joined.append(_spread(whole, places[number], counts[number]))
    return joined


def batches(documents: Sequence[WordIds], pieces: Sequence[Piece], batch_tokens: int) -> Iterator[list[Piece]]:
    """Pieces of similar length together, longest first, at most `batch_tokens` tokens a batch, padding included."""

    def tokens(piece: Piece) -> int:
        return sum(len(sentence) + 2 for sentence in documents[piece.document][piece.first : piece.last])

    batch: list[Piece] = []
    longest = 0
    for size, piece in sorted(((tokens(piece), piece) for piece in pieces), key=lambda item: -item[0]):
        if batch and longest * (len(batch) + 1) > batch_tokens:
            yield batch
            batch = []
        longest = size if not batch else longest
        batch.append(piece)
    if batch:
        yield batch


def _score(
    model: TranslationModel,
    sources: Sequence[WordIds],
    targets: Sequence[WordIds],
    specials: SpecialTokens,
    config: SearchConfig,
) -> list[Hypothesis]:
    """Force decoding of one batch."""
    source = pack([[[specials.bos, *s, specials.eos] for s in document] for document in sources]).to(model.device)
    target = pack([[[specials.bos, *s, specials.eos] for s in document] for document in targets]).to(model.device)
    states = model(source, target)  # [T, d]
    labels = torch.cat((target.tokens[1:], target.tokens[:1]))
    ends = (target.documents.ends - 1).to(labels.device)
    labels[ends] = specials.eod
    scores = torch.cat(
        [
            -torch.nn.functional.cross_entropy(
                model.project(part).float() / config.temperature, part_labels, reduction="none"
            )
            for part, part_labels in zip(states.split(512), labels.split(512), strict=True)
        ]
    )
    hypotheses = []
    sizes = target.documents.lengths.tolist()
    for own_source, own_target, own_labels, own_scores in zip(
        sources, targets, labels.split(sizes), scores.split(sizes), strict=True
    ):
        stream, worth = own_labels.tolist(), own_scores.tolist()
        free = len(stream)
        if model.config.framed:
            position = -1
            for source_sentence, target_sentence in zip(own_source, own_target, strict=True):
                position += len(target_sentence) + 2  # at the mark after `</s>`, which is always forced
                worth[position] = 0.0
                free -= 1
                if len(target_sentence) == config.sentence_limit(len(source_sentence)):
                    worth[position - 1] = 0.0
                    free -= 1
        if config.as_published:
            free = len(stream)
        sentences, sentence_scores = split_stream(stream, worth, specials)
        score = sum(sentence_scores) / max(free, 1) ** config.length_penalty
        hypotheses.append(Hypothesis(sentences, sentence_scores, score, free))
    return hypotheses


def _by_document(pieces: Sequence[Piece], documents: int) -> list[list[Piece]]:
    """The pieces of each document, in order."""
    found: list[list[Piece]] = [[] for _ in range(documents)]
    for piece in pieces:
        found[piece.document].append(piece)
    return found


def _ranks(pieces: Sequence[Piece], found: dict[Piece, list[Hypothesis]]) -> int:
    return max((len(found[piece]) for piece in pieces), default=1)


def _at(hypotheses: list[Hypothesis], rank: int) -> Hypothesis:
    return hypotheses[min(rank, len(hypotheses) - 1)]


def _join(
    pieces: Sequence[Piece], hypotheses: Sequence[Hypothesis], source: WordIds, framed: bool, config: SearchConfig
) -> DocumentHypothesis:
    """One document from its pieces, each with exactly as many target sentences as it has source sentences."""
    sentences: list[list[int]] = []
    scores: list[float] = []
    miscounted, at_limit = [], []
    for piece, hypothesis in zip(pieces, hypotheses, strict=True):
        count = piece.last - piece.first
        own, own_scores = list(hypothesis.sentences), list(hypothesis.sentence_scores)
        limits = [config.sentence_limit(len(sentence)) for sentence in source[piece.first : piece.last]]
        if framed:
            pairs = zip(range(piece.first, piece.last), own, limits, strict=True)
            at_limit += [number for number, sentence, limit in pairs if len(sentence) >= limit]
        elif hypothesis.free_tokens > sum(limits) + 2 * count:
            at_limit.append(piece.last - 1)
        if len(own) != count:
            miscounted.append(piece)
            surplus = [word for sentence in own[count:] for word in sentence]
            own = own[:count] + [[]] * (count - len(own))
            own[-1] = own[-1] + surplus
            own_scores = [*own_scores[: count - 1], sum(own_scores[count - 1 :])] + [0.0] * (count - len(own_scores))
        sentences += own
        scores += own_scores[:count]
    free = sum(hypothesis.free_tokens for hypothesis in hypotheses)
    score = sum(scores) / max(free, 1) ** config.length_penalty
    return DocumentHypothesis(sentences, scores, score, miscounted, at_limit)


def _spread(found: DocumentHypothesis, places: Sequence[int], count: int) -> DocumentHypothesis:
    """The same for a document of `count` sentences, of which the model saw those at `places`; others are empty."""
    if len(places) == count:
        return found
    sentences: list[list[int]] = [[] for _ in range(count)]
    scores = [0.0] * count
    for place, sentence, score in zip(places, found.sentences, found.sentence_scores, strict=True):
        sentences[place], scores[place] = sentence, score
    miscounted = [
        replace(piece, first=places[piece.first], last=places[piece.last - 1] + 1) for piece in found.miscounted
    ]
    return DocumentHypothesis(sentences, scores, found.score, miscounted, [places[number] for number in found.at_limit])
