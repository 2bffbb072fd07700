"""The search against a plain one that recomputes everything; frames, limits, batches, scores."""

import pytest
import torch

from docmt.decoding import SearchConfig, score_documents, search, translate_documents
from docmt.decoding.incremental import IncrementalDecoder
from docmt.decoding.search import split_stream
from docmt.model import ModelConfig, TranslationModel, pack
from docmt.text import SpecialTokens

SPECIALS = SpecialTokens(vocabulary_size=30)
SIZES = {"width": 16, "feed_forward": 32, "heads": 2, "encoder_layers": 2, "decoder_layers": 3, "vocabulary_size": 30}
DOCUMENTS = [
    [[5, 6, 7], [8], [9, 10, 11, 12]],
    [[13, 14]],
    [[4, 5], [6, 7, 8, 9, 10, 11], [12], [13, 14, 15], [16, 17]],
]
SYSTEMS = {
    "group": {},
    "group, top layer, positions by sentence": {
        "encoder_global_layers": 1,
        "decoder_global_layers": 1,
        "cross_global_layers": 1,
        "positions": "sentence",
    },
    "group only": {"encoder_global_layers": 0, "decoder_global_layers": 0, "cross_global_layers": 0},
    "global top": {"top_attention": "global", "normalization": "pre"},
    "document": {"system": "document"},
}
SHORT = {"max_length_ratio": 1.0, "max_length_extra": 3.0}


def build(seed: int = 1, **options) -> TranslationModel:
    torch.manual_seed(seed)
    model = TranslationModel(ModelConfig(**{**SIZES, "dropout": 0.0, **options}))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model.eval()


def marked(document):
    return [[SPECIALS.bos, *sentence, SPECIALS.eos] for sentence in document]


def next_scores(model, document, said):
    """Log-probabilities of every next token after the stream `said`, by the full forward pass."""
    sentences = []
    for token in [SPECIALS.bos, *said]:
        if token == SPECIALS.bos:
            sentences.append([])
        sentences[-1].append(token)
    source = marked(document)
    # The forward pass wants as many source as target sentences; those not yet begun must not matter.
    missing = [[SPECIALS.bos]] * (len(source) - len(sentences))
    rows = len(said) + 1
    return model.logits([(source, sentences + missing)])[0][rows - 1].log_softmax(-1)


def plain_beam_search(model, document, config):
    """Framed beam search over one document that recomputes every prefix; returns (score, tokens) best first."""
    limits = [config.sentence_limit(len(sentence)) for sentence in document]
    never = [SPECIALS.bos, SPECIALS.pad, SPECIALS.unk, SPECIALS.eod, SPECIALS.mask]
    beams, ended = [(0.0, 0, [])], []
    while beams and len(ended) < config.beam:
        candidates = []
        for total, free, said in beams:
            closed = said and said[-1] == SPECIALS.eos
            number = said.count(SPECIALS.bos)
            words = len(said) - (max(i for i, t in enumerate(said) if t == SPECIALS.bos) + 1 if number else 0)
            if closed:
                forced = SPECIALS.bos if number + 1 < len(document) else SPECIALS.eod
                candidates.append((total, free, [*said, forced]))
            elif words == limits[number]:
                candidates.append((total, free, [*said, SPECIALS.eos]))
            else:
                scores = next_scores(model, document, said)
                scores[never] = -torch.inf
                if words < config.min_length:
                    scores[SPECIALS.eos] = -torch.inf
                values, tokens = scores.topk(2 * config.beam)
                candidates += [
                    (total + v, free + 1, [*said, t]) for v, t in zip(values.tolist(), tokens.tolist(), strict=True)
                ]
        candidates = sorted(candidates, key=lambda c: -c[0])[: 2 * config.beam]
        for i, (total, free, said) in enumerate(candidates):
            if said[-1] == SPECIALS.eod and i < config.beam:
                ended.append((total / free**config.length_penalty, said))
        beams = [c for c in candidates if c[2][-1] != SPECIALS.eod][: config.beam]
    return sorted(ended[: config.beam], key=lambda e: -e[0])


def words_of(said):
    return split_stream(said, [0.0] * len(said), SPECIALS)[0]


@pytest.mark.parametrize("system", ["group", "group only", "global top", "group, top layer, positions by sentence"])
@pytest.mark.parametrize("settings", [{"beam": 1}, {"beam": 3, "length_penalty": 0.6}, {"beam": 4, "min_length": 3}])
def test_search_equals_the_plain_one(system, settings):
    model = build(**SYSTEMS[system])
    config = SearchConfig(**settings, **SHORT, n_best=settings["beam"])
    for document in DOCUMENTS[:2]:
        expected = plain_beam_search(model, document, config)
        found = search(model, [document], SPECIALS, config)[0]
        assert [h.sentences for h in found] == [words_of(said) for _, said in expected]
        assert [h.score for h in found] == pytest.approx([score for score, _ in expected], abs=1e-4)


@pytest.mark.parametrize("system", SYSTEMS)
def test_beam_one_is_greedy(system):
    model = build(**SYSTEMS[system])
    config = SearchConfig(beam=1, **SHORT)
    document = DOCUMENTS[0]
    said = []
    limits = [config.sentence_limit(len(sentence)) for sentence in document]
    if system == "document":
        while not said or said[-1] != SPECIALS.eod:
            source = pack([marked(document)])
            # One target "sentence" in the eyes of the packer: the plain system does not look at sentences.
            target = pack([[[SPECIALS.bos, *said]]])
            scores = model.project(model.decode(model.encode(source), source, target))[-1]
            scores[[SPECIALS.pad, SPECIALS.unk, SPECIALS.mask]] = -torch.inf
            full = len(said) >= sum(limits) + 2 * len(limits)
            said.append(SPECIALS.eod if full else int(scores.argmax()))
    else:
        for number, limit in enumerate(limits):
            start = len(said)
            while len(said) - start < limit:
                scores = next_scores(model, document, said)
                scores[[SPECIALS.bos, SPECIALS.pad, SPECIALS.unk, SPECIALS.eod, SPECIALS.mask]] = -torch.inf
                if len(said) == start:
                    scores[SPECIALS.eos] = -torch.inf
                said.append(int(scores.argmax()))
                if said[-1] == SPECIALS.eos:
                    break
            if said[-1] != SPECIALS.eos:
                said.append(SPECIALS.eos)
            said.append(SPECIALS.bos if number + 1 < len(limits) else SPECIALS.eod)
    assert search(model, [document], SPECIALS, config)[0][0].sentences == words_of(said)


@pytest.mark.parametrize("system", SYSTEMS)
def test_cached_steps_equal_the_full_forward_pass_after_reordering(system):
    model = build(**SYSTEMS[system])
    beams, document = 3, DOCUMENTS[2]
    streams = [marked([[20, 21], [22], [23, 24, 25], [19], [18]]) for _ in range(beams)]
    for beam, stream in enumerate(streams):
        stream[2][1] = 10 + beam  # alike until the third sentence
    source = pack([marked(document)])
    decoder = IncrementalDecoder(model, model.encode(source), source, beams)
    order = torch.arange(beams)
    expected = torch.stack([model(source, pack([stream])) for stream in streams])  # [B, T, d]
    tokens = [[token for sentence in stream for token in sentence] for stream in streams]
    places = [(number, offset) for number, s in enumerate(streams[0]) for offset in range(len(s))]
    shared = 0
    with torch.inference_mode():
        for step, (number, offset) in enumerate(places):
            states = decoder.step(
                torch.tensor([tokens[b][step] for b in order.tolist()]),
                step,
                torch.full((beams,), offset),
                torch.full((beams,), number),
            )
            torch.testing.assert_close(states, expected[order, step], atol=2e-5, rtol=1e-4)
            new = order[torch.tensor([1, 2, 0])]
            decoder.reorder(torch.tensor([1, 2, 0]))
            order = new
            if step == 4:  # the first five positions are the same in all beams
                decoder.share(5 - shared)


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("beam", [1, 4])
def test_batched_equals_single(system, beam):
    model = build(**SYSTEMS[system])
    config = SearchConfig(beam=beam, n_best=beam)
    together = search(model, DOCUMENTS, SPECIALS, config)
    for document, found in zip(DOCUMENTS, together, strict=True):
        alone = search(model, [document], SPECIALS, config)[0]
        assert [h.sentences for h in found] == [h.sentences for h in alone]
        assert [h.score for h in found] == pytest.approx([h.score for h in alone], abs=1e-5)


@pytest.mark.parametrize("system", SYSTEMS)
def test_score_of_a_translation_is_the_translators_own(system):
    model = build(**SYSTEMS[system])
    config = SearchConfig(beam=4, max_length_ratio=1.2, max_length_extra=2.0)
    translated = [found[0] for found in translate_documents(model, DOCUMENTS, SPECIALS, config)]
    kept = [i for i, hypothesis in enumerate(translated) if not hypothesis.miscounted]
    assert kept or system == "document"
    scored = score_documents(
        model, [DOCUMENTS[i] for i in kept], [translated[i].sentences for i in kept], SPECIALS, config
    )
    for i, own in zip(kept, scored, strict=True):
        assert own.sentences == translated[i].sentences
        assert own.sentence_scores == pytest.approx(translated[i].sentence_scores, abs=1e-4)
        assert own.score == pytest.approx(translated[i].score, abs=1e-5)


def test_plain_document_scores_agree_when_the_stream_is_well_formed():
    """A model that likes sentence marks, so that the unframed search gives the right number of sentences."""
    model = build(system="document")
    wanted = [[[20], [21], [22]], [[23]]]
    sources = DOCUMENTS[:2]
    scored = score_documents(model, sources, wanted, SPECIALS, SearchConfig())
    for source, target, own in zip(sources, wanted, scored, strict=True):
        labels = [*[token for sentence in marked(target) for token in sentence][1:], SPECIALS.eod]
        scores = model.logits([(marked(source), marked(target))])[0].log_softmax(-1)
        assert sum(own.sentence_scores) == pytest.approx(scores[range(len(labels)), labels].sum().item(), abs=1e-4)
        assert own.score == pytest.approx(sum(own.sentence_scores) / len(labels), abs=1e-5)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("system", [name for name in SYSTEMS if name != "document"])
def test_every_source_sentence_has_one_target_sentence_whatever_the_weights(system, seed):
    model = build(seed, **SYSTEMS[system])
    config = SearchConfig(beam=3, min_length=2)
    for document, found in zip(DOCUMENTS, translate_documents(model, DOCUMENTS, SPECIALS, config), strict=True):
        assert len(found[0].sentences) == len(document)
        assert not found[0].miscounted
        for source, target in zip(document, found[0].sentences, strict=True):
            assert 2 <= len(target) <= config.sentence_limit(len(source))
            assert all(SPECIALS.first_word <= token < SPECIALS.eod for token in target)


@pytest.mark.parametrize("system", SYSTEMS)
def test_what_the_length_limit_ended_is_told(system):
    config = SearchConfig(beam=2, max_length_ratio=0.0, max_length_extra=8.0)
    told = set()
    for seed in range(8):
        model = build(seed, **SYSTEMS[system])
        with torch.no_grad():
            model.tokens.weight[[SPECIALS.eos, SPECIALS.eod]] *= 1.5  # ends are likely
        for document, (found,) in zip(DOCUMENTS, translate_documents(model, DOCUMENTS, SPECIALS, config), strict=True):
            told.update(number in found.at_limit for number in range(len(document)))
            if system != "document":
                assert found.at_limit == [i for i, sentence in enumerate(found.sentences) if len(sentence) == 8]
            else:
                # The marks are in the limit, and those between joined sentences are not in the words.
                marks = 2 * len(document)
                words = sum(map(len, found.sentences))
                assert found.at_limit == [len(document) - 1] or words < 8 * len(document) + marks
                assert not found.at_limit or found.miscounted or words > 8 * len(document) - marks
    assert told == {True, False}


@pytest.mark.parametrize("system", SYSTEMS)
def test_empty_sentences_stay_empty_and_change_nothing(system):
    model = build(**SYSTEMS[system])
    config = SearchConfig(beam=2, **SHORT)
    holes = [[[], *[part for sentence in document for part in (sentence, [])]] for document in DOCUMENTS] + [[[], []]]
    told = []
    found = [ranks[0] for ranks in translate_documents(model, holes, SPECIALS, config, told.append)]
    assert sum(told) == sum(map(len, holes))
    for number, (own, ranks) in enumerate(
        zip(found, translate_documents(model, DOCUMENTS, SPECIALS, config), strict=False)
    ):
        wanted = ranks[0]
        assert own.sentences[1::2] == wanted.sentences
        assert not any(own.sentences[::2])
        assert own.sentence_scores[1::2] == pytest.approx(wanted.sentence_scores, abs=1e-5)
        assert own.at_limit == [2 * i + 1 for i in wanted.at_limit]
        assert [(p.document, p.first, p.last) for p in own.miscounted] == [
            (number, 2 * piece.first + 1, 2 * piece.last) for piece in wanted.miscounted
        ]
    assert (found[-1].sentences, found[-1].score) == ([[], []], 0)
    if system != "document":
        scored = score_documents(model, holes, [own.sentences for own in found], SPECIALS, config)
        assert [own.score for own in scored] == pytest.approx([own.score for own in found], abs=1e-5)


@pytest.mark.parametrize("seed", range(6))
def test_plain_document_system_reports_a_wrong_count_and_still_gives_one_for_each(seed):
    model = build(seed, system="document")
    for document, found in zip(DOCUMENTS, translate_documents(model, DOCUMENTS, SPECIALS, SearchConfig()), strict=True):
        assert len(found[0].sentences) == len(found[0].sentence_scores) == len(document)
        assert all((piece.first, piece.last) == (0, len(document)) for piece in found[0].miscounted)


def test_long_documents_are_translated_piece_by_piece():
    model = build(instance_tokens=16)
    document = [[5 + i % 20, 6, 7] for i in range(11)]  # cost 5 each: three to a piece
    config = SearchConfig(beam=2, **SHORT)
    whole = translate_documents(model, [document], SPECIALS, config)[0][0]
    pieces = [translate_documents(model, [document[i : i + 3]], SPECIALS, config)[0][0] for i in range(0, 11, 3)]
    assert whole.sentences == [sentence for piece in pieces for sentence in piece.sentences]
    assert sum(whole.sentence_scores) == pytest.approx(sum(sum(p.sentence_scores) for p in pieces), abs=1e-4)


def test_sentence_system_translates_sentence_by_sentence():
    model = build(system="sentence")
    config = SearchConfig(beam=2)
    whole = translate_documents(model, DOCUMENTS, SPECIALS, config)
    for document, found in zip(DOCUMENTS, whole, strict=True):
        for number, sentence in enumerate(document):
            alone = translate_documents(model, [[sentence]], SPECIALS, config)[0][0]
            assert found[0].sentences[number] == alone.sentences[0]


def test_n_best_lists_are_sorted_and_differ():
    found = translate_documents(build(), DOCUMENTS, SPECIALS, SearchConfig(beam=5, n_best=4))
    for hypotheses in found:
        assert len(hypotheses) == 4
        assert [h.score for h in hypotheses] == sorted((h.score for h in hypotheses), reverse=True)
        assert len({str(h.sentences) for h in hypotheses}) == 4


def test_small_batches_change_nothing():
    model = build()
    large = translate_documents(model, DOCUMENTS, SPECIALS, SearchConfig(beam=3))
    small = translate_documents(model, DOCUMENTS, SPECIALS, SearchConfig(beam=3, batch_tokens=1))
    assert [found[0].sentences for found in large] == [found[0].sentences for found in small]


def test_documents_without_sentences_stay_empty():
    found = translate_documents(build(), [[], DOCUMENTS[1], []], SPECIALS, SearchConfig())
    assert [len(hypotheses[0].sentences) for hypotheses in found] == [0, 1, 0]


def test_a_beam_wider_than_the_possible_translations_ends():
    config = SearchConfig(beam=30, min_length=0, max_length_ratio=0.0, max_length_extra=1.0, n_best=30)
    found = search(build(), [[[5]]], SPECIALS, config)[0]
    assert 1 <= len(found) <= 30


def test_length_limit_counts_true_words():
    config = SearchConfig()
    assert config.sentence_limit(5) == 16
    assert config.sentence_limit(1) == 11
