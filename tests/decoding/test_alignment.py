"""Word alignment: models whose alignment is known, every system, words and characters, the choice of the layer."""

import json
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from reference_search import DOCUMENTS, SPECIALS, build, make_drafts

import docmt
from docmt.checkpoint.model_directory import (
    AlignmentLayer,
    average_models,
    load_alignment_layer,
    load_model,
    save_model,
)
from docmt.core.errors import DocmtError
from docmt.decoding import ContextConfig, Ensemble, alignment
from docmt.decoding.alignment import align_documents, align_words, default_alignment_layer
from docmt.model import ModelConfig, TranslationModel
from docmt.model.systems import Cadec, Concat, Group
from docmt.text import BpeTokenizer
from docmt.training.validation import choose_alignment_layer, score_alignment_layers
from variants import SYSTEMS, in_tiers

TARGETS = [[[20, 21], [22], [23, 24, 25, 26, 27]], [[19, 18]], [[9, 9], [8, 7], [6, 5, 4, 20], [21], [22, 23]]]
LAYER = AlignmentLayer(1, True)


def copying_model(layers=1, copying=1, vocabulary_size=30, **settings):
    """Return a model in which one decoder layer attends to the source tokens that equal the input token."""
    torch.manual_seed(1)
    sizes = {"width": 64, "feed_forward": 8, "heads": 2, "encoder_layers": 1, "decoder_layers": layers}
    model = TranslationModel(
        ModelConfig(vocabulary_size=vocabulary_size, **sizes, **{"system": "sentence", **settings})
    )
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "tokens" in name:
                # Equal in two tables, and so large that positions do not count.
                parameter.copy_(20 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)))
            elif ".output." in name or ".outer." in name:
                parameter.zero_()  # so that states are the embeddings
            elif ".cross." in name and (".query." in name or ".key." in name):
                scale = 3.0 if name.startswith(f"decoder.{copying - 1}.") else 0.0
                parameter.copy_(scale * torch.eye(64) if name.endswith("weight") else torch.zeros(64))
    return model.eval()


def weights_of(model, sources, targets, layers=(LAYER,), wanted=None, **options):
    """Return the weights of each document, by number."""
    wanted = [range(len(source)) for source in sources] if wanted is None else wanted
    options = {"drafts": make_drafts(sources), **options}
    return align_documents(model, sources, targets, SPECIALS, layers=layers, wanted=wanted, **options)


def test_weights_are_read_where_the_token_is_the_input():
    source, target = [[5, 6, 7, 8]], [[8, 5, 7]]
    model = copying_model()
    shifted, predicted = (weights_of(model, [source], [target], [AlignmentLayer(1, x)])[0][0] for x in (True, False))
    assert shifted.argmax(1).tolist() == [3, 0, 2]
    assert shifted.max(1) == pytest.approx(1, abs=1e-3)
    # Where a token is predicted, the token before is the input; before the first one that is the boundary token.
    assert predicted[1:].argmax(1).tolist() == [3, 0]
    assert predicted[0].sum() < 0.1


@pytest.mark.parametrize(
    "settings",
    [
        {"system": "group"},
        {"system": "group", "group": Group(top_attention="group")},
        {"system": "concat", "concat": Concat(sentences=3)},
        {"system": "document"},
        {"system": "context"},
        {"system": "hierarchical"},
        {"system": "multihop"},
        {"system": "cadec"},
        {"system": "cadec", "cadec": Cadec(fusion="published")},
        {"system": "sentence", "family": "marian"},
        {"system": "sentence", "family": "bart"},
        {"system": "concat", "concat": Concat(sentences=3), "family": "rfa"},
    ],
    ids=str,
)
def test_links_stay_in_the_sentence(settings):
    """All sentences of the document have the same words, but each is aligned with its own."""
    model = copying_model(**settings)
    source, target = [[5, 6, 7], [7, 6], [6, 8, 5, 7]], [[6, 5, 7], [6, 7], [7, 8, 5, 6]]
    weights = weights_of(model, [source], [target], drafts=[source])[0]
    expected = [[words.index(word) for word in other] for words, other in zip(source, target, strict=True)]
    assert [weights[n].argmax(1).tolist() for n in range(3)] == expected
    shares = [weights[n].max(1).min() for n in range(3)]
    # Attention over the document is shared by equal words of all its sentences.
    whole = settings["system"] in ("document", "concat") or "cadec" in settings
    assert all(share < 0.6 for share in shares[1:2]) if whole else min(shares) > 0.99


def test_group_models_read_their_local_attention():
    model = copying_model(system="group")
    with torch.no_grad():
        model.get_submodule("decoder.0.cross.global.key").weight.zero_()
    weights = weights_of(model, [[[5, 6], [6, 5]]], [[[6, 5], [5, 6]]])[0]
    assert [weights[n].argmax(1).tolist() for n in range(2)] == [[1, 0], [1, 0]]


@pytest.mark.parametrize("system", in_tiers(SYSTEMS, also=["flat"]))
def test_in_every_system_batches_equal_single_documents(system):
    model = build(**SYSTEMS[system])
    layers = [AlignmentLayer(1, True)]
    together = weights_of(model, DOCUMENTS, TARGETS, layers)
    for number, (source, target) in enumerate(zip(DOCUMENTS, TARGETS, strict=True)):
        alone = weights_of(model, [source], [target], layers, drafts=[make_drafts(DOCUMENTS)[number]])[0]
        assert alone.keys() == together[number].keys() == set(range(len(source)))
        for sentence, weights in alone.items():
            assert weights.shape == (len(target[sentence]), len(source[sentence]))
            assert weights == pytest.approx(together[number][sentence], abs=1e-5)
            assert (weights >= 0).all() and (weights.sum(1) < 1 + 1e-5).all() and (weights.sum(1) > 0).all()


def test_only_instances_with_wanted_sentences_are_read(monkeypatch):
    model, batches = build(system="sentence"), []
    read = alignment._read_weights
    monkeypatch.setattr(alignment, "_read_weights", lambda *a: batches.append(len(a[2].source.sentences)) or read(*a))
    every = weights_of(model, DOCUMENTS, TARGETS)
    assert sum(batches) == 9
    batches.clear()
    some = weights_of(model, DOCUMENTS, TARGETS, wanted=[[1], [], [0, 4]])
    assert sum(batches) == 3
    assert [sorted(each) for each in some] == [[1], [], [0, 4]]
    for document, number in ((0, 1), (2, 0), (2, 4)):
        assert some[document][number] == pytest.approx(every[document][number], abs=1e-6)


def test_long_documents_are_cut_like_those_of_the_search():
    model = copying_model(system="group", instance_tokens=24)
    source = [[5 + (i + j) % 20 for j in range(6)] for i in range(40)]
    target = [sentence[::-1] for sentence in source]
    for context in (ContextConfig(), ContextConfig(overlap=1), ContextConfig(instance_tokens=100)):
        weights = weights_of(model, [source], [target], context=context)[0]
        assert [weights[n].argmax(1).tolist() for n in range(40)] == [[5, 4, 3, 2, 1, 0]] * 40
    with_last = weights_of(model, [source], [target], wanted=[[39]])[0]
    assert list(with_last) == [39] and with_last[39].argmax(1).tolist() == [5, 4, 3, 2, 1, 0]


def test_an_ensemble_averages_its_members():
    one, other = copying_model(), copying_model(layers=2, copying=2)
    layers, pair = [AlignmentLayer(1, True), AlignmentLayer(1, True)], ([[[5, 6, 7]]], [[[7, 6]]])
    single = [weights_of(member, *pair)[0][0] for member in (one, other)]
    assert weights_of(Ensemble([one, other]), *pair, layers)[0][0] == pytest.approx(sum(single) / 2, abs=1e-6)


def test_empty_sentences_have_no_weights():
    source, target = [[5, 6], [], [7], [8]], [[6, 5], [], [], [8]]
    weights = weights_of(copying_model(), [source], [target])[0]
    assert [weights[n].shape for n in range(4)] == [(2, 2), (0, 0), (0, 1), (1, 1)]
    assert align_words("a", "", weights[2], [(0, 1)], []) == ()
    assert align_words(" ", "b", weights[1], [], [(0, 1)]) == ()


def test_weights_that_are_no_numbers_are_an_error():
    model = copying_model()
    with torch.no_grad():
        model.get_submodule("decoder.0.cross.local.key").weight.fill_(torch.nan)
    with pytest.raises(DocmtError, match="not finite numbers"):
        weights_of(model, [[[5, 6]]], [[[6]]])


@pytest.mark.parametrize("copying", [1, 2, 3])
def test_ibm_model_1_chooses_the_layer_that_copies(copying):
    model, generator = copying_model(layers=3, copying=copying), np.random.default_rng(1)
    sources = [[generator.permutation(np.arange(5, 28))[:6].tolist()] for _ in range(60)]
    targets = [[generator.permutation(sentence).tolist() for sentence in document] for document in sources]
    scores = score_alignment_layers(model, sources, targets, SPECIALS)
    assert len(scores) == 6
    assert scores[AlignmentLayer(copying, True)] > 0.99
    assert max(score for layer, score in scores.items() if layer != AlignmentLayer(copying, True)) < 0.5
    assert choose_alignment_layer(model, sources, targets, SPECIALS) == AlignmentLayer(copying, True)
    examples = tuple([sentence for document in side for sentence in document] for side in (sources, targets))
    few = sources[:2], targets[:2]
    assert choose_alignment_layer(model, *few, SPECIALS, examples=examples) == AlignmentLayer(copying, True)


def test_without_links_there_is_no_choice():
    assert choose_alignment_layer(copying_model(), [[[5, 5]]], [[[6, 6]]], SPECIALS) is None
    assert choose_alignment_layer(copying_model(), [], [], SPECIALS) is None


@pytest.mark.parametrize(("layers", "default"), [(1, 1), (2, 1), (3, 1), (6, 3), (12, 6)])
def test_the_layer_of_a_model_without_a_choice(layers, default):
    assert default_alignment_layer(copying_model(layers=layers)) == AlignmentLayer(default, True)


def test_tokens_are_joined_to_words():
    source, target = "The dogs bark.", "Hunde bellen!"
    source_tokens = [(0, 3), (4, 7), (7, 8), (9, 13), (13, 14)]
    target_tokens = [(0, 3), (3, 5), (6, 12), (12, 13)]
    weights = np.array(
        [
            [0.1, 0.3, 0.3, 0.0, 0.3],  # Hun
            [0.4, 0.2, 0.2, 0.0, 0.2],  # de
            [0.0, 0.0, 0.0, 0.4, 0.5],  # bellen: the full stop has more, but of all words
            [0.0, 0.0, 0.0, 0.1, 0.9],
        ],
        dtype=np.float32,
    )
    links = align_words(source, target, weights, source_tokens, target_tokens)
    words = [(source[slice(*link.source)], target[slice(*link.target)], link.mutual) for link in links]
    assert words == [("dogs", "Hunde", True), ("bark", "bellen", True), (".", "!", True)]
    assert [link.weight for link in links] == pytest.approx([0.5, 0.4, 0.9])


def test_every_target_word_has_a_link_and_the_weaker_ones_are_not_mutual():
    weights = np.array([[0.9, 0.1], [0.5, 0.1], [0.1, 0.8]], dtype=np.float32)
    links = align_words("a b", "x y z", weights, [(0, 1), (2, 3)], [(0, 1), (2, 3), (4, 5)])
    assert [(link.source, link.target, link.mutual) for link in links] == [
        ((0, 1), (0, 1), True),
        ((0, 1), (2, 3), False),
        ((2, 3), (4, 5), True),
    ]


# Directories and the translator


TEXT = ["a b c", "d e!", "", "f, a"]


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    """A model that copies, of characters."""
    folder = tmp_path_factory.mktemp("copying") / "model"
    tokenizer = BpeTokenizer.train(["abcdef"], 263)
    model = copying_model(layers=2, copying=2, vocabulary_size=tokenizer.vocabulary_size)
    save_model(folder, model, tokenizer, alignment=AlignmentLayer(2, True))
    return folder


@pytest.fixture(scope="module")
def translator(directory):
    return docmt.Translator(directory, device="cpu")


@pytest.fixture(scope="module")
def scored(translator):
    source, target = (docmt.Document.from_sentences(x) for x in (TEXT, ["c b a", "! d e", "", "f, a"]))
    return translator.score(source, target)


def pairs(sentence):
    return [(sentence.source[slice(*link.source)], sentence.target[slice(*link.target)]) for link in sentence.alignment]


def test_the_translator_aligns_what_it_is_given(translator, scored):
    (aligned,) = translator.align([scored])
    assert [pairs(sentence) for sentence in aligned] == [
        [("c", "c"), ("b", "b"), ("a", "a")],
        [("!", "!"), ("d", "d"), ("e", "e")],
        [],
        [("f", "f"), (",", ","), ("a", "a")],
    ]
    assert [list(sentence.alignment) for sentence in aligned] == aligned.alignments()
    assert all(link.mutual and link.weight > 0.4 for links in aligned.alignments() for link in links)
    assert aligned.sentences[0].to_json()["alignment"] == [[4, 5, 0, 1], [2, 3, 2, 3], [0, 1, 4, 5]]
    assert replace(aligned, sentences=scored.sentences) == scored
    assert "alignment" not in scored.sentences[0].to_json()
    assert translator.align([]) == []


def test_translations_without_alignment_say_so(translator, scored):
    with pytest.raises(DocmtError, match=r"sentence 1 is not aligned\. Call Translator\.align"):
        scored.alignments()
    (some,) = translator.align([scored], sentences=[{1, 3}])
    assert [sentence.alignment is None for sentence in some] == [True, False, True, False]
    assert pairs(some.sentences[3]) == pairs(translator.align([scored])[0].sentences[3])
    assert translator.align([scored], sentences=[[]]) == [scored]
    with pytest.raises(DocmtError, match="there are 1 translations but 2 lists of sentences"):
        translator.align([scored], sentences=[[], []])
    with pytest.raises(DocmtError, match=r"translation 1 has 4 sentences, numbered from 0, but sentences has \[4\]"):
        translator.align([scored], sentences=[[4]])


def test_parts_of_a_stream_are_aligned(directory):
    search = docmt.SearchConfig(beam=1, max_length_ratio=0, max_length_extra=3)
    translator = docmt.Translator(directory, search=search, device="cpu")
    documents = [docmt.Document.from_sentences(TEXT), docmt.Document.from_sentences(["a"])]
    parts = [part for group in translator.stream_parts(documents, look_ahead=1) for part in translator.align(group)]
    assert Counter(part.document for part in parts)[0] > 1
    sentences = [sentence for part in parts for sentence in part.translation]
    whole = [sentence for each in translator.align(translator.translate_all(documents)) for sentence in each]
    assert list(map(pairs, sentences)) == list(map(pairs, whole))
    failed = replace(parts[0], translation=None, error=DocmtError("no"))
    assert translator.align([failed, parts[-1]])[0] is failed


def test_a_model_without_a_chosen_layer_is_aligned():
    model = Path(__file__).parent.parent / "data" / "group_bad_drafts"
    assert load_alignment_layer(model) is None
    translator = docmt.Translator(model, device="cpu")
    document = docmt.Document.from_sentences(["It is old.", "She sees the dog, and it is here."])
    (aligned,) = translator.align([translator.score(document, document)])
    assert [len(links) for links in aligned.alignments()] == [4, 10]


def test_the_layer_is_stored(directory, tmp_path):
    assert load_alignment_layer(directory) == AlignmentLayer(2, True)
    second = shutil.copytree(directory, tmp_path / "second")
    average_models([directory, second], tmp_path / "mean")
    assert load_alignment_layer(tmp_path / "mean") == AlignmentLayer(2, True)
    assert json.loads((directory / "config.json").read_text())["alignment"] == {"layer": 2, "shifted": True}


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (3, r'config.json has the entry "alignment": 3\. Write \{"layer": 1, "shifted": true\}'),
        ({"layer": True, "shifted": 1}, "with the number of a decoder layer, or remove it"),
        ({"layer": 3, "shifted": True}, "from decoder layer 3, but there are 2 layers"),
    ],
)
def test_a_wrong_entry_is_an_error(directory, scored, tmp_path, value, message):
    copy = shutil.copytree(directory, tmp_path / "copy")
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps({**config, "alignment": value}))
    assert load_model(copy).config.decoder_layers == 2
    with pytest.raises(DocmtError, match=message):
        docmt.Translator(copy, device="cpu").align([scored])
