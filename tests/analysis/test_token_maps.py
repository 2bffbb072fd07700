"""Attention maps are the weights of the passes that score a translation, with the tokens of their rows and columns."""

import numpy as np
import pytest
import torch

import docmt
from docmt.analysis import attention_maps, draw_attention
from docmt.analysis.attention_analysis import attention_sites, describe_site, record_attention
from docmt.analysis.token_maps import scoring_passes
from docmt.checkpoint.model_directory import save_model
from docmt.core.errors import DocmtError
from docmt.model import ModelConfig, TranslationModel
from docmt.text import BpeTokenizer
from variants import SYSTEMS, in_tiers

SIZES = {"width": 16, "feed_forward": 32, "heads": 2, "encoder_layers": 2, "decoder_layers": 2, "dropout": 0.0}
SOURCE = ["ka lu me", "bo", "ni po ra su"]
TARGET = ["KA LU", "BO BO BO", "NI PO RA SU"]


@pytest.fixture(scope="module")
def tokenizer():
    return BpeTokenizer.train(SOURCE * 20 + TARGET * 20, 280)


@pytest.fixture
def build(tokenizer, tmp_path):
    """A function that returns a translator of a random model of a system."""

    def built(name):
        torch.manual_seed(3)
        config = ModelConfig(**{"vocabulary_size": tokenizer.vocabulary_size, **SIZES, **SYSTEMS[name]})
        card = {"source_language": "xx", "target_language": "yy"}
        folder = tmp_path / "model"
        drafter = None
        if config.system_options.context_spec().drafts:
            sentence = ModelConfig(vocabulary_size=tokenizer.vocabulary_size, system="sentence", **SIZES)
            drafter = tmp_path / "drafter"
            save_model(drafter, TranslationModel(sentence), tokenizer, card)
        save_model(folder, TranslationModel(config), tokenizer, card, drafter)
        return docmt.Translator(folder, device="cpu", search=docmt.SearchConfig(beam=1, max_length_extra=3))

    return built


def score(translator):
    source, target = (docmt.Document.from_sentences(side) for side in (SOURCE, TARGET))
    return translator.score(source, target)


@pytest.mark.parametrize("name", in_tiers(SYSTEMS))
def test_every_attention_has_a_map_of_its_weights(name, build):
    translator = build(name)
    translation = score(translator)
    maps, model, records = attention_maps(translator, translation), translator.model, {}
    ((inputs, _),) = scoring_passes(translator, SOURCE, [sentence.token_ids for sentence in translation])
    with torch.inference_mode(), record_attention(model, lambda record: records.update({record.site: record})):
        model(inputs)
        blocks = {describe_site(site): list(record.blocks()) for site, record in records.items()}
    assert set(maps) == set(blocks) and len(maps) == len(attention_sites(model))
    for site, each in maps.items():
        heads = {block.weights.shape[1] for block in blocks[site]} or {
            each.weights.shape[0]
        }  # none where nothing is seen
        assert {each.weights.shape} == {(count, len(each.queries), len(each.keys)) for count in heads}
        total = sum(float((block.weights * block.is_query[:, None, :, None]).sum()) for block in blocks[site])
        assert each.weights.sum() == pytest.approx(total, rel=1e-4, abs=1e-3)
        for block in blocks[site]:
            segment, place = (int(number) for number in block.is_query.nonzero()[0])
            weights = block.weights[segment, :, place]  # [H, l]
            query = int(block.queries[segment, place]) % len(each.queries)
            highest = int(weights[0].argmax())
            stored = each.weights[:, query, int(block.keys[segment, highest])]
            np.testing.assert_allclose(stored, weights[:, highest], atol=1e-5)


def test_rows_and_columns_have_the_names_of_their_tokens(build):
    translator = build("group")
    maps = attention_maps(translator, score(translator))
    cross = maps["decoder cross global 2"]
    for side, texts, tokens in (("target", TARGET, cross.queries), ("source", SOURCE, cross.keys)):
        encoded = translator.encode(texts, side)
        names = [[translator.tokenizer.decode([number], side) or f"<{number}>" for number in ids] for ids in encoded]
        assert list(tokens) == [token for sentence in names for token in ("<s>", *sentence, "</s>")]
    assert cross.keys == maps["encoder self global 1"].keys == maps["encoder self local 1"].queries
    np.testing.assert_allclose(cross.weights.sum(-1), 1, atol=1e-5)
    assert not np.triu(maps["decoder self global 1"].weights[0], 1).any(), "the decoder sees no later token"


def test_hops_attend_to_the_tokens_of_sentences_before(build):
    translator = build("multihop")
    maps = attention_maps(translator, score(translator))
    hop = maps["encoder context before 1 1"]
    assert hop.keys == hop.queries == maps["encoder self local 1"].queries
    second, third = (number for number, token in enumerate(hop.queries) if token == "<s>" and number)
    assert hop.weights[:, second:third, :second].sum(-1) == pytest.approx(1), "the second sentence sees the first one"
    assert maps["decoder earlier before 1 1"].keys == maps["decoder drafts local 1"].keys


def test_a_text_is_translated_first_and_drawn(build, tmp_path):
    maps = attention_maps(build("sentence"), "ka lu me.")
    kinds = ("encoder self local", "decoder self local", "decoder cross local")
    assert set(maps) == {f"{kind} {layer}" for kind in kinds for layer in (1, 2)}
    draw_attention(maps, str(tmp_path / "maps.svg"))
    assert (tmp_path / "maps.svg").read_text().count("<image") == len(maps)


def test_a_document_that_is_too_long_is_refused(build, monkeypatch):
    translator = build("sentence")
    monkeypatch.setattr("docmt.analysis.token_maps.MAX_TOKENS", 10)
    with pytest.raises(DocmtError, match=r"no attention maps of \d\d tokens in 1 passes\. Give a part of the document"):
        attention_maps(translator, score(translator))
