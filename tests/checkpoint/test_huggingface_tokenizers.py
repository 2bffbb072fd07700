"""Tokenizers of Hugging Face directories agree with transformers' own."""

import json
import random
import re

import hub
import pytest
import sentencepiece
import tokenizers
from hub import FAMILIES, MARKED, ODD, SOURCE, SPACED, TARGET, pieces, spm, write
from quick_cases import full_except

from docmt.checkpoint.hf_tokenizer import read_tokenizer
from docmt.core.errors import DocmtError
from docmt.text import SpecialTokens, load_tokenizer
from docmt.text.pretrained import restrict_vocabulary

pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("hub")


@pytest.fixture(
    scope="module",
    params=full_except(FAMILIES, hub.marian, hub.nllb_json, hub.t5_spm),
    ids=lambda family: family.__name__,
)
def both(request, folder):
    directory = request.param(folder)
    return read_tokenizer(directory.path, directory.config, (directory.rows, directory.rows)), directory


def sides(sentences=()):
    return [("source", text) for text in (*SOURCE[:80], *sentences)] + [("target", text) for text in TARGET[:80]]


def test_ids_and_text_are_those_of_transformers(both):
    tokenizer, directory = both
    rows = {side: tokenizer.rows(side) for side in ("source", "target")}
    special_tokens = directory.tokenizer.all_special_tokens
    for side, sentence in sides([text for text in (*ODD, *SPACED) if not any(mark in text for mark in special_tokens)]):
        ids = tokenizer.encode(sentence, side)
        if not (directory.decoder_strips and sentence in SPACED):
            assert [rows[side][token] for token in ids] == directory.encode(sentence, side), sentence
        text = directory.decode(directory.encode(sentence, side))
        assert tokenizer.decode(ids, side) == text or (directory.decoder_strips and sentence in SPACED)


def test_any_ids_have_the_text_of_transformers(both):
    tokenizer, directory = both
    draw = random.Random(1)
    rows = tokenizer.rows("target")
    for _ in range(300):
        ids = [draw.randrange(tokenizer.vocabulary_size) for _ in range(8)]
        known = [
            token for token in ids if token != tokenizer.find_id(">>fra<<", "target")
        ]  # transformers reads it as text
        known = [rows[token] for token in known if 0 <= rows[token] < len(directory.tokenizer)]
        assert tokenizer.decode(ids, "target") == directory.decode(known)


def test_rows_are_all_rows_of_the_model_once(both):
    tokenizer, directory = both
    rows = tokenizer.rows("source")
    assert rows == tokenizer.rows("target")
    assert (
        len(rows)
        == tokenizer.vocabulary_size
        == tokenizer.source_vocabulary_size
        == tokenizer.word_count + SpecialTokens.count
    )
    assert rows[-2:] == [-1, -1]
    assert sorted(row for row in rows if row >= 0) == list(range(directory.rows))
    words = rows[SpecialTokens.first_word : -2]
    assert words == sorted(words)
    bos, *specials = hub.SPECIALS.get(directory.config["model_type"], ("<s>", "<pad>", "</s>", "<unk>"))
    assert rows[1:4] == [directory.tokenizer.convert_tokens_to_ids(text) for text in specials]
    known = tokenizer.find_id(bos, "source") is not None
    assert rows[0] == (directory.tokenizer.convert_tokens_to_ids(bos) if known else -1)


def test_text_that_looks_like_a_mark_is_text(both):
    tokenizer, _ = both
    for sentence in MARKED:
        for side in ("source", "target"):
            ids = tokenizer.encode(sentence, side)
            assert not tokenizer.vocabularies[side].marks.intersection(ids)
            assert not {SpecialTokens.bos, SpecialTokens.pad, SpecialTokens.eos}.intersection(ids)


def test_saved_tokenizers_are_the_same(both, tmp_path):
    tokenizer, _ = both
    tokenizer.save(tmp_path)
    read = load_tokenizer(tmp_path)
    assert read.has_same_vocabulary(tokenizer)
    assert (read.rows("source"), read.language_marks()) == (tokenizer.rows("source"), tokenizer.language_marks())
    for side, sentence in sides(ODD):
        assert read.encode(sentence, side) == tokenizer.encode(sentence, side)
    assert read.sides_alike == tokenizer.sides_alike == (len(list(tmp_path.iterdir())) == 3)


def test_a_pruned_vocabulary_splits_its_corpus_as_before(both):
    tokenizer, _ = both
    corpus = [("source", text) for text in (*SOURCE[:20], *ODD)] + [("target", text) for text in TARGET[:20]]
    small = restrict_vocabulary(tokenizer, corpus)
    assert small.vocabulary_size < tokenizer.vocabulary_size
    for side, sentence in corpus:
        ids, original_ids = small.encode(sentence, side), tokenizer.encode(sentence, side)
        assert [small.rows(side)[token] for token in ids] == [tokenizer.rows(side)[token] for token in original_ids]
        assert small.decode(ids, side) == tokenizer.decode(original_ids, side)
    for side, sentence in sides([*SPACED, *MARKED]):  # in smaller pieces where it was not in the corpus
        assert small.decode(small.encode(sentence, side), side) == tokenizer.decode(
            tokenizer.encode(sentence, side), side
        )
    assert small.language_marks() == tokenizer.language_marks()


def test_a_pruned_vocabulary_can_be_saved_and_pruned_again(both, tmp_path):
    tokenizer, _ = both
    restrict_vocabulary(tokenizer, sides()).save(tmp_path)
    read = load_tokenizer(tmp_path)
    again = restrict_vocabulary(read, [("source", SOURCE[0])])
    assert again.vocabulary_size < read.vocabulary_size
    rows = tokenizer.rows("source")
    ids = [rows[token] for token in tokenizer.encode(SOURCE[0], "source")]
    assert [again.rows("source")[token] for token in again.encode(SOURCE[0], "source")] == ids


def test_languages_by_the_codes_that_users_write(folder):
    marks = {}
    for family in (hub.marian, hub.m2m100, hub.mbart_spm, hub.nllb_json, hub.t5_spm):
        directory = family(folder)
        tokenizer = read_tokenizer(directory.path, directory.config, (directory.rows, directory.rows))
        marks[family.__name__] = tokenizer.language_marks()
        for mark in tokenizer.language_marks().values():
            row = tokenizer.rows("target")[tokenizer.find_id(mark, "target")]
            assert row == directory.tokenizer.convert_tokens_to_ids(mark)
    assert marks["marian"] == {"fra": ">>fra<<"}
    assert len(marks["m2m100"]) == 100
    assert marks["m2m100"]["ast"] == "__ast__"
    assert marks["mbart_spm"] == {code: code for code in hub.MBART_LANGUAGES}
    assert marks["nllb_json"] == {code: code for code in hub.NLLB_LANGUAGES}
    assert marks["t5_spm"] == {}


def test_marian_with_a_vocabulary_for_each_side(folder):
    directory = hub.marian(folder, separate=True)
    target_rows = len(json.loads((directory.path / "target_vocab.json").read_text()))
    tokenizer = read_tokenizer(directory.path, directory.config, (directory.rows, target_rows))
    assert not tokenizer.shares_vocabulary
    assert (tokenizer.source_vocabulary_size, tokenizer.vocabulary_size) == (directory.rows + 3, target_rows + 3)
    assert tokenizer.language_marks() == {"fra": ">>fra<<"}
    assert tokenizer.find_id(">>fra<<", "target") is None
    assert tokenizer.rows("target")[1:4] == [target_rows - 1, 0, 1]
    for side, sentence in sides([*ODD, *SPACED]):
        assert [tokenizer.rows(side)[token] for token in tokenizer.encode(sentence, side)] == directory.encode(
            sentence, side
        )
    ids = tokenizer.encode(TARGET[0], "target")
    assert tokenizer.decode(ids, "target") == directory.decode(directory.encode(TARGET[0], "target"))
    with pytest.raises(ValueError, match="has two sides"):
        tokenizer.encode(SOURCE[0])
    small = restrict_vocabulary(tokenizer, sides())
    assert small.vocabulary_size < tokenizer.vocabulary_size
    assert small.source_vocabulary_size < tokenizer.source_vocabulary_size
    assert small.decode(small.encode(TARGET[0], "target"), "target") == tokenizer.decode(ids, "target")


def test_a_model_that_normalises_is_the_measure(tmp_path):
    """NFKC: transformers 5 leaves it out for mBART, the model was trained with it."""
    model = spm(normalization="nmt_nfkc")
    path = write(tmp_path, special_tokens_map_json={"additional_special_tokens": ["de_DE"]})
    (path / "sentencepiece.bpe.model").write_bytes(model)
    rows = len(pieces(model)) + 3
    tokenizer = read_tokenizer(path, {"model_type": "mbart"}, (rows, rows))
    library = sentencepiece.SentencePieceProcessor()
    library.LoadFromSerializedProto(model)
    for sentence in (*ODD, *SPACED):
        expected = [piece + 1 if piece else 3 for piece in library.encode(sentence)]
        assert tokenizer.encode(sentence, "source") == expected
        text = library.decode([piece for piece in library.encode(sentence) if piece])
        assert tokenizer.decode(tokenizer.encode(sentence, "source"), "target") == text.strip()


def test_what_a_tokenizer_json_says_counts(folder, tmp_path):
    directory = hub.mbart_json(folder)
    library = tokenizers.Tokenizer.from_file(str(directory.path / "tokenizer.json"))
    library.normalizer = tokenizers.normalizers.NFKC()
    library.add_tokens(["clock ist"])
    library.enable_truncation(3)
    library.enable_padding(length=20)
    library.save(str(tmp_path / "tokenizer.json"))
    library.no_truncation()
    library.no_padding()
    tokenizer = read_tokenizer(tmp_path, directory.config, (directory.rows, directory.rows))
    added = library.token_to_id("clock ist")
    assert added == directory.rows - 2
    for sentence in [*ODD, "die clock ist the clock"]:
        ids = tokenizer.encode(sentence, "source")
        assert ids == library.encode(sentence, add_special_tokens=False).ids
        assert tokenizer.decode(ids, "source") == library.decode(ids)
    assert added in ids
    small = restrict_vocabulary(tokenizer, [("target", "clock ist")])
    assert small.rows("target")[small.encode("clock ist", "target")[0]] == added


def test_marks_that_the_model_would_take_from_text(tmp_path):
    """MADLAD's model has its languages as symbols of text, and bytes for rare characters."""
    model = spm(symbols=("<2de>", "<2fr>", "▁<extra_id_0>"), size=600, byte_fallback=True)
    write(tmp_path, spiece_model=model, tokenizer_config_json={"extra_ids": 0, "pad_token": "<s>"})
    rows = len(pieces(model)) + 5
    tokenizer = read_tokenizer(tmp_path, {"model_type": "t5", "pad_token_id": 1, "eos_token_id": 2}, (rows, rows))
    assert tokenizer.language_marks() == {"de": "<2de>", "fr": "<2fr>"}
    assert tokenizer.rows("source")[:4] == [-1, 1, 2, 0]
    for sentence in (*MARKED, *ODD[2:]):
        ids = tokenizer.encode(sentence, "source")
        assert not tokenizer.vocabularies["source"].marks.intersection(ids)
        assert tokenizer.decode(ids, "target") == sentence
        small = restrict_vocabulary(tokenizer, [("source", "a")])
        assert small.decode(small.encode(sentence, "source"), "target") == sentence


def test_text_is_cleaned_up_where_the_directory_asks(folder, tmp_path):
    from transformers import MarianTokenizer

    path = hub.marian(tmp_path).path
    write(path, tokenizer_config_json={"separate_vocabs": False, "clean_up_tokenization_spaces": True})
    reference = MarianTokenizer.from_pretrained(path)
    tokenizer = read_tokenizer(path, {"model_type": "marian"}, (len(reference), len(reference)))
    for sentence in ("he does n't like it , or the clock 's . ' is '", "the clock ! is ?"):
        text = reference.decode(reference(sentence)["input_ids"], skip_special_tokens=True)
        assert tokenizer.decode(tokenizer.encode(sentence, "source"), "source") == text


FILES = {
    "spiece_model": spm(pad_id=0, eos_id=1, unk_id=2, bos_id=-1),
    "tokenizer_json": {"version": "1.0", "added_tokens": [], "model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}},
}
WORD_LEVEL = {"version": "1.0", "added_tokens": [], "model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}}


@pytest.mark.parametrize(
    ("files", "rows", "message"),
    [
        ({}, 10, r"has no tokenizer .*tokenizer\.json, .*spiece\.model"),
        ({"vocab_json": {"a": 1}}, 10, r"has no tokenizer .*sentencepiece\.bpe\.model with vocab\.json"),
        ({"tokenizer_json": b"{"}, 10, r"tokenizer\.json is damaged"),
        ({"tokenizer_json": {"model": 1}}, 10, r"tokenizer\.json is damaged"),
        ({"tokenizer_json": WORD_LEVEL}, 10, r"of type WordLevel\. docmt reads Unigram, BPE and WordPiece"),
        ({"tokenizer_json": FILES["tokenizer_json"]}, 10, r"has no '</s>', its eos token"),
        ({"spiece_model": b"no model"}, 500, r"spiece\.model is damaged"),
        ({"spiece_model": FILES["spiece_model"][:2000]}, 500, r"spiece\.model is damaged"),
        ({"spiece_model": b""}, 500, r"has no '</s>'"),
        ({"spiece_model": FILES["spiece_model"]}, 200, r"gives '.*' the id 200, but the model has 200 embeddings"),
        ({"spiece_model": FILES["spiece_model"], "tokenizer_config_json": b"[]"}, 500, "does not hold a JSON object"),
        ({"spiece_model": FILES["spiece_model"], "tokenizer_config_json": {"extra_ids": -1}}, 500, "extra_ids -1"),
        ({"spiece_model": FILES["spiece_model"], "tokenizer_config_json": {"pad_token": 3}}, 500, "damaged"),
        ({"spiece_model": FILES["spiece_model"], "added_tokens_json": {"new": 400}}, 500, r"text can become 'new'"),
        (
            {"source_spm": spm(), "target_spm": spm(), "vocab_json": {"</s>": 0, "<unk>": 1, "\ud800": 2}},
            10,
            "surrogates not allowed",
        ),
        ({"source_spm": spm(), "target_spm": spm(), "vocab_json": {"a": "0"}}, 10, r"vocab\.json is not a vocabulary"),
        ({"source_spm": spm(), "target_spm": b"?", "vocab_json": {"</s>": 0}}, 10, r"target\.spm is damaged"),
        ({"source_spm": spm(), "target_spm": spm(), "vocab_json": {"</s>": 0}}, 10, r"has no '<unk>'"),
        ({"source_spm": spm(), "target_spm": spm(), "vocab_json": {"</s>": 0, "<unk>": 0}}, 10, r"another token"),
    ],
)
def test_invalid_tokenizers_are_refused(files, rows, message, tmp_path):
    write(tmp_path, **files)
    with pytest.raises(DocmtError, match=message) as error:
        read_tokenizer(tmp_path, {"model_type": "t5"}, (rows, rows))
    assert "\n" not in str(error.value)


def test_a_directory_without_its_languages_is_refused(tmp_path):
    (tmp_path / "sentencepiece.bpe.model").write_bytes(spm())
    with pytest.raises(DocmtError, match="lacks its language codes"):
        read_tokenizer(tmp_path, {"model_type": "mbart"}, (400, 400))
    (tmp_path / "sentencepiece.bpe.model").write_bytes(FILES["spiece_model"])
    with pytest.raises(DocmtError, match="does not begin with <unk>, <s>, </s>"):
        read_tokenizer(tmp_path, {"model_type": "mbart"}, (400, 400))


def test_ids_and_sizes_of_another_model_are_refused(folder):
    directory = hub.t5_spm(folder)
    with pytest.raises(DocmtError, match="350 source embeddings and 360 target embeddings"):
        read_tokenizer(directory.path, directory.config, (350, 360))
    with pytest.raises(DocmtError, match=re.escape("has eos_token_id 999, but the model has 400 embeddings")):
        read_tokenizer(directory.path, {"model_type": "t5", "eos_token_id": 999}, (400, 400))
    write(directory.path, generation_config_json={"eos_token_id": [5, 6]})
    assert read_tokenizer(directory.path, directory.config, (400, 400)).rows("source")[2] == 5
    assert read_tokenizer(directory.path, {"eos_token_id": 1}, (400, 400)).rows("source")[2] == 1
