"""What is watched is what the model computes: weights, sentences and gates of every system."""

import pytest
import torch

from docmt.analysis import attention_entropy, measure_entropy, report_attention
from docmt.analysis.attention_analysis import (
    SentenceAttentionRecord,
    TokenAttentionRecord,
    attention_sites,
    mean_and_deviation,
    record_attention,
)
from docmt.data import Batch
from docmt.decoding import SearchConfig
from docmt.decoding.scheduler import Task
from docmt.decoding.scoring import iterate_scoring_inputs
from docmt.model import ModelConfig, TranslationModel
from docmt.model.attention import Attention, Gate, GateSigmoid
from docmt.model.blocks import SelectiveAttention, SentenceAttention
from docmt.model.contexts import PackedStates
from docmt.model.linear_attention import LinearAttention
from docmt.text import SpecialTokens
from variants import SYSTEMS, in_tiers

SIZES = {"width": 16, "feed_forward": 32, "heads": 2, "encoder_layers": 2, "decoder_layers": 2, "dropout": 0.0}
SPECIALS = SpecialTokens(40)
SOURCES = [[[5, 6, 7], [8], [9, 10, 11, 12], [6, 7], [21, 5]], [[13, 14], [15]], [[16]]]
TARGETS = [[[25, 6, 7], [28], [19, 10], [6, 7, 4, 4], []], [[13, 14], [15]], [[4, 5]]]


def build(name, noise=0.2, **settings):
    torch.manual_seed(3)
    model = TranslationModel(ModelConfig(vocabulary_size=40, **{**SIZES, **SYSTEMS[name], **settings}))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(noise * torch.randn_like(parameter))
    return model.eval()


def passes_of(model, documents=slice(None), batch_tokens=4096):
    sources, targets = SOURCES[documents], TARGETS[documents]
    drafts = sources if model.system.context_spec().drafts else None
    task = Task.from_documents(model, sources, SPECIALS, SearchConfig(), batch_tokens=batch_tokens, drafts=drafts)
    return iterate_scoring_inputs(task, targets)


def assembled(record, values):
    """What the weights of a look give of values [Tk, H, k]: [Tq, H, k], zeros for queries that see nothing."""
    outputs = torch.zeros(int(record.pattern.query_total), *values.shape[1:])
    for block in record.blocks():
        sums = torch.einsum("nhql,nlhk->nqhk", block.weights, values[block.keys])
        outputs[block.queries[block.is_query]] = sums[block.is_query]
        if isinstance(record.attention, LinearAttention):
            continue
        totals = block.weights.sum(-1).transpose(1, 2)[block.is_query]
        same(totals, torch.ones_like(totals))
    return outputs


def assemble_output(record, module):
    """What the weights give of the values of an attention: [Tq, H, k]."""
    values = module.split_heads(module.value(record.memory))
    if module.relation is None:
        return assembled(record, values)
    queries, keys = PackedStates(record.memory, record.pattern).describe_sentences(module.relation)
    _, values = module.relation.change_pair(values, values, keys)
    return module.relation.read_output(assembled(record, values), queries)


def same(one, other, within=1e-5):
    torch.testing.assert_close(one, other, atol=within, rtol=within)


@pytest.mark.parametrize("name", in_tiers(SYSTEMS, every=True))
@torch.no_grad()
def test_the_weights_are_those_that_the_model_uses(name):
    model, outputs, looks = build(name), {}, []
    for path, module in model.named_modules():
        if isinstance(module, Attention | SentenceAttention | SelectiveAttention):
            module.register_forward_hook(lambda module, _, output, path=path: outputs.update({path: output}))
    for inputs, _ in passes_of(model):
        outputs.clear()
        looks.clear()
        with record_attention(model, looks.append):
            model(inputs)
        assert {record.site for record in looks} == set(attention_sites(model))
        for record in looks:
            module = model.get_submodule(record.site.name)
            if isinstance(record, SentenceAttentionRecord):
                (block,) = record.blocks()
                totals = block.weights.sum(-1)[record.exists.any(-1)]
                same(totals, torch.ones_like(totals))
                assert torch.equal(block.is_query.flatten(), record.exists.any(-1))
                assert bool((block.weights[:, 0, 0][~record.exists & block.is_query] == 0).all())
                continue
            assert isinstance(record, TokenAttentionRecord)
            output = assemble_output(record, module).flatten(-2)
            projected = module.output(output)
            if module.scope.sees_each_preceding:
                projected = projected.unflatten(0, (module.scope.offset, -1)).transpose(0, 1)
            # Small denominators of linear attention make much of rounding.
            same(projected, outputs[record.site.name], 1e-3 if "linear" in name else 1e-5)


def test_attention_to_sentences_gives_what_its_weights_give():
    model = build("hierarchical")
    calls = []
    model.above_encoder[0].sentences.register_forward_hook(lambda *call: calls.append(call))
    for inputs, _ in passes_of(model):
        model(inputs)
    for module, (x, summaries, exists), output in calls:
        values = module.value(summaries).unflatten(-1, (2, -1))  # [T, k, H, d / H]
        weights = module.attention_weights(x, summaries, exists)  # [T, H, k]
        same(module.output(torch.einsum("thk,tkhd->thd", weights, values).flatten(-2)), output)


@pytest.mark.parametrize("name", in_tiers(SYSTEMS))
@torch.no_grad()
def test_a_watched_pass_is_the_same_bit_for_bit(name):
    model = build(name)
    for inputs, _ in passes_of(model):
        expected = model(inputs)
        with record_attention(model, lambda look: list(look.blocks()), lambda gate: gate.shares.sum()):
            assert torch.equal(model(inputs), expected)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


# How far each system looks, in sentences before (below 0: after), of a document of five.
ALL = set(range(-4, 5))
SEEN = {
    "group": ALL,
    "global top": ALL,
    "document": ALL,
    "concat, keep last": {0, 1, 2},
    "concat, keep prefix": {0, 1, 2},
    "context": {0, 1, 2},  # in the first sentence there is only its own mark
    "context, as published": {0, 1},
    "multihop, joined": {1, 2, 3},
    "multihop, hierarchical": {1, 2},
    "hierarchical": {1, 2, 3},
    "hierarchical on both sides": {1, 2},
    "hierarchical in the decoder": {1},
    "selective": ALL - {0},
    "selective, before": {1, 2, 3, 4},
}


@pytest.mark.parametrize("batch_tokens", [16, 4096])
@pytest.mark.parametrize("name", SEEN)
def test_sentences_look_where_the_system_can_see(name, batch_tokens):
    model = build(name)
    report = report_attention(model, passes_of(model, slice(1), batch_tokens))
    shares = [sums.shares() for sums in report.attentions.values() if sums.distances]
    assert {distance for by_distance in shares for distance in by_distance} == SEEN[name]
    for by_distance in shares:
        for head in range(3):  # the last one is even attention
            assert sum(heads[head] for heads in by_distance.values()) == pytest.approx(1)


@pytest.mark.parametrize("name", ["sentence", "multihop", "group only"])
def test_what_has_no_choice_has_no_map(name):
    model = build(name)
    assert not any(sums.distances for sums in report_attention(model, passes_of(model)).attentions.values())


def without_questions(model):
    """The model, whose attentions look at all that they see evenly."""
    for module in model.modules():
        if isinstance(module, Attention | SentenceAttention):
            torch.nn.init.zeros_(module.query.weight)
            torch.nn.init.zeros_(module.query.bias)
    return model


@pytest.mark.parametrize("name", ["group", "document", "concat, keep last", "hierarchical"])
def test_even_attention_looks_at_sentences_by_their_length(name):
    model = without_questions(build(name))
    report = report_attention(model, passes_of(model, slice(1)))
    lengths = {"source": [len(s) + 2 for s in SOURCES[0]], "target": [len(s) + 2 for s in TARGETS[0]]}
    for site, sums in report.attentions.items():
        if not sums.distances:
            continue
        expected = dict.fromkeys(sums.distances, 0.0)
        for query in range(5):
            last = {"concat, keep last": query + 1, "hierarchical": query}.get(name, 5)
            visible = range(
                {"concat, keep last": max(query - 2, 0), "hierarchical": max(query - 3, 0)}.get(name, 0), last
            )
            count = lengths["target" if site.kind.startswith("decoder") else "source"][query]
            if site.kind == "decoder_self_global":  # token by token, as a token sees those up to itself
                before = sum(lengths["target"][visible.start : query])
                for position in range(1, count + 1):
                    for other in range(visible.start, query):
                        expected[query - other] += lengths["target"][other] / (before + position)
                    expected[0] += position / (before + position)
            elif site.kind.endswith("sentences"):
                for other in visible:
                    expected[query - other] += count / len(visible)
            else:
                for other in visible:
                    expected[query - other] += (
                        count * lengths["source"][other] / sum(lengths["source"][o] for o in visible)
                    )
        total = sum(expected.values())
        for distance, shares in sums.shares().items():
            assert shares == pytest.approx([expected[distance] / total] * 3, abs=1e-5), (site, distance)


def test_windows_of_flat_show_the_translated_sentence_and_those_before_it():
    model = build("flat")
    report = report_attention(model, passes_of(model))
    (sums,) = [sums for site, sums in report.attentions.items() if site.kind == "encoder_self_global"]
    assert set(sums.shares()) == {0, 1, 2}
    assert sum(weights[0] for weights in sums.shares().values()) == pytest.approx(1)


@pytest.mark.parametrize("name", in_tiers(SYSTEMS))
def test_tables_by_layer_say_what_the_mean_says(name):
    model = build(name)
    report = report_attention(model, passes_of(model))
    means = attention_entropy(model, [Batch(inputs, torch.empty(0)) for inputs, _ in passes_of(model)])
    assert {site.kind for site in report.attentions} == set(means)
    for kind, mean in means.items():
        layers = [sums for site, sums in report.attentions.items() if site.kind == kind]
        heads = [model.get_submodule(site.name).heads for site in report.attentions if site.kind == kind]
        total = sum(sums.entropies.total[0] for sums in layers) / sum(sums.entropies.count for sums in layers)
        assert total == pytest.approx(mean, abs=1e-6)
        for sums, count in zip(layers, heads, strict=True):  # the entropy of a mean is not below the mean of entropies
            of_mean, *of_heads = sums.entropies.values()
            assert len(of_heads) == count
            assert sum(of_heads) / count <= of_mean + 1e-6
    gates = [name for name, module in model.named_modules() if isinstance(module, GateSigmoid)]
    gates.sort(key=lambda name: "encoder" not in name)  # modules above the encoder come after the decoder
    assert [site.name for site in report.gates] == gates


def test_one_head_has_the_entropy_of_the_mean():
    report = report_attention(model := build("context", heads=1), passes_of(model))
    for sums in report.attentions.values():
        of_mean, *of_heads = sums.entropies.values()
        assert of_heads == pytest.approx([of_mean])


GATES = {
    "group": {"encoder_self", "decoder_self", "decoder_cross"},
    "group only": set(),
    "sentence": set(),
    "context": {"encoder_context", "decoder_context"},
    "context, no gate": set(),
    "context in the encoder": {"encoder_context"},
    "multihop": {"encoder_hops", "decoder_hops"},
    "hierarchical": {"above_encoder"},
    "hierarchical on both sides": {"above_encoder", "above_decoder"},
    "selective": {"above_encoder_context"},
    "selective, before": {"above_encoder_context"},
}


@pytest.mark.parametrize("name", GATES)
def test_gates_are_found_and_counted_where_there_is_context(name):
    model = build(name)
    with torch.no_grad():  # gates that let 3 quarters of what is there without context through
        for path, parameter in model.named_parameters():
            if "gate" in path:
                parameter.zero_()
    kinds = set()
    with record_attention(model, on_gate=lambda gate: kinds.add(gate.site.kind)):
        for inputs, _ in passes_of(model):
            model(inputs)
    assert kinds == GATES[name]
    report = report_attention(model, passes_of(model))
    for site, sums in report.gates.items():
        assert mean_and_deviation(sums) == (pytest.approx(0.5), pytest.approx(0, abs=1e-6))
        documents = TARGETS if "decoder" in site.kind else SOURCES
        # A group of sentences is context from its first one on, but for who reads from left to right.
        both_ways = name == "selective" or (name == "group" and site.kind != "decoder_self")
        first = 0 if both_ways else 1
        if "shown" not in site.kind and model.system.labelled_sentences == "all":
            several = [document for document in documents if len(document) > 1]
            assert sums.count == 16 * sum(len(s) + 2 for document in several for s in document[first:])


def test_an_open_gate_lets_the_document_in():
    model = build("group")
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, Gate):
                module.linear.weight.zero_()
                module.linear.bias.fill_(-4.0)  # 1.8 % of the attention within the sentence
    for sums in report_attention(model, passes_of(model)).gates.values():
        assert mean_and_deviation(sums)[0] == pytest.approx(0.982, abs=1e-3)


def test_several_sentences_at_once_have_entropies_as_well():
    model = without_questions(build("hierarchical"))
    with measure_entropy(model) as meter:
        for inputs, _ in passes_of(model, slice(1, 2)):
            model(inputs)
    means = meter.means()
    assert means["above_encoder_self_sentences"] == pytest.approx(0)  # there is one sentence before
    assert means["above_encoder_self_before"] == pytest.approx(1)  # it has two words, its marks are not seen
