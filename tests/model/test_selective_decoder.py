"""The decoder side of the selective system: the states of drafts, what is seen, gradients, and the equations."""

from dataclasses import replace

import pytest
import torch
from test_selective import EVERY, LEVELS, SIZES, SOURCE, TARGET, join, plain_contexts, visible_to

from docmt.model import ModelConfig, ModelInput, TranslationModel, pack
from docmt.model.contexts import FullContext
from docmt.model.layers import run_layers
from docmt.model.systems import Selective
from variants import selective

DRAFTS = [[0, 24, 20, 2], [0, 25, 22, 23, 2], [0, 26, 25, 2], [0, 36, 37, 2], [0, 27, 28, 29, 2]]
OTHER = [[0, 30, 31, 2], [0, 32, 2]]
every = pytest.mark.parametrize("options", EVERY, ids=lambda options: "-".join(options.values()))


def build(noise=0.3, settings=None, side="decoder", **options):
    torch.manual_seed(0)
    options = selective(side=side, **options)
    model = TranslationModel(ModelConfig(**{**SIZES, "dropout": 0.0, **options, **(settings or {})}))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(noise * torch.randn_like(parameter))
    return model.eval()


def sentence_model(model):
    """The same model without context."""
    sentence = TranslationModel(replace(model.config, system="sentence", selective=Selective())).eval()
    sentence.load_state_dict({name: model.state_dict()[name] for name in sentence.state_dict()})
    return sentence


def read(source=SOURCE, target=TARGET, drafts=DRAFTS):
    """The input of this document, after another one."""
    source, target, drafts = (pack([OTHER, side]) for side in (source, target, drafts))
    return ModelInput(source, torch.arange(len(source.sentences)), target, drafts=drafts)


def rows(states, sentences=TARGET):
    """The states of each sentence of the second document."""
    return states[sum(map(len, OTHER)) :].split([len(sentence) for sentence in sentences])


def changed(sentences, number, position=1, token=35):
    copy = [list(sentence) for sentence in sentences]
    copy[number][position] = token
    return copy


def rows_that_differ(before, after):
    return [not torch.equal(*pair) for pair in zip(rows(before), rows(after), strict=True)]


@pytest.mark.parametrize("normalization", ["post", "pre"])
@torch.no_grad()
def test_states_of_drafts_are_those_of_the_decoder_without_context(normalization):
    """A forced pass of the sentence model over the drafts, each state with the word that it predicts."""
    model = build(settings={"normalization": normalization})
    sentence = sentence_model(model)
    memory = model.compute_memories(read())["drafts"]
    drafts = pack([[draft[:-1] for draft in document] for document in (OTHER, DRAFTS)])  # the last word predicts `</s>`
    context = FullContext(drafts, {"source": sentence.encode_memory(read().source)})
    x = run_layers(list(sentence.decoder)[:-1], sentence.embed("target", drafts), context)
    outputs = dict(sentence.decoder[-1].iterate_blocks(x, context))
    norm = model.decoder[-1].context_residual.prepare_input
    assert torch.equal(memory.states, norm(outputs["feed_forward"]))
    assert torch.equal(memory.layers[0], norm(outputs["cross"]))
    words = memory.sentences.trim(*model.decoder[-1].context.trim)
    assert words.lengths.tolist() == [len(draft) - 2 for draft in (*OTHER, *DRAFTS)]
    assert words.starts.tolist() == drafts.sentences.starts.tolist()  # `<s>` predicts the first word
    assert memory.documents.equals(drafts.documents)
    if normalization == "post":
        assert torch.equal(memory.states, sentence(ModelInput(read().source, torch.arange(len(words)), drafts)))


@every
@pytest.mark.parametrize("fusion", ["identity", "published"])
@torch.no_grad()
def test_the_last_layer_computes_its_equations(options, fusion):
    model = build(fusion=fusion, **options).double()
    inputs = read()
    memories = model.compute_memories(inputs)
    memory, context = memories["drafts"], FullContext(inputs.target, memories, inputs.alignment)
    layer = model.decoder[-1]
    x = run_layers(list(model.decoder)[:-1], model.embed("target", inputs.target), context)
    outputs = dict(layer.iterate_blocks(x, context))
    queries, states, found = (rows(each) for each in (outputs["cross"], outputs["feed_forward"], layer(x, context)))
    lengths = [len(draft) - 1 for draft in (*OTHER, *DRAFTS)]
    keys, values = (
        [state[:-1] for state in each.split(lengths)[len(OTHER) :]] for each in (memory.layers[0], memory.states)
    )
    expected = iter(plain_contexts(layer.context, options, queries, keys, values))
    weights, visible, numbers = layer.context.attention_weights(
        outputs["cross"], *context.resolve_sentences("drafts", outputs["cross"])
    )
    position = sum(map(len, OTHER))
    for number, (before, after) in enumerate(zip(states, found, strict=True)):
        for h, output in zip(before, after, strict=True):
            c, of_sentences = next(expected)
            if c is None:
                assert torch.equal(output, h)
            else:
                torch.testing.assert_close(output, join(layer, fusion, h, c))
                torch.testing.assert_close(weights[position] * visible[position], of_sentences)
                assert numbers[position].tolist() == [len(OTHER) + n for n in range(len(SOURCE))]
                assert not visible[position, number]
            position += 1


@every
@torch.no_grad()
def test_drafts_of_other_sentences_are_seen_and_the_own_one_is_not(options):
    model = build(fusion="published", **options)
    before, is_sparse = model(read()), "sparsemax" in options.values() or options["attention"] == "hierarchical"
    for number in range(len(SOURCE)):
        differs = rows_that_differ(before, model(read(drafts=changed(DRAFTS, number))))
        sees = [number in visible_to(options, other) for other in range(len(SOURCE))]
        assert not any(differs[n] for n in range(len(SOURCE)) if not sees[n])
        assert is_sparse or differs == sees
        # The source of a draft shows in its states.
        differs = rows_that_differ(before, model(read(source=changed(SOURCE, number))))
        assert differs[number] and not any(differs[n] for n in range(len(SOURCE)) if not sees[n] and n != number)
        assert is_sparse or all(differs[n] for n in range(len(SOURCE)) if sees[n])
    assert not any(rows_that_differ(before, model(read(target=changed(TARGET, 2))))[n] for n in (0, 1, 3, 4))


@pytest.mark.parametrize("attention", LEVELS)
@torch.no_grad()
def test_the_order_of_other_sentences_does_not_count(attention):
    model, order = build(attention=attention, fusion="published"), [3, 1, 2, 4, 0]
    other = model(read(*([side[n] for n in order] for side in (SOURCE, TARGET, DRAFTS))))
    ordered = rows(model(read()))
    for number, block in zip(order, rows(other, [TARGET[n] for n in order]), strict=True):
        torch.testing.assert_close(block, ordered[number], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("attention", LEVELS)
@pytest.mark.parametrize("side", ["decoder", "both"])
@pytest.mark.parametrize("normalization", ["post", "pre"])
def test_a_new_model_is_the_sentence_model_bit_for_bit(attention, side, normalization):
    settings = {**SIZES, "dropout": 0.0, "normalization": normalization}
    torch.manual_seed(7)
    sentence = TranslationModel(ModelConfig(system="sentence", **settings)).eval()
    one = read(SOURCE[:1], TARGET[:1], DRAFTS[:1])
    for fusion in ("identity", "published"):
        model = TranslationModel(
            ModelConfig(**settings, **selective(attention=attention, side=side, fusion=fusion))
        ).eval()
        loaded, weights = sentence.state_dict(), model.state_dict()
        assert {model.system.initial_weight(name) for name in weights} - {None} == set(loaded)
        model.load_state_dict(
            {name: loaded.get(model.system.initial_weight(name), tensor) for name, tensor in weights.items()}
        )
        assert torch.equal(model(read()), sentence(read())) == (fusion == "identity")
        assert torch.equal(rows(model(one), TARGET[:1])[0], rows(sentence(one), TARGET[:1])[0])  # nothing is visible


@torch.no_grad()
def test_empty_drafts_are_not_seen():
    empty = [[0, 2] for _ in SOURCE]
    for options in EVERY:
        model = build(fusion="published", **options)
        few = [DRAFTS[0], *empty[1:]]
        sees = [0 in visible_to(options, number) for number in range(len(SOURCE))]
        assert rows_that_differ(model(read(drafts=few)), model(read(drafts=empty))) == sees
    inputs = replace(read(), drafts=pack([[[0, 2], [0, 2]], empty]))  # no document has any word
    sentence = sentence_model(model)
    assert torch.equal(model(inputs), sentence(inputs))


def test_even_empty_drafts_leave_gradients():
    """All weights have gradients, or processes that exchange gradients would wait for each other forever."""
    model = build(fusion="published").train()
    inputs = replace(read(), drafts=pack([[[0, 2], [0, 2]], [[0, 2] for _ in SOURCE]]))
    model(inputs).square().sum().backward()
    assert all(weights.grad is not None and bool(weights.grad.isfinite().all()) for weights in model.parameters())


@every
def test_detached_drafts_have_no_gradient(options):
    """Of words that only drafts have, and that they read: the last word of a draft is only predicted."""
    for detach in (False, True):
        model = build(detach=detach, fusion="published", **options)
        model(read()).square().sum().backward()
        gradients = model.tokens.weight.grad[[24, 25, 26, 27, 28, 36]]
        assert bool(gradients.any()) != detach
        assert bool(model.decoder[-1].context.value.weight.grad.any())


@torch.no_grad()
def test_queries_in_any_order_find_their_documents():
    """As in decoding, where search rows of all documents stand in any order."""
    model, inputs = build(), read()
    attention, memory = model.decoder[-1].context, model.compute_memories(inputs)["drafts"]
    documents = attention.project_memory(memory)
    sentences = torch.tensor([6, 0, 3, 1, 5, 3, 2, 6])
    x = torch.randn(len(sentences), 16, generator=torch.Generator().manual_seed(1))
    together, exists = attention.attend_documents(x, sentences, documents)
    for index in range(len(sentences)):
        alone = attention.attend_documents(x[index : index + 1], sentences[index : index + 1], documents)
        torch.testing.assert_close(together[index : index + 1], alone[0], atol=1e-6, rtol=1e-6)
        assert exists[index] == alone[1]


@pytest.mark.parametrize("attention", LEVELS)
@torch.no_grad()
def test_empty_drafts_belong_to_their_document(attention):
    """Wherever they stand: a document in a batch is what it is alone, and a sentence alone sees nothing."""
    model = build(attention=attention, fusion="published")
    one, other, empty = [0, 20, 21, 2], [0, 25, 26, 2], [0, 2]
    drafts = [[one, empty], [empty, empty], [empty, other, empty], [other, one]]
    sources, targets = ([[side[n] for n in range(len(document))] for document in drafts] for side in (SOURCE, TARGET))
    together = model.logits(list(zip(sources, targets, strict=True)), drafts)
    for source, target, draft, found in zip(sources, targets, drafts, together, strict=True):
        torch.testing.assert_close(found, model.logits([(source, target)], [draft])[0], atol=1e-4, rtol=1e-4)
    inputs = ModelInput(pack(sources), torch.arange(9), pack(targets), drafts=pack(drafts)).isolate_sentences()
    torch.testing.assert_close(model(inputs), sentence_model(model)(inputs))


def test_without_drafts_the_reading_is_refused():
    with pytest.raises(ValueError, match="this model reads drafts"):
        build()(replace(read(), drafts=None))
