"""Tiny models, and a reference search without caches or batches, with which docmt's search is compared."""

from dataclasses import dataclass, field, replace

import torch

from docmt import decoding
from docmt.decoding import ContextConfig, search
from docmt.decoding.ensembles import combine_context_specs, list_members
from docmt.decoding.scheduler import sees_translations
from docmt.decoding.search_rules import SearchRow, TargetBoundaries
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
SHORT_LIMITS = {"max_length_ratio": 1.0, "max_length_extra": 3.0}


def build(seed: int = 1, **options) -> TranslationModel:
    torch.manual_seed(seed)
    model = TranslationModel(ModelConfig(**{**SIZES, "dropout": 0.0, **options}))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model.eval()


def is_joined(model):
    """Return whether sentences are joined by `<s>` and the last is closed by `</s>` (`BoundaryTokens`)."""
    return list_members(model)[0].boundary_tokens.joined


def add_boundaries(document, joined=False):
    """Return a source, or decoder input of sentences that are not joined."""
    if not joined:
        return [[SPECIALS.bos, *sentence, SPECIALS.eos] for sentence in document]
    *earlier, last = document
    return [*([*sentence, SPECIALS.bos] for sentence in earlier), [*last, SPECIALS.eos]]


def shift_joined(document):
    """Return the decoder input of joined sentences."""
    return [[SPECIALS.bos if number else SPECIALS.eos, *sentence] for number, sentence in enumerate(document)]


def make_drafts(documents):
    """Return a first translation of every sentence, which depends on its words alone."""
    return [[[4 + (3 * word + 1) % 21 for word in sentence] for sentence in document] for document in documents]


def make_inputs(model, documents, aligned=None, target=None):
    """Return the model input of source documents (by default all sentences are translated), with drafts if needed."""
    sentences = sum(map(len, documents))
    source, drafts = (
        pack([add_boundaries(document, is_joined(model)) for document in side])
        for side in (documents, make_drafts(documents))
    )
    return ModelInput(
        source,
        torch.arange(sentences) if aligned is None else torch.tensor(aligned),
        target,
        drafts=drafts if combine_context_specs(model).drafts else None,
    )


def one_by_one(model, config):
    """Return the search in which a decoder that sees earlier translations sees final ones alone."""
    return replace(config, sequential=sees_translations(ContextConfig(), model.system))


def translate_documents(model, documents, *options, **settings):
    """Translate with drafts."""
    return decoding.translate_documents(model, documents, *options, drafts=make_drafts(documents), **settings)


def score_documents(model, sources, *options, **settings):
    """Score with drafts."""
    return decoding.score_documents(model, sources, *options, drafts=make_drafts(sources), **settings)


def search_documents(model, documents, config):
    """Search every document as a row of one batch."""
    inputs = make_inputs(model, documents)
    rows, first = [], 0
    for document in documents:
        rows.append(SearchRow(range(first, first + len(document)), [len(sentence) for sentence in document]))
        first += len(document)
    return search(model, model.compute_memories(inputs), rows, SPECIALS, config)


@dataclass
class ReferenceRow:
    """Sentences of a source that one reference search translates, after a forced prefix."""

    source: list
    aligned: list[int]
    prefix: list = field(default_factory=list)

    @classmethod
    def whole(cls, document):
        return cls(document, list(range(len(document))))

    def forced(self, joined):
        separators = [SPECIALS.bos] if joined else [SPECIALS.eos, SPECIALS.bos]
        return [token for sentence in self.prefix for token in (*sentence, *separators)]


def compute_states(model, row, tokens):
    """Return the decoder states of each member after `tokens`, by the full forward pass."""
    sentences = []
    for token in [SPECIALS.eos if is_joined(model) else SPECIALS.bos, *tokens]:
        if token == SPECIALS.bos or not sentences:
            sentences.append([])
        sentences[-1].append(token)
    # The forward pass wants as many target sentences as are aligned; those not yet begun must not matter.
    sentences += [[SPECIALS.bos]] * (len(row.aligned) - len(sentences))
    inputs = make_inputs(model, [row.source], row.aligned, pack([sentences]))
    return [member(inputs)[len(tokens)] for member in list_members(model)]


def score_states(model, states):
    """Return log-probabilities of every next token: those of the mean of the members' probabilities."""
    pairs = zip(list_members(model), states, strict=True)
    probabilities = [member.project(state).softmax(-1) for member, state in pairs]
    return (sum(probabilities) / len(probabilities)).log()


def score_next(model, row, tokens):
    """Return log-probabilities of every next token after `tokens`."""
    return score_states(model, compute_states(model, row, tokens))


def reference_rules(model, row, tokens, config):
    """Return the token that must come next, or None, and the tokens that may not."""
    limits = [config.sentence_limit(len(row.source[number])) for number in row.aligned]
    if model.system.rules == "open":
        full = len(tokens) >= sum(limits) + 2 * len(limits)
        other_tokens = [token for token in range(SPECIALS.vocabulary_size) if token != SPECIALS.eod]
        return None, other_tokens if full else [SPECIALS.pad, SPECIALS.unk, SPECIALS.mask]
    joined = is_joined(model)
    if len(tokens) < len(row.forced(joined)):
        return row.forced(joined)[len(tokens)], []
    number = tokens.count(SPECIALS.bos)
    words = len(tokens) - (max(i for i, t in enumerate(tokens) if t == SPECIALS.bos) + 1 if number else 0)
    is_last = number + 1 == len(limits)
    if tokens and tokens[-1] == SPECIALS.eos:
        return SPECIALS.eod if is_last else SPECIALS.bos, []
    closing, other = (SPECIALS.bos, SPECIALS.eos) if joined and not is_last else (SPECIALS.eos, SPECIALS.bos)
    if words == limits[number]:
        return closing, []
    never = [other, SPECIALS.pad, SPECIALS.unk, SPECIALS.eod, SPECIALS.mask]
    return None, [*never, closing] if words < config.min_length else never


@torch.no_grad()
def reference_beam_search(model, row, config):
    """Search with beams over one row, recomputing every prefix; return (score, tokens), best first."""
    end = SPECIALS.eos if is_joined(model) else SPECIALS.eod
    beams, ended = [(0.0, 0, [])], []
    while beams and len(ended) < config.beam:
        candidates = []
        for total, free, generated in beams:
            forced, never = reference_rules(model, row, generated, config)
            if forced is not None:
                candidates.append((total, free, [*generated, forced]))
                continue
            scores = score_next(model, row, generated)
            scores[never] = -torch.inf
            values, tokens = scores.topk(2 * config.beam)
            candidates += [
                (total + v, free + 1, [*generated, t])
                for v, t in zip(values.tolist(), tokens.tolist(), strict=True)
                if v > -float("inf")
            ]
        candidates = sorted(candidates, key=lambda c: -c[0])[: 2 * config.beam]
        for i, (total, free, generated) in enumerate(candidates):
            if generated[-1] == end and i < config.beam:
                ended.append((total / free**config.length_penalty, generated))
        beams = [c for c in candidates if c[2][-1] != end][: config.beam]
    return sorted(ended[: config.beam], key=lambda e: -e[0])


@torch.no_grad()
def greedy_search(model, row, config):
    """Return the tokens of a greedy search, written without beams."""
    generated, end = [], SPECIALS.eos if is_joined(model) else SPECIALS.eod
    while not generated or generated[-1] != end:
        forced, never = reference_rules(model, row, generated, config)
        if forced is None:
            scores = score_next(model, row, generated)
            scores[never] = -torch.inf
            forced = int(scores.argmax())
        generated.append(forced)
    return generated


def split_words(tokens):
    """Return the sentences of a whole stream; one of joined sentences has no `<eod>`."""
    joined = BoundaryTokens.parse("w </s>", "<s> w", joined=True)
    return TargetBoundaries(SPECIALS, BoundaryTokens() if tokens[-1] == SPECIALS.eod else joined).split_sentences(
        tokens, [0.0] * len(tokens)
    )[0]


def reference_translation(model, document, search):
    """Translate a document in the order of its system; `search` returns the tokens of one row.

    Written from the definition of each system: the whole document; each sentence, with the earlier ones as context;
    windows of which only the last sentence is kept; or windows whose first sentences are the earlier translations.
    Windows of a system that attends to earlier translations are the whole document.
    """
    if model.system.decoding_order == "documents":
        return split_words(search(ReferenceRow.whole(document)))
    translations = []
    for number in range(len(document)):
        if model.system.decoding_order == "sentences":
            translations.append(split_words(search(ReferenceRow(document, [number])))[0])
            continue
        first = 0 if model.system.context_spec().target_context else max(number + 1 - model.system.sentences, 0)
        row = ReferenceRow.whole(document[first : number + 1])
        row.prefix = translations[first:] if model.system.decoding_order == "sequential" else []
        translations.append(split_words(search(row))[-1])
    return translations
