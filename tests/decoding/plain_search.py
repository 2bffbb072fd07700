"""Tiny models, and a plain search written down without caches or batches that ours is compared with."""

from dataclasses import dataclass, field

import torch

from docmt import decoding
from docmt.decoding import search
from docmt.decoding.models import common_context_spec, members_of
from docmt.decoding.rules import SearchRow, TargetBoundaries
from docmt.model import ModelConfig, ModelInput, TranslationModel, pack
from docmt.model.scope import BoundaryTokens
from docmt.text import SpecialTokens

SPECIALS = SpecialTokens(vocabulary_size=30)
SIZES = {"width": 16, "feed_forward": 32, "heads": 2, "encoder_layers": 2, "decoder_layers": 3, "vocabulary_size": 30}
DOCUMENTS = [
    [[5, 6, 7], [8], [9, 10, 11, 12]],
    [[13, 14]],
    [[4, 5], [6, 7, 8, 9, 10, 11], [12], [13, 14, 15], [16, 17]],
]
SHORT = {"max_length_ratio": 1.0, "max_length_extra": 3.0}


def build(seed: int = 1, **options) -> TranslationModel:
    torch.manual_seed(seed)
    model = TranslationModel(ModelConfig(**{**SIZES, "dropout": 0.0, **options}))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model.eval()


def joins(model):
    """Whether sentences are joined by one mark, `<s>`, and the last is closed by `</s>` (`BoundaryTokens`)."""
    return members_of(model)[0].parts.frame.joined


def marked(document, joined=False):
    """A source, or (if its sentences are not joined) decoder input."""
    if not joined:
        return [[SPECIALS.bos, *sentence, SPECIALS.eos] for sentence in document]
    *others, last = document
    return [*([*sentence, SPECIALS.bos] for sentence in others), [*last, SPECIALS.eos]]


def shifted(document):
    """Joined decoder input."""
    return [[SPECIALS.bos if number else SPECIALS.eos, *sentence] for number, sentence in enumerate(document)]


def drafts_of(documents):
    """A first translation of every sentence, which depends on nothing but its words."""
    return [[[4 + (3 * word + 1) % 21 for word in sentence] for sentence in document] for document in documents]


def inputs_of(model, documents, aligned=None, target=None):
    """What the model reads of source documents (by default to translate all sentences), with drafts if it needs any."""
    sentences = sum(map(len, documents))
    source, drafts = (
        pack([marked(document, joins(model)) for document in side]) for side in (documents, drafts_of(documents))
    )
    return ModelInput(
        source,
        torch.arange(sentences) if aligned is None else torch.tensor(aligned),
        target,
        drafts=drafts if common_context_spec(model).drafts else None,
    )


def translate_documents(model, documents, *options, **more):
    """With drafts."""
    return decoding.translate_documents(model, documents, *options, drafts=drafts_of(documents), **more)


def score_documents(model, sources, *options, **more):
    """With drafts."""
    return decoding.score_documents(model, sources, *options, drafts=drafts_of(sources), **more)


def search_documents(model, documents, config):
    """Every document as a row of one search."""
    inputs = inputs_of(model, documents)
    rows, first = [], 0
    for document in documents:
        rows.append(SearchRow(range(first, first + len(document)), [len(sentence) for sentence in document]))
        first += len(document)
    return search(model, model.memories(inputs), rows, SPECIALS, config)


@dataclass
class Piece:
    """What one plain search translates: some sentences of a source, after a forced prefix."""

    source: list
    aligned: list[int]
    prefix: list = field(default_factory=list)

    @classmethod
    def whole(cls, document):
        return cls(document, list(range(len(document))))

    def forced(self, joined):
        marks = [SPECIALS.bos] if joined else [SPECIALS.eos, SPECIALS.bos]
        return [token for sentence in self.prefix for token in (*sentence, *marks)]


def next_scores(model, piece, said):
    """Log-probabilities of every next token after the stream `said`, by the full forward pass.

    Those of an ensemble are of the mean of its members' probabilities.
    """
    sentences = []
    for token in [SPECIALS.eos if joins(model) else SPECIALS.bos, *said]:
        if token == SPECIALS.bos or not sentences:
            sentences.append([])
        sentences[-1].append(token)
    # The forward pass wants as many target sentences as are aligned; those not yet begun must not matter.
    sentences += [[SPECIALS.bos]] * (len(piece.aligned) - len(sentences))
    inputs = inputs_of(model, [piece.source], piece.aligned, pack([sentences]))
    found = [own.project(own(inputs)[len(said)]).softmax(-1) for own in members_of(model)]
    return (sum(found) / len(found)).log()


def plain_rules(model, piece, said, config):
    """What must come next, or None; and what may not."""
    limits = [config.sentence_limit(len(piece.source[number])) for number in piece.aligned]
    if model.system.rules == "open":
        full = len(said) >= sum(limits) + 2 * len(limits)
        others = [token for token in range(SPECIALS.vocabulary_size) if token != SPECIALS.eod]
        return None, others if full else [SPECIALS.pad, SPECIALS.unk, SPECIALS.mask]
    joined = joins(model)
    if len(said) < len(piece.forced(joined)):
        return piece.forced(joined)[len(said)], []
    number = said.count(SPECIALS.bos)
    words = len(said) - (max(i for i, t in enumerate(said) if t == SPECIALS.bos) + 1 if number else 0)
    is_last = number + 1 == len(limits)
    if said and said[-1] == SPECIALS.eos:
        return SPECIALS.eod if is_last else SPECIALS.bos, []
    closing, other = (SPECIALS.bos, SPECIALS.eos) if joined and not is_last else (SPECIALS.eos, SPECIALS.bos)
    if words == limits[number]:
        return closing, []
    never = [other, SPECIALS.pad, SPECIALS.unk, SPECIALS.eod, SPECIALS.mask]
    return None, [*never, closing] if words < config.min_length else never


@torch.no_grad()
def plain_beam_search(model, piece, config):
    """Beam search over one piece that recomputes every prefix; returns (score, tokens) best first."""
    end = SPECIALS.eos if joins(model) else SPECIALS.eod
    beams, ended = [(0.0, 0, [])], []
    while beams and len(ended) < config.beam:
        candidates = []
        for total, free, said in beams:
            forced, never = plain_rules(model, piece, said, config)
            if forced is not None:
                candidates.append((total, free, [*said, forced]))
                continue
            scores = next_scores(model, piece, said)
            scores[never] = -torch.inf
            values, tokens = scores.topk(2 * config.beam)
            candidates += [
                (total + v, free + 1, [*said, t])
                for v, t in zip(values.tolist(), tokens.tolist(), strict=True)
                if v > -float("inf")
            ]
        candidates = sorted(candidates, key=lambda c: -c[0])[: 2 * config.beam]
        for i, (total, free, said) in enumerate(candidates):
            if said[-1] == end and i < config.beam:
                ended.append((total / free**config.length_penalty, said))
        beams = [c for c in candidates if c[2][-1] != end][: config.beam]
    return sorted(ended[: config.beam], key=lambda e: -e[0])


@torch.no_grad()
def greedy(model, piece, config):
    """The best next token again and again, written down without beams."""
    said, end = [], SPECIALS.eos if joins(model) else SPECIALS.eod
    while not said or said[-1] != end:
        forced, never = plain_rules(model, piece, said, config)
        if forced is None:
            scores = next_scores(model, piece, said)
            scores[never] = -torch.inf
            forced = int(scores.argmax())
        said.append(forced)
    return said


def words_of(said):
    """The sentences of a whole stream; one of joined sentences has no <eod>."""
    joined = BoundaryTokens.written("w </s>", "<s> w", joined=True)
    return TargetBoundaries(SPECIALS, BoundaryTokens() if said[-1] == SPECIALS.eod else joined).split(
        said, [0.0] * len(said)
    )[0]


def plainly_translated(model, document, find):
    """A document in the order of its system; `find` gives the stream of tokens that translates a piece.

    Written down from what each system is: the whole document; each sentence, with those before it to look at;
    windows of which only the last sentence is kept; or windows whose first sentences are the document's own so far.
    Windows of a system that looks back by itself are the whole document.
    """
    if model.system.order == "documents":
        return words_of(find(Piece.whole(document)))
    said = []
    for number in range(len(document)):
        if model.system.order == "sentences":
            said.append(words_of(find(Piece(document[: number + 1], [number])))[0])
            continue
        first = 0 if model.system.context_spec().shown else max(number + 1 - model.system.sentences, 0)
        piece = Piece.whole(document[first : number + 1])
        piece.prefix = said[first:] if model.system.order == "in turn" else []
        said.append(words_of(find(piece))[-1])
    return said
