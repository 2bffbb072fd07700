"""Pretrained models of transformers, converted: the same states, logits, translations and scores."""

from dataclasses import replace

import pytest
import torch

pytest.importorskip("transformers")

from pretrained import SOURCE, TARGET, VARIANTS, build, build_suite_rows, framed
from tiers import only

from docmt.checkpoint.hf_model import Pretrained, family_of, read_config
from docmt.data import SentenceTokens, collate, cut
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
    """transformers' model of a variant, docmt's, and docmt's ids of its rows; made once."""
    made = {}

    def get(variant, random=False):
        if (variant, random) not in made:
            theirs, directory = build(variant, random), tmp_path_factory.mktemp("model")
            theirs.save_pretrained(directory)
            values = read_config(directory)
            pretrained = Pretrained.of(directory, family_of(directory, values), values)
            rows = {side: build_suite_rows(theirs, side) for side in ("source", "target")}
            family = FAMILIES[pretrained.family]
            marks = {}
            if family.names("source"):
                marks = {
                    "source_language_ids": [rows["source"].index(SOURCE)],
                    "target_language_ids": [rows["target"].index(TARGET)],
                }
            made[variant, random] = theirs, pretrained.model(rows, marks).eval(), rows
        return made[variant, random]

    return get


def padded(sentences, pad):
    """Sentences as a tensor, and which of it is no padding."""
    longest = max(map(len, sentences))
    ids = torch.tensor([[*own, *[pad] * (longest - len(own))] for own in sentences])
    return ids, torch.tensor([[1] * len(own) + [0] * (longest - len(own)) for own in sentences])


def ours_of(rows, side, sentences):
    """Their ids of words as docmt's."""
    place = {row: id for id, row in enumerate(rows[side])}
    return [[place[word] for word in sentence] for sentence in sentences]


def batch_of(model, rows, sources, targets):
    """What docmt reads of these sentences, each a document."""
    words = [
        SentenceTokens.of([[own] for own in ours_of(rows, side, given)])
        for side, given in (("source", sources), ("target", targets))
    ]
    instances = cut(words[0].lengths, words[1].lengths, range(len(sources) + 1), ContextSpec(sentences=1))
    specials = SpecialTokens(model.config.vocabulary_size)
    return collate(*words, instances, range(len(sources)), specials, model.parts.frame)


@pytest.mark.parametrize("variant", VARIANTS)
@torch.no_grad()
def test_encoder_states_and_logits_are_those_of_transformers(variant, converted):
    theirs, ours, rows = converted(variant)
    sources, inputs = zip(
        *((framed(variant, s)[0], framed(variant, t)[1]) for s, t in zip(SOURCES, TARGETS, strict=True)), strict=True
    )
    pad, eos = framed(variant, [])[2:]
    ids, mask = padded(sources, pad)
    decoder_ids, _ = padded(inputs, pad)
    expected = theirs(input_ids=ids, attention_mask=mask, decoder_input_ids=decoder_ids)
    batch = batch_of(ours, rows, SOURCES, TARGETS)
    states = ours.encode(batch.inputs.source)
    assert torch.allclose(states, expected.encoder_last_hidden_state[mask.bool()], atol=1e-5)
    logits = ours.project(ours(batch.inputs))
    predicted = rows["target"]
    known = [id for id, row in enumerate(predicted) if row >= 0]
    opening = len(inputs[0]) - len(TARGETS[0]) - 1
    wanted = torch.cat([own[opening : len(given)] for own, given in zip(expected.logits, inputs, strict=True)])
    assert torch.allclose(logits[:, known], wanted[:, [predicted[id] for id in known]], atol=1e-5)
    missing = [id for id, row in enumerate(predicted) if row < 0]
    assert logits[:, missing].isneginf().all()
    labels = [rows["target"].index(word) for target in TARGETS for word in [*target, eos]]
    assert batch.labels.tolist() == labels


@pytest.mark.full
@pytest.mark.parametrize("variant", VARIANTS)
def test_the_loss_of_training_is_that_of_the_logits(variant, converted):
    _, ours, rows = converted(variant)
    batch = batch_of(ours, rows, SOURCES, TARGETS)
    states = ours(batch.inputs)
    loss, nll = batch_loss(ours, states, batch.labels, 0.1)
    logits = ours.project(states)
    logits = logits[:, ~logits[0].isneginf()]  # of the ids that the head has
    first = ours.head().first
    expected = [
        torch.nn.functional.cross_entropy(logits, batch.labels - first, reduction="sum", label_smoothing=smoothing)
        for smoothing in (0.1, 0.0)
    ]
    torch.testing.assert_close((loss, nll), tuple(expected), rtol=1e-4, atol=1e-4)


def generate(theirs, variant, **options):
    """What transformers' own search finds: words of each source sentence, and their scores."""
    pad, eos = framed(variant, [])[2:]
    ids, mask = padded([framed(variant, own)[0] for own in SOURCES], pad)
    found = theirs.generate(
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
    for own in found.sequences.tolist():
        own = own[opens:]
        sequences.append(own[: own.index(eos)] if eos in own else own)
    return sequences, getattr(found, "sequences_scores", None)


def translate(ours, rows, config, documents=None):
    """docmt's translations of the same sentences, each a document, as their ids; and scores."""
    given = [[own] for own in ours_of(rows, "source", SOURCES)] if documents is None else documents
    specials = SpecialTokens(ours.config.vocabulary_size)
    found = translate_documents(ours, given, specials, config)
    words = [[rows["target"][id] for sentence in own[0].sentences for id in sentence] for own in found]
    return words, found


@pytest.mark.parametrize("variant", only(VARIANTS, *FAMILY_EACH))
@pytest.mark.parametrize(
    "options", only([{"beam": 1}, {"beam": 4}, {"beam": 3, "length_penalty": 0.4}], {"beam": 4}), ids=str
)
def test_search_finds_what_generate_finds(variant, options, converted):
    theirs, ours, rows = converted(variant, random=True)
    beam, penalty = options["beam"], options.get("length_penalty", 1.0)
    expected, scores = generate(theirs, variant, num_beams=beam, length_penalty=penalty)
    inner = len(ours.parts.frame.target_opens) - 1
    config = SearchConfig(
        **options, implementation="huggingface", min_length=0, max_length_ratio=0, max_length_extra=14 - inner
    )
    words, found = translate(ours, rows, config)
    assert words == expected
    if beam == 1 and variant not in ("marian", "m2m_100"):  # for which no weights were found with which some end early
        assert len(set(map(len, words))) > 1
    if scores is not None:
        assert [own[0].score for own in found] == pytest.approx(scores.tolist(), abs=1e-4)
    sources = [[own] for own in ours_of(rows, "source", SOURCES)]
    specials = SpecialTokens(ours.config.vocabulary_size)
    again = score_documents(ours, sources, [own[0].sentences for own in found], specials, config)
    assert [own.score for own in again] == pytest.approx([own[0].score for own in found], abs=1e-4)


def group_of(ours, **options):
    """A group model that starts from a sentence model."""
    torch.manual_seed(7)
    config = replace(ours.config, system="group", positions="sentence", group=Group(**options), instance_tokens=40)
    model = TranslationModel(config)
    own, start = model.state_dict(), ours.state_dict()
    origins = {name: model.system.origin(name) for name in own}
    model.load_state_dict({name: start[origin] if origin in start else own[name] for name, origin in origins.items()})
    return model.eval()


NONE = {"encoder_layers": 0, "decoder_layers": 0, "cross_layers": 0}


@pytest.mark.full
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(
    "options", [NONE, {}, {"global_start": "local"}], ids=["no document attention", "exact", "copied"]
)
def test_a_group_model_begins_as_the_sentence_model_at_any_length_of_document(variant, options, converted):
    """Token for token, with several sentences in an instance and several instances in a document."""
    _, ours, rows = converted(variant, random=True)
    model = group_of(ours, **options)
    sources = [own for _ in range(3) for own in ours_of(rows, "source", SOURCES)]
    targets = [own for _ in range(3) for own in ours_of(rows, "target", TARGETS)]
    specials = SpecialTokens(ours.config.vocabulary_size)
    config = SearchConfig(beam=1, max_length_ratio=0, max_length_extra=9)
    alone = [own[0].sentences[0] for own in translate_documents(ours, [[own] for own in sources], specials, config)]
    together = translate_documents(model, [sources], specials, config)[0][0]
    assert together.sentences == alone
    assert together.score == pytest.approx(
        score_documents(model, [sources], [alone], specials, config)[0].score, abs=1e-4
    )
    words = [SentenceTokens.of([own]) for own in (sources, targets)]
    instances = cut(words[0].lengths, words[1].lengths, [0, len(sources)], model.system.context_spec(), limit=40)
    assert 1 < len(instances) < len(sources)
    batch = collate(*words, instances, range(len(instances)), specials, model.parts.frame)
    expected = batch_of(ours, rows, SOURCES * 3, TARGETS * 3)
    assert torch.equal(batch.labels, expected.labels)
    with torch.no_grad():
        logits, wanted = model.project(model(batch.inputs)), ours.project(ours(expected.inputs))
    assert torch.allclose(logits, wanted, atol=1e-5)


@pytest.mark.full
@pytest.mark.parametrize("variant", ["marian", "mbart50", "t5"])
def test_a_group_model_that_begins_exactly_learns_to_look_at_the_document(variant, converted):
    _, ours, rows = converted(variant)
    model = group_of(ours)
    batch = batch_of_one_document(model, rows)
    states = model(batch.inputs)
    logits = model.project(states)
    torch.nn.functional.cross_entropy(logits, batch.labels).backward()
    new = [name for name in model.state_dict() if ".whole.output.weight" in name]
    assert new and all(dict(model.named_parameters())[name].grad.abs().max() > 0 for name in new)


def batch_of_one_document(model, rows):
    """All sentences as one document."""
    words = [
        SentenceTokens.of([ours_of(rows, side, given)]) for side, given in (("source", SOURCES), ("target", TARGETS))
    ]
    instances = cut(words[0].lengths, words[1].lengths, [0, len(SOURCES)], model.system.context_spec())
    specials = SpecialTokens(model.config.vocabulary_size)
    return collate(*words, instances, [0], specials, model.parts.frame)
