"""Tokenizers of Hugging Face directories agree with transformers' own."""

import json
import random
import re

import hub
import pytest
import sentencepiece
import tokenizers
from hub import FAMILIES, MARKED, ODD, SOURCE, SPACED, TARGET, pieces, spm, write
from tiers import only

from docmt.checkpoint.hf_tokenizer import read_tokenizer
from docmt.core.errors import DocmtError
from docmt.text import SpecialTokens, load_tokenizer
from docmt.text.pretrained import kept

pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("hub")


@pytest.fixture(
    scope="module", params=only(FAMILIES, hub.marian, hub.nllb_json, hub.t5_spm), ids=lambda family: family.__name__
)
def both(request, folder):
    theirs = request.param(folder)
    return read_tokenizer(theirs.path, theirs.config, (theirs.rows, theirs.rows)), theirs


def sides(sentences=()):
    return [("source", text) for text in (*SOURCE[:80], *sentences)] + [("target", text) for text in TARGET[:80]]


def test_ids_and_text_are_those_of_transformers(both):
    ours, theirs = both
    rows = {side: ours.rows(side) for side in ("source", "target")}
    own = theirs.theirs.all_special_tokens
    for side, sentence in sides([text for text in (*ODD, *SPACED) if not any(mark in text for mark in own)]):
        ids = ours.encode(sentence, side)
        if not (theirs.decoder_strips and sentence in SPACED):
            assert [rows[side][token] for token in ids] == theirs.encode(sentence, side), sentence
        text = theirs.decode(theirs.encode(sentence, side))
        assert ours.decode(ids, side) == text or (theirs.decoder_strips and sentence in SPACED)


def test_any_ids_have_the_text_of_transformers(both):
    ours, theirs = both
    draw = random.Random(1)
    rows = ours.rows("target")
    for _ in range(300):
        ids = [draw.randrange(ours.vocabulary_size) for _ in range(8)]
        known = [token for token in ids if token != ours.id_of(">>fra<<", "target")]  # theirs takes it for text
        known = [rows[token] for token in known if 0 <= rows[token] < len(theirs.theirs)]
        assert ours.decode(ids, "target") == theirs.decode(known)


def test_rows_are_all_rows_of_the_model_once(both):
    ours, theirs = both
    rows = ours.rows("source")
    assert rows == ours.rows("target")
    assert len(rows) == ours.vocabulary_size == ours.source_vocabulary_size == ours.word_count + SpecialTokens.count
    assert rows[-2:] == [-1, -1]
    assert sorted(row for row in rows if row >= 0) == list(range(theirs.rows))
    words = rows[SpecialTokens.first_word : -2]
    assert words == sorted(words)
    bos, *specials = hub.SPECIALS.get(theirs.config["model_type"], ("<s>", "<pad>", "</s>", "<unk>"))
    assert rows[1:4] == [theirs.theirs.convert_tokens_to_ids(text) for text in specials]
    known = ours.id_of(bos, "source") is not None
    assert rows[0] == (theirs.theirs.convert_tokens_to_ids(bos) if known else -1)


def test_text_that_looks_like_a_mark_is_text(both):
    ours, _ = both
    for sentence in MARKED:
        for side in ("source", "target"):
            ids = ours.encode(sentence, side)
            assert not ours.vocabularies[side].marks.intersection(ids)
            assert not {SpecialTokens.bos, SpecialTokens.pad, SpecialTokens.eos}.intersection(ids)


def test_saved_tokenizers_are_the_same(both, tmp_path):
    ours, _ = both
    ours.save(tmp_path)
    read = load_tokenizer(tmp_path)
    assert read.same_words(ours)
    assert (read.rows("source"), read.language_marks()) == (ours.rows("source"), ours.language_marks())
    for side, sentence in sides(ODD):
        assert read.encode(sentence, side) == ours.encode(sentence, side)
    assert read.sides_alike == ours.sides_alike == (len(list(tmp_path.iterdir())) == 3)


def test_a_pruned_vocabulary_splits_its_corpus_as_before(both):
    ours, _ = both
    corpus = [("source", text) for text in (*SOURCE[:20], *ODD)] + [("target", text) for text in TARGET[:20]]
    small = kept(ours, corpus)
    assert small.vocabulary_size < ours.vocabulary_size
    for side, sentence in corpus:
        ids, before = small.encode(sentence, side), ours.encode(sentence, side)
        assert [small.rows(side)[token] for token in ids] == [ours.rows(side)[token] for token in before]
        assert small.decode(ids, side) == ours.decode(before, side)
    for side, sentence in sides([*SPACED, *MARKED]):  # in smaller pieces where it was not in the corpus
        assert small.decode(small.encode(sentence, side), side) == ours.decode(ours.encode(sentence, side), side)
    assert small.language_marks() == ours.language_marks()
    assert kept(ours, corpus, always=[]).language_marks() == {}


def test_a_pruned_vocabulary_can_be_saved_and_pruned_again(both, tmp_path):
    ours, _ = both
    kept(ours, sides()).save(tmp_path)
    read = load_tokenizer(tmp_path)
    again = kept(read, [("source", SOURCE[0])])
    assert again.vocabulary_size < read.vocabulary_size
    rows = ours.rows("source")
    ids = [rows[token] for token in ours.encode(SOURCE[0], "source")]
    assert [again.rows("source")[token] for token in again.encode(SOURCE[0], "source")] == ids


def test_languages_by_the_codes_that_users_write(folder):
    marks = {}
    for family in (hub.marian, hub.m2m100, hub.mbart_spm, hub.nllb_json, hub.t5_spm):
        theirs = family(folder)
        ours = read_tokenizer(theirs.path, theirs.config, (theirs.rows, theirs.rows))
        marks[family.__name__] = ours.language_marks()
        for mark in ours.language_marks().values():
            row = ours.rows("target")[ours.id_of(mark, "target")]
            assert row == theirs.theirs.convert_tokens_to_ids(mark)
    assert marks["marian"] == {"fra": ">>fra<<"}
    assert len(marks["m2m100"]) == 100
    assert marks["m2m100"]["ast"] == "__ast__"
    assert marks["mbart_spm"] == {code: code for code in hub.MBART_LANGUAGES}
    assert marks["nllb_json"] == {code: code for code in hub.NLLB_LANGUAGES}
    assert marks["t5_spm"] == {}


def test_marian_with_a_vocabulary_for_each_side(folder):
    theirs = hub.marian(folder, separate=True)
    target_rows = len(json.loads((theirs.path / "target_vocab.json").read_text()))
    ours = read_tokenizer(theirs.path, theirs.config, (theirs.rows, target_rows))
    assert not ours.shares_vocabulary
    assert (ours.source_vocabulary_size, ours.vocabulary_size) == (theirs.rows + 3, target_rows + 3)
    assert ours.language_marks() == {"fra": ">>fra<<"}
    assert ours.id_of(">>fra<<", "target") is None
    assert ours.rows("target")[1:4] == [target_rows - 1, 0, 1]
    for side, sentence in sides([*ODD, *SPACED]):
        assert [ours.rows(side)[token] for token in ours.encode(sentence, side)] == theirs.encode(sentence, side)
    ids = ours.encode(TARGET[0], "target")
    assert ours.decode(ids, "target") == theirs.decode(theirs.encode(TARGET[0], "target"))
    with pytest.raises(ValueError, match="say which side"):
        ours.encode(SOURCE[0])
    small = kept(ours, sides())
    assert small.vocabulary_size < ours.vocabulary_size
    assert small.source_vocabulary_size < ours.source_vocabulary_size
    assert small.decode(small.encode(TARGET[0], "target"), "target") == ours.decode(ids, "target")


def test_a_model_that_normalises_is_the_measure(tmp_path):
    """NFKC: transformers 5 leaves it out for mBART, the model was trained with it."""
    model = spm(normalization="nmt_nfkc")
    path = write(tmp_path, special_tokens_map_json={"additional_special_tokens": ["de_DE"]})
    (path / "sentencepiece.bpe.model").write_bytes(model)
    rows = len(pieces(model)) + 3
    ours = read_tokenizer(path, {"model_type": "mbart"}, (rows, rows))
    library = sentencepiece.SentencePieceProcessor()
    library.LoadFromSerializedProto(model)
    for sentence in (*ODD, *SPACED):
        expected = [piece + 1 if piece else 3 for piece in library.encode(sentence)]
        assert ours.encode(sentence, "source") == expected
        text = library.decode([piece for piece in library.encode(sentence) if piece])
        assert ours.decode(ours.encode(sentence, "source"), "target") == text.strip()


def test_what_a_tokenizer_json_says_counts(folder, tmp_path):
    theirs = hub.mbart_json(folder)
    library = tokenizers.Tokenizer.from_file(str(theirs.path / "tokenizer.json"))
    library.normalizer = tokenizers.normalizers.NFKC()
    library.add_tokens(["clock ist"])
    library.enable_truncation(3)
    library.enable_padding(length=20)
    library.save(str(tmp_path / "tokenizer.json"))
    library.no_truncation()
    library.no_padding()
    ours = read_tokenizer(tmp_path, theirs.config, (theirs.rows, theirs.rows))
    added = library.token_to_id("clock ist")
    assert added == theirs.rows - 2
    for sentence in [*ODD, "die clock ist the clock"]:
        ids = ours.encode(sentence, "source")
        assert ids == library.encode(sentence, add_special_tokens=False).ids
        assert ours.decode(ids, "source") == library.decode(ids)
    assert added in ids
    small = kept(ours, [("target", "clock ist")])
    assert small.rows("target")[small.encode("clock ist", "target")[0]] == added


def test_marks_that_the_model_would_take_from_text(tmp_path):
    """MADLAD's model has its languages as symbols of text, and bytes for rare characters."""
    model = spm(symbols=("<2de>", "<2fr>", "▁<extra_id_0>"), size=600, byte_fallback=True)
    write(tmp_path, spiece_model=model, tokenizer_config_json={"extra_ids": 0, "pad_token": "<s>"})
    rows = len(pieces(model)) + 5
    ours = read_tokenizer(tmp_path, {"model_type": "t5", "pad_token_id": 1, "eos_token_id": 2}, (rows, rows))
    assert ours.language_marks() == {"de": "<2de>", "fr": "<2fr>"}
    assert ours.rows("source")[:4] == [-1, 1, 2, 0]
    for sentence in (*MARKED, *ODD[2:]):
        ids = ours.encode(sentence, "source")
        assert not ours.vocabularies["source"].marks.intersection(ids)
        assert ours.decode(ids, "target") == sentence
        small = kept(ours, [("source", "a")])
        assert small.decode(small.encode(sentence, "source"), "target") == sentence


def test_text_is_cleaned_up_where_the_directory_asks(folder, tmp_path):
    from transformers import MarianTokenizer

    path = hub.marian(tmp_path).path
    write(path, tokenizer_config_json={"separate_vocabs": False, "clean_up_tokenization_spaces": True})
    theirs = MarianTokenizer.from_pretrained(path)
    ours = read_tokenizer(path, {"model_type": "marian"}, (len(theirs), len(theirs)))
    for sentence in ("he does n't like it , or the clock 's . ' is '", "the clock ! is ?"):
        text = theirs.decode(theirs(sentence)["input_ids"], skip_special_tokens=True)
        assert ours.decode(ours.encode(sentence, "source"), "source") == text


MADE = {
    "spiece_model": spm(pad_id=0, eos_id=1, unk_id=2, bos_id=-1),
    "tokenizer_json": {"version": "1.0", "added_tokens": [], "model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}},
}
WORD_LEVEL = {"version": "1.0", "added_tokens": [], "model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}}


@pytest.mark.parametrize(
    ("files", "rows", "message"),
    [
        ({}, 10, r"has no tokenizer .*tokenizer\.json, .*spiece\.model"),
        ({"vocab_json": {"a": 1}}, 10, r"has no tokenizer .*vocab\.json with merges\.txt"),
        ({"tokenizer_json": b"{"}, 10, r"tokenizer\.json is damaged"),
        ({"tokenizer_json": {"model": 1}}, 10, r"tokenizer\.json is damaged"),
        ({"tokenizer_json": WORD_LEVEL}, 10, r"of type WordLevel, where docmt reads Unigram, BPE and WordPiece"),
        ({"tokenizer_json": MADE["tokenizer_json"]}, 10, r"has no '</s>', its eos token"),
        ({"spiece_model": b"no model"}, 500, r"spiece\.model is damaged"),
        ({"spiece_model": MADE["spiece_model"][:2000]}, 500, r"spiece\.model is damaged"),
        ({"spiece_model": b""}, 500, r"has no '</s>'"),
        ({"spiece_model": MADE["spiece_model"]}, 200, r"gives '.*' the id 200, where the model has 200 embeddings"),
        ({"spiece_model": MADE["spiece_model"], "tokenizer_config_json": b"[]"}, 500, "does not hold a JSON object"),
        ({"spiece_model": MADE["spiece_model"], "tokenizer_config_json": {"extra_ids": -1}}, 500, "extra_ids -1"),
        ({"spiece_model": MADE["spiece_model"], "tokenizer_config_json": {"pad_token": 3}}, 500, "damaged"),
        ({"spiece_model": MADE["spiece_model"], "added_tokens_json": {"new": 400}}, 500, r"text can become 'new'"),
        ({"merges_txt": b"a\xff", "vocab_json": {"a": 0}}, 10, r"merges\.txt is no text in UTF-8"),
        ({"merges_txt": b"a b\n", "vocab_json": {"a": 0}}, 10, r"merges\.txt is damaged .*`b` out of vocabulary"),
        (
            {"source_spm": spm(), "target_spm": spm(), "vocab_json": {"</s>": 0, "<unk>": 1, "\ud800": 2}},
            10,
            "surrogates not allowed",
        ),
        ({"merges_txt": b"", "vocab_json": {"a": "0"}}, 10, r"vocab\.json is no vocabulary"),
        ({"source_spm": spm(), "target_spm": b"?", "vocab_json": {"</s>": 0}}, 10, r"target\.spm is damaged"),
        ({"source_spm": spm(), "target_spm": spm(), "vocab_json": {"</s>": 0}}, 10, r"has no '<unk>'"),
        ({"source_spm": spm(), "target_spm": spm(), "vocab_json": {"</s>": 0, "<unk>": 0}}, 10, r"another token"),
    ],
)
def test_what_is_no_tokenizer_is_refused(files, rows, message, tmp_path):
    write(tmp_path, **files)
    with pytest.raises(DocmtError, match=message) as error:
        read_tokenizer(tmp_path, {"model_type": "t5"}, (rows, rows))
    assert "\n" not in str(error.value)


def test_a_directory_without_its_languages_is_refused(tmp_path):
    (tmp_path / "sentencepiece.bpe.model").write_bytes(spm())
    with pytest.raises(DocmtError, match="does not name its codes of languages"):
        read_tokenizer(tmp_path, {"model_type": "mbart"}, (400, 400))
    (tmp_path / "sentencepiece.bpe.model").write_bytes(MADE["spiece_model"])
    with pytest.raises(DocmtError, match="does not begin with <unk>, <s>, </s>"):
        read_tokenizer(tmp_path, {"model_type": "mbart"}, (400, 400))


def test_ids_and_sizes_of_another_model_are_refused(folder):
    theirs = hub.t5_spm(folder)
    with pytest.raises(DocmtError, match="350 embeddings for the source and 360 for the target"):
        read_tokenizer(theirs.path, theirs.config, (350, 360))
    with pytest.raises(DocmtError, match=re.escape("says eos_token_id 999, where the model has 400 embeddings")):
        read_tokenizer(theirs.path, {"model_type": "t5", "eos_token_id": 999}, (400, 400))
    write(theirs.path, generation_config_json={"eos_token_id": [5, 6]})
    assert read_tokenizer(theirs.path, theirs.config, (400, 400)).rows("source")[2] == 5
    assert read_tokenizer(theirs.path, {"eos_token_id": 1}, (400, 400)).rows("source")[2] == 1
