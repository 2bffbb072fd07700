"""Pretrained models of transformers, converted: the same states, logits, translations and scores."""

from dataclasses import replace

import pytest
import torch

pytest.importorskip("transformers")

from quick_cases import full_except
from tiny_pretrained import SOURCE, TARGET, VARIANTS, build, framed, rows_of

from docmt.checkpoint.hf_import import Pretrained, detect_family, read_config
from docmt.data import SentenceTokens, collate, cut_instances
from docmt.decoding import SearchConfig
from docmt.decoding.document_stream import translate_documents
from docmt.decoding.scoring import score_documents
from docmt.model import TranslationModel
from docmt.model.families import FAMILIES
from docmt.model.systems import ContextSpec, Group
from docmt.text import SpecialTokens
from docmt.training.objective import batch_loss

FAMILY_EACH = ("bart", "mbart", "mbart50", "m2m_100", "marian", "t5", "madlad")
SEARCHES = [{"beam": 1}, {"beam": 4}, {"beam": 3, "length_penalty": 0.4}]
# Sentences of unequal lengths, in their ids of words.
SOURCES = [[5, 6, 7], [20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31], [40], [9, 8, 7, 6, 5], [33, 44, 55, 12, 13]]
TARGETS = [[15, 16], [30, 31, 32, 33, 34, 35, 36], [50, 51, 52], [19], [8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18]]


@pytest.fixture(scope="module")
def converted(tmp_path_factory):
    """Return a function that builds transformers' and docmt's model of a variant and their rows, cached."""
    cache = {}

    def get(variant, random=False):
        if (variant, random) not in cache:
            reference, directory = build(variant, random), tmp_path_factory.mktemp("model")
            reference.save_pretrained(directory)
            values = read_config(directory)
            pretrained = Pretrained.open(directory, detect_family(directory, values), values)
            rows = {side: rows_of(reference, side) for side in ("source", "target")}
            family = FAMILIES[pretrained.family]
            marks = {}
            if family.has_language_token("source"):
                marks = {
                    "source_language_ids": [rows["source"].index(SOURCE)],
                    "target_language_ids": [rows["target"].index(TARGET)],
                }
            cache[variant, random] = reference, pretrained.build_model(rows, marks).eval(), rows
        return cache[variant, random]

    return get


def padded(sentences, pad):
    """Return sentences as a padded tensor, and its mask."""
    longest = max(map(len, sentences))
    ids = torch.tensor([[*sentence, *[pad] * (longest - len(sentence))] for sentence in sentences])
    return ids, torch.tensor([[1] * len(sentence) + [0] * (longest - len(sentence)) for sentence in sentences])


def to_docmt_ids(rows, side, sentences):
    """Convert transformers' ids of words to docmt's."""
    ids_by_row = {row: id for id, row in enumerate(rows[side])}
    return [[ids_by_row[word] for word in sentence] for sentence in sentences]


def batch_of(model, rows, sources, targets):
    """Return docmt's batch of these sentences, each a document."""
    words = [
        SentenceTokens.from_documents([[sentence] for sentence in to_docmt_ids(rows, side, sentences)])
        for side, sentences in (("source", sources), ("target", targets))
    ]
    instances = cut_instances(words[0].lengths, words[1].lengths, range(len(sources) + 1), ContextSpec(sentences=1))
    specials = SpecialTokens(model.config.vocabulary_size)
    return collate(*words, instances, range(len(sources)), specials, model.boundary_tokens)


@pytest.mark.parametrize("variant", VARIANTS)
@torch.no_grad()
def test_encoder_states_and_logits_are_those_of_transformers(variant, converted):
    reference, sentence_model, rows = converted(variant)
    sources, inputs = zip(
        *((framed(variant, s)[0], framed(variant, t)[1]) for s, t in zip(SOURCES, TARGETS, strict=True)), strict=True
    )
    pad, eos = framed(variant, [])[2:]
    ids, mask = padded(sources, pad)
    decoder_ids, _ = padded(inputs, pad)
    expected = reference(input_ids=ids, attention_mask=mask, decoder_input_ids=decoder_ids)
    batch = batch_of(sentence_model, rows, SOURCES, TARGETS)
    states = sentence_model.encode(batch.inputs.source)
    assert torch.allclose(states, expected.encoder_last_hidden_state[mask.bool()], atol=1e-5)
    logits = sentence_model.project(sentence_model(batch.inputs))
    predicted = rows["target"]
    known = [id for id, row in enumerate(predicted) if row >= 0]
    opening = len(inputs[0]) - len(TARGETS[0]) - 1
    wanted = torch.cat(
        [logits_row[opening : len(ids)] for logits_row, ids in zip(expected.logits, inputs, strict=True)]
    )
    assert torch.allclose(logits[:, known], wanted[:, [predicted[id] for id in known]], atol=1e-5)
    missing = [id for id, row in enumerate(predicted) if row < 0]
    assert logits[:, missing].isneginf().all()
    labels = [rows["target"].index(word) for target in TARGETS for word in [*target, eos]]
    assert batch.labels.tolist() == labels


@pytest.mark.full
@pytest.mark.parametrize("variant", VARIANTS)
def test_the_loss_of_training_is_that_of_the_logits(variant, converted):
    _, sentence_model, rows = converted(variant)
    batch = batch_of(sentence_model, rows, SOURCES, TARGETS)
    states = sentence_model(batch.inputs)
    loss, nll = batch_loss(sentence_model, states, batch.labels, 0.1)
    logits = sentence_model.project(states)
    logits = logits[:, ~logits[0].isneginf()]  # of the ids that the head has
    first = sentence_model.head().first
    expected = [
        torch.nn.functional.cross_entropy(logits, batch.labels - first, reduction="sum", label_smoothing=smoothing)
        for smoothing in (0.1, 0.0)
    ]
    torch.testing.assert_close((loss, nll), tuple(expected), rtol=1e-4, atol=1e-4)


def generate(reference, variant, **options):
    """Return the words and scores of transformers' own search for each source sentence."""
    pad, eos = framed(variant, [])[2:]
    ids, mask = padded([framed(variant, sentence)[0] for sentence in SOURCES], pad)
    results = reference.generate(
        input_ids=ids,
        attention_mask=mask,
        max_new_tokens=14,
        do_sample=False,
        output_scores=True,
        return_dict_in_generate=True,
        **options,
    )
    opens = len(framed(variant, [])[1])
    sequences = []
    for sequence in results.sequences.tolist():
        words = sequence[opens:]
        sequences.append(words[: words.index(eos)] if eos in words else words)
    return sequences, getattr(results, "sequences_scores", None)


def translate(sentence_model, rows, config, documents=None):
    """Return docmt's translations of the same sentences, each a document, as transformers' ids, and the results."""
    documents = [[sentence] for sentence in to_docmt_ids(rows, "source", SOURCES)] if documents is None else documents
    specials = SpecialTokens(sentence_model.config.vocabulary_size)
    results = translate_documents(sentence_model, documents, specials, config)
    words = [[rows["target"][id] for sentence in spans[0].sentences for id in sentence] for spans in results]
    return words, results


@pytest.mark.parametrize("variant", full_except(VARIANTS, *FAMILY_EACH))
@pytest.mark.parametrize(
    "options", full_except([{"beam": 1}, {"beam": 4}, {"beam": 3, "length_penalty": 0.4}], {"beam": 4}), ids=str
)
def test_search_finds_what_generate_finds(variant, options, converted):
    reference, sentence_model, rows = converted(variant, random=True)
    beam, penalty = options["beam"], options.get("length_penalty", 1.0)
    expected, scores = generate(reference, variant, num_beams=beam, length_penalty=penalty)
    inner = len(sentence_model.boundary_tokens.target_opening) - 1
    config = SearchConfig(
        **options, implementation="huggingface", min_length=0, max_length_ratio=0, max_length_extra=14 - inner
    )
    words, results = translate(sentence_model, rows, config)
    assert words == expected
    if beam == 1 and variant not in ("marian", "m2m_100"):  # for which no weights were found with which some end early
        assert len(set(map(len, words))) > 1
    if scores is not None:
        assert [spans[0].score for spans in results] == pytest.approx(scores.tolist(), abs=1e-4)
    sources = [[sentence] for sentence in to_docmt_ids(rows, "source", SOURCES)]
    specials = SpecialTokens(sentence_model.config.vocabulary_size)
    again = score_documents(sentence_model, sources, [spans[0].sentences for spans in results], specials, config)
    assert [translation.score for translation in again] == pytest.approx(
        [spans[0].score for spans in results], abs=1e-4
    )


def group_of(sentence_model, **options):
    """A group model that starts from a sentence model."""
    torch.manual_seed(7)
    config = replace(
        sentence_model.config, system="group", positions="sentence", group=Group(**options), instance_tokens=40
    )
    model = TranslationModel(config)
    initial, start = model.state_dict(), sentence_model.state_dict()
    origins = {name: model.system.initial_weight(name) for name in initial}
    model.load_state_dict(
        {name: start[origin] if origin in start else initial[name] for name, origin in origins.items()}
    )
    return model.eval()


NONE = {"encoder_layers": 0, "decoder_layers": 0, "cross_layers": 0}


@pytest.mark.full
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(
    "options", [NONE, {}, {"global_start": "local"}], ids=["no document attention", "exact", "copied"]
)
def test_a_group_model_begins_as_the_sentence_model_at_any_length_of_document(variant, options, converted):
    """Token for token, with several sentences in an instance and several instances in a document."""
    _, sentence_model, rows = converted(variant, random=True)
    model = group_of(sentence_model, **options)
    sources = [sentence for _ in range(3) for sentence in to_docmt_ids(rows, "source", SOURCES)]
    targets = [sentence for _ in range(3) for sentence in to_docmt_ids(rows, "target", TARGETS)]
    specials = SpecialTokens(sentence_model.config.vocabulary_size)
    config = SearchConfig(beam=1, max_length_ratio=0, max_length_extra=9)
    alone = [
        spans[0].sentences[0]
        for spans in translate_documents(sentence_model, [[sentence] for sentence in sources], specials, config)
    ]
    together = translate_documents(model, [sources], specials, config)[0][0]
    assert together.sentences == alone
    assert together.score == pytest.approx(
        score_documents(model, [sources], [alone], specials, config)[0].score, abs=1e-4
    )
    words = [SentenceTokens.from_documents([sentence]) for sentence in (sources, targets)]
    instances = cut_instances(
        words[0].lengths, words[1].lengths, [0, len(sources)], model.system.context_spec(), limit=40
    )
    assert 1 < len(instances) < len(sources)
    batch = collate(*words, instances, range(len(instances)), specials, model.boundary_tokens)
    expected = batch_of(sentence_model, rows, SOURCES * 3, TARGETS * 3)
    assert torch.equal(batch.labels, expected.labels)
    with torch.no_grad():
        logits, wanted = model.project(model(batch.inputs)), sentence_model.project(sentence_model(expected.inputs))
    assert torch.allclose(logits, wanted, atol=1e-5)


@pytest.mark.full
@pytest.mark.parametrize("variant", ["marian", "mbart50", "t5"])
def test_a_group_model_that_begins_exactly_learns_to_look_at_the_document(variant, converted):
    _, sentence_model, rows = converted(variant)
    model = group_of(sentence_model)
    batch = batch_of_one_document(model, rows)
    states = model(batch.inputs)
    logits = model.project(states)
    torch.nn.functional.cross_entropy(logits, batch.labels).backward()
    new = [name for name in model.state_dict() if ".global.output.weight" in name]
    assert new and all(dict(model.named_parameters())[name].grad.abs().max() > 0 for name in new)


def batch_of_one_document(model, rows):
    """All sentences as one document."""
    words = [
        SentenceTokens.from_documents([to_docmt_ids(rows, side, sentences)])
        for side, sentences in (("source", SOURCES), ("target", TARGETS))
    ]
    instances = cut_instances(words[0].lengths, words[1].lengths, [0, len(SOURCES)], model.system.context_spec())
    specials = SpecialTokens(model.config.vocabulary_size)
    return collate(*words, instances, [0], specials, model.boundary_tokens)
