"""The context-aware decoder: what it sees, the states of drafts, what is frozen, and what it starts from."""

from dataclasses import replace

import pytest
import torch

from docmt.decoding import SearchConfig, translate_documents
from docmt.model import ModelConfig, ModelInput, TranslationModel, pack
from docmt.model.attention import Attention
from docmt.model.contexts import FullContext, Memory
from docmt.model.embeddings import SentenceVectors, Stack
from docmt.model.families import FAMILIES, TransformerConfig
from docmt.model.scope import AttentionScope
from docmt.model.spans import Spans
from docmt.model.systems import Cadec
from docmt.text import SpecialTokens

SIZES = {"width": 16, "feed_forward": 32, "heads": 2, "encoder_layers": 2, "decoder_layers": 2, "vocabulary_size": 60}
STACK = Stack(TransformerConfig(width=16, heads=2), FAMILIES["docmt"])
DOCUMENT = [[0, 5 + i, 15 + i, 2] for i in range(6)]
TARGET = [[0, 25 + i, 27 + i, 2] for i in range(6)]
DRAFTS = [[0, 35 + i, 45 + i, 41, 2] for i in range(6)]
OTHER = [[0, 50, 51, 2], [0, 52, 2]]
NEW = (".cross.global.", ".draft")


def build(seed=0, noise=0.2, system="cadec", options=None, **settings):
    torch.manual_seed(seed)
    options = {} if system != "cadec" else {"cadec": Cadec(**(options or {}))}
    model = TranslationModel(ModelConfig(**{**SIZES, "dropout": 0.0, "system": system, **options, **settings}))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(noise * torch.randn_like(parameter))
    return model.eval()


def start_from(sentence, model):
    """Copy what `initial_weight` names; return the names of new weights."""
    loaded = sentence.state_dict()
    origins = {name: model.system.initial_weight(name) for name in model.state_dict()}
    model.load_state_dict({name: loaded[origin] for name, origin in origins.items() if origin}, strict=False)
    return {name for name, origin in origins.items() if origin is None}


def read(source=DOCUMENT, target=TARGET, drafts=DRAFTS):
    """The input of a document, with another one before it."""
    source, target, drafts = (pack([OTHER, side]) for side in (source, target, drafts))
    return ModelInput(source, torch.arange(len(source.sentences)), target, drafts=drafts)


def logits(model, **sides):
    """Logits [tokens, V] of each sentence of the document."""
    inputs = read(**sides)
    with torch.no_grad():
        return model.project(model(inputs)).split(inputs.target.sentences.lengths.tolist())[len(OTHER) :]


def changed(sentences, number, position=1):
    copy = [list(sentence) for sentence in sentences]
    copy[number][position] = 58
    return copy


def rows_that_differ(before, after):
    return [not torch.equal(one, other) for one, other in zip(before, after, strict=True)]


VARIANTS = {
    "identity": {},
    "published": {"options": {"fusion": "published"}},
    "one sentence": {"options": {"sentences": 1}},
    "pre-norm": {"normalization": "pre"},
    "pre-norm, published": {"options": {"sentences": 2, "fusion": "published"}, "normalization": "pre"},
}


@pytest.mark.parametrize("side", ["source", "drafts"])
@pytest.mark.parametrize("name", VARIANTS)
def test_source_and_drafts_reach_as_many_sentences_as_the_option_says(name, side):
    model = build(**VARIANTS[name])
    other = changed({"source": DOCUMENT, "drafts": DRAFTS}[side], 1)
    differing = rows_that_differ(logits(model), logits(model, **{side: other}))
    assert differing == [1 <= row <= 1 + model.system.sentences for row in range(6)]


@pytest.mark.parametrize("name", VARIANTS)
def test_a_token_sees_the_words_before_it_and_the_whole_draft(name):
    model = build(**VARIANTS[name])
    before = logits(model)
    after = logits(model, target=changed(TARGET, 1, position=2))
    assert rows_that_differ(before, after) == [row == 1 for row in range(6)]
    assert rows_that_differ(before[1], after[1]) == [False, False, True, True]
    for position in (1, 3):  # the first and the last word
        after = logits(model, drafts=changed(DRAFTS, 1, position))
        assert rows_that_differ(before[1], after[1]) == [True] * 4


def test_without_sentences_before_the_own_draft_is_read():
    model = build()
    (alone,) = model.logits([(DOCUMENT[:1], TARGET[:1])], [DRAFTS[:1]])
    (other,) = model.logits([(DOCUMENT[:1], TARGET[:1])], [changed(DRAFTS[:1], 0)])
    torch.testing.assert_close(alone, logits(model)[0], atol=1e-5, rtol=1e-5)
    assert not torch.allclose(alone, other, atol=1e-3)


@pytest.mark.parametrize("normalization", ["post", "pre"])
def test_it_starts_as_the_sentence_model_bit_for_bit(normalization):
    sentence = build(system="sentence", normalization=normalization)
    model = build(seed=1, noise=0.0, normalization=normalization)
    new = start_from(sentence, model)
    assert new == {name for name in model.state_dict() if any(part in name for part in NEW)}
    pair = (DOCUMENT, TARGET)
    assert torch.equal(model.logits([pair], [DRAFTS])[0], sentence.logits([pair])[0])


def test_as_published_the_decoder_is_new():
    sentence = build(system="sentence", normalization="pre", output="untied")
    model = build(seed=1, options={"fusion": "published"}, normalization="pre", output="untied")
    new = start_from(sentence, model)
    assert new == {name for name in model.state_dict() if name.startswith(("decoder.", "decoder_norm."))}
    scopes = [module.scope for module in model.decoder[0].modules() if isinstance(module, Attention)]
    assert [scope for scope in scopes if scope.memory != "self"] == [
        AttentionScope(memory, "recent", offset=3) for memory in ("source", "drafts")
    ]


@pytest.mark.parametrize("output", ["auto", "untied"])
@pytest.mark.parametrize("name", VARIANTS)
def test_only_the_decoder_and_an_untied_output_are_trained(name, output):
    model = build(**VARIANTS[name], output=output).train()
    model.project(model(read())).logsumexp(-1).sum().backward()
    for weight, parameter in model.named_parameters():
        trained = weight.split(".")[0] in ("decoder", "decoder_norm", "softmax")
        assert parameter.requires_grad == trained == (parameter.grad is not None), weight
        if trained and not weight.endswith("key.bias"):  # which has no effect on anything
            assert bool(parameter.grad.any()), weight


@pytest.mark.parametrize("normalization", ["post", "pre"])
def test_a_draft_has_the_states_that_predicted_it(normalization):
    """Words of a greedy translation are the likeliest ones in the states of the first decoder."""
    sentence = build(system="sentence", normalization=normalization)
    model = build(seed=1, normalization=normalization)
    start_from(sentence, model)
    specials, words = SpecialTokens(vocabulary_size=60), [source[1:-1] for source in DOCUMENT]
    search = SearchConfig(beam=1, max_length_ratio=0.0, max_length_extra=9.0)
    ((translated,),) = translate_documents(sentence, [words], specials, search)
    source, alignment = pack([DOCUMENT]), torch.arange(len(DOCUMENT))
    drafts = pack([[[0, *translation, 2] for translation in translated.sentences]])
    with torch.no_grad():
        memory = model.compute_memories(ModelInput(source, alignment, drafts=drafts))["drafts"]
        forced = sentence(ModelInput(source, alignment, drafts))
    embedded, states = memory.states.chunk(2, dim=-1)
    tokens = torch.tensor([token for translation in translated.sentences for token in [*translation, 2]])
    assert memory.sentences.lengths.tolist() == [len(translation) + 1 for translation in translated.sentences]
    assert torch.equal(embedded, model.look_up_tokens("target", tokens))
    assert torch.equal(states, forced[drafts.sentences.trim(0, 1).indices()])
    likeliest = specials.first_word + sentence.project(states)[:, specials.first_word : specials.eod].argmax(-1)
    is_word = tokens != specials.eos  # most translations end by their limit of words
    assert torch.equal(likeliest[is_word], tokens[is_word])


def test_one_hot_distances_in_the_states_are_vectors_by_distance():
    """As published, keys and values of [states; one-hot distance] are those of the states plus a vector."""
    torch.manual_seed(0)
    drafts = pack([DRAFTS])
    scope = AttentionScope("drafts", "recent", offset=2)
    attention = Attention(STACK, scope, memory_width=32, relation=SentenceVectors(8, 2, 2)).double()
    wide = Attention(STACK, AttentionScope("drafts"), memory_width=32 + 3).double()
    for table in (attention.relation.keys, attention.relation.values):
        torch.nn.init.normal_(table)
    weights = {name: weight for name, weight in attention.state_dict().items() if not name.startswith("relation")}
    for name in ("key", "value"):
        table = getattr(attention.relation, f"{name}s")  # [distance, H, k]
        weights[f"{name}.weight"] = torch.cat((weights[f"{name}.weight"], table.flatten(1).T), dim=1)
    wide.load_state_dict(weights)
    states, x = torch.randn(30, 32).double(), torch.randn(24, 16).double()
    target, alignment = pack([TARGET]), torch.arange(6)
    memory = Memory.from_packed(states, drafts)
    found = attention(x, FullContext(target, {"drafts": memory}, alignment)).split(4)
    by_sentence = states.split(5)
    for number, queries in enumerate(x.split(4)):
        seen = range(max(0, number - 2), number + 1)
        parts = [torch.cat((by_sentence[n], torch.eye(3).double()[[number - n] * 5]), dim=1) for n in seen]
        one = Memory(torch.cat(parts), Spans.tile([5 * len(seen)]))
        expected = wide(queries, FullContext(pack([TARGET[:1]]), {"drafts": one}))
        torch.testing.assert_close(found[number], expected, atol=1e-10, rtol=1e-8)


@pytest.mark.parametrize(
    ("counts", "opening", "closing", "expected"),
    [
        ((1, 1), (), (2,), [[5, 6, 2], [2], [7, 2]]),
        ((1, 1), (8, 9), (), [[8, 9, 5, 6], [8, 9], [8, 9, 7]]),
        ((0, 2), (8,), (2, 3), [[8, 0, 5, 2, 3], [8, 2, 3], [8, 0, 2, 3]]),
    ],
)
def test_boundary_tokens_are_replaced_sentence_by_sentence(counts, opening, closing, expected):
    packed = pack([[[0, 5, 6, 2], [0, 2]], [[0, 7, 2]]]).replace_boundaries(counts, opening, closing)
    assert [part.tolist() for part in packed.tokens.split(packed.sentences.lengths.tolist())] == expected
    assert packed.documents.lengths.tolist() == [len(expected[0]) + len(expected[1]), len(expected[2])]


def test_drafts_are_read_in_the_layout_of_the_family():
    """Those of mbart50 are packed as `SOURCE w </s>`, and the first decoder reads `</s> TARGET w </s>`."""
    languages = {"source_language_ids": [21], "target_language_ids": [22]}
    model = build(family="mbart50", **languages)
    seen = []
    model.get_submodule("first_decoder.0").register_forward_pre_hook(
        lambda module, arguments: seen.append(arguments[1].sequence)
    )
    source, drafts = pack([[[21, 5, 6, 2], [21, 7, 2]]]), pack([[[21, 30, 2], [21, 31, 32, 2]]])
    memory = model.compute_memories(ModelInput(source, torch.arange(2), drafts=drafts))["drafts"]
    assert seen[0].tokens.tolist() == [2, 22, 30, 2, 2, 22, 31, 32, 2]
    assert memory.sentences.lengths.tolist() == [2, 3]
    assert torch.equal(memory.states[:, :16], model.look_up_tokens("target", torch.tensor([30, 2, 31, 32, 2])))


def test_without_drafts_the_reading_is_refused():
    with pytest.raises(ValueError, match="this model reads drafts"):
        build()(replace(read(), drafts=None))
