"""The tokenizer of a converted model: a small one of each library, without anybody else's directory."""

import io
import json
from itertools import islice
from random import Random

import pytest
import sentencepiece
from benchmarks.synthetic.grammar import stream_documents
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from docmt.core.errors import DocmtError
from docmt.text import PretrainedTokenizer, load_tokenizer, train_tokenizer
from docmt.text.pretrained import JsonSubwordModel, SpmSubwordModel, Vocabulary, restrict_vocabulary

TEXT = [sentence for document in islice(stream_documents(Random(2)), 20) for sentence in document.document.source]
SPECIALS = ("<s>", "<pad>", "</s>", "<unk>")


def vocabulary(words, rows=None):
    """Words, a mark, a row that nobody knows."""
    symbols = (*SPECIALS, *words, ">>de<<", None, None, None)
    count = len(symbols)
    return Vocabulary(symbols, frozenset([count - 4]), rows or (*range(count - 2), -1, -1))


def same_on_both_sides(words, pieces):
    sides = ("source", "target")
    return PretrainedTokenizer(dict.fromkeys(sides, words), dict.fromkeys(sides, pieces), {"de": ">>de<<"})


def json_tokenizer():
    library = Tokenizer(models.BPE())
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(initial_alphabet=alphabet, vocab_size=400, show_progress=False)
    library.train_from_iterator(TEXT, trainer)
    words = vocabulary(sorted(library.get_vocab()))
    return same_on_both_sides(words, JsonSubwordModel(library.to_str().encode(), words.word_ids()))


def spm_tokenizer(kind="unigram"):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXT),
        model_writer=model,
        vocab_size=200,
        model_type=kind,
        character_coverage=1.0,
        minloglevel=3,
    )
    library = sentencepiece.SentencePieceProcessor()
    library.LoadFromSerializedProto(model.getvalue())
    words = vocabulary([library.id_to_piece(number) for number in range(3, library.get_piece_size())])
    return same_on_both_sides(words, SpmSubwordModel(model.getvalue(), words.word_ids()))


def two_sided():
    source, target = json_tokenizer(), spm_tokenizer()
    return PretrainedTokenizer(
        {"source": source.vocabularies["source"], "target": target.vocabularies["target"]},
        {"source": source.subword_models["source"], "target": target.subword_models["target"]},
        {"de": ">>de<<"},
    )


MAKERS = [json_tokenizer, spm_tokenizer, lambda: spm_tokenizer("bpe"), two_sided]


@pytest.fixture(scope="module", params=MAKERS, ids=["json", "spm", "spm-bpe", "two-sided"])
def tokenizer(request):
    return request.param()


def test_a_pattern_without_an_end_is_an_error_that_names_the_sentence():
    split = {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": False}
    model = {"type": "Unigram", "vocab": [["", 0.0], ["a", -1.0], ["b", -1.0]], "unk_id": 0}
    pieces = JsonSubwordModel(
        json.dumps({"version": "1.0", "pre_tokenizer": split, "model": model}).encode(), {"a": 4, "b": 5}
    )
    with pytest.raises(DocmtError, match=r"cannot split the sentence 'a{60}' \(.*Shorten or change"):
        pieces.encode(["ab", "a" * 60 + "b", "b"])
    assert pieces.encode(["ab", "aaa"]) == [[4, 5], [4, 4, 4]]


def test_text_comes_back(tokenizer):
    assert tokenizer.encode_batch([], "source") == tokenizer.decode_batch([], "source") == []
    for side in ("source", "target"):
        batch = tokenizer.encode_batch(["", *TEXT], side)
        assert batch[0] == []
        words = set(tokenizer.vocabularies[side].word_ids().values())
        assert words.issuperset(token for ids in batch for token in ids)
        assert tokenizer.decode_batch(batch, side) == ["", *TEXT]


def test_marks_and_unknown_rows_have_no_text(tokenizer):
    for side in ("source", "target"):
        size = len(tokenizer.vocabularies[side].symbols)
        ids = tokenizer.encode(TEXT[0], side)
        mark = tokenizer.find_id(">>de<<", side)
        assert mark == size - 4
        assert tokenizer.decode([0, 1, 2, 3, mark, size - 3, *ids, size - 2, size - 1], side) == TEXT[0]
        with pytest.raises(ValueError, match=f"token id {size} is outside"):
            tokenizer.decode([size], side)
        with pytest.raises(ValueError, match="token id -1 is outside"):
            tokenizer.decode([-1], side)
    assert tokenizer.find_id("nobody knows it", "target") is None
    assert tokenizer.language_marks() == {"de": ">>de<<"}


def test_text_that_is_not_unicode_is_refused(tokenizer):
    with pytest.raises(DocmtError, match="lone surrogate"):
        tokenizer.encode("a \ud800", "source")
    with pytest.raises(DocmtError, match="lone surrogate"):
        restrict_vocabulary(tokenizer, [("source", "a \ud800")])


def test_a_side_is_needed_only_where_sides_differ():
    alike, different = json_tokenizer(), two_sided()
    assert alike.decode(alike.encode(TEXT[0])) == TEXT[0]
    for use in (lambda: different.encode("a"), lambda: different.decode([4])):
        with pytest.raises(ValueError, match="has two sides"):
            use()
    assert alike.shares_vocabulary
    assert not different.shares_vocabulary
    assert different.source_vocabulary_size == alike.vocabulary_size


def test_saved_and_loaded_it_is_the_same(tokenizer, tmp_path):
    tokenizer.save(tmp_path)
    read = load_tokenizer(tmp_path)
    assert read.has_same_vocabulary(tokenizer)
    for side in ("source", "target"):
        assert read.encode_batch(TEXT, side) == tokenizer.encode_batch(TEXT, side)
        assert read.rows(side) == tokenizer.rows(side)


def test_same_words():
    unigram, bpe = spm_tokenizer(), spm_tokenizer("bpe")
    assert not unigram.has_same_vocabulary(bpe)
    assert not unigram.has_same_vocabulary(json_tokenizer())
    assert not unigram.has_same_vocabulary(train_tokenizer("bpe", TEXT, 300))
    words = unigram.vocabularies["source"]
    moved = Vocabulary(words.symbols, words.marks, tuple(reversed(words.rows)))
    both = ("source", "target")
    assert unigram.has_same_vocabulary(PretrainedTokenizer(dict.fromkeys(both, moved), unigram.subword_models, {}))
    unmarked = Vocabulary(words.symbols, frozenset(), words.rows)
    assert not unigram.has_same_vocabulary(
        PretrainedTokenizer(dict.fromkeys(both, unmarked), unigram.subword_models, {})
    )


def test_pruning_keeps_how_sentences_are_split(tokenizer):
    corpus = [(side, text) for text in TEXT[:10] for side in ("source", "target")]
    small = restrict_vocabulary(tokenizer, iter(corpus))
    assert small.vocabulary_size < tokenizer.vocabulary_size
    for side, text in corpus:
        before = [tokenizer.vocabularies[side].symbols[token] for token in tokenizer.encode(text, side)]
        assert [small.vocabularies[side].symbols[token] for token in small.encode(text, side)] == before
    for side in ("source", "target"):
        assert small.decode_batch(small.encode_batch(TEXT, side), side) == TEXT
        assert small.find_id(">>de<<", side) == len(small.vocabularies[side].symbols) - 3


def damaged(name, change):
    def damage(folder):
        path = folder / name
        path.write_bytes(change(path.read_bytes()))

    return damage


def values(**changed):
    return lambda data: json.dumps({**json.loads(data), **changed}).encode()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: (folder / "vocabulary.json").unlink(), r"vocabulary\.json: there is no such file"),
        (lambda folder: (folder / "tokenizer.model").unlink(), r"tokenizer\.model: there is no such file"),
        (damaged("vocabulary.json", lambda data: data[:100]), "damaged"),
        (damaged("vocabulary.json", values(pieces=["../x"])), "there is no such file"),
        (damaged("vocabulary.json", values(vocabularies=[])), "0 entries for 2 sides"),
        (damaged("vocabulary.json", values(vocabularies=[{"symbols": ["a"], "rows": [0], "marks": []}])), "damaged"),
        (
            damaged("vocabulary.json", values(vocabularies=[{"symbols": ["a"] * 6, "rows": [0] * 6, "marks": []}])),
            "duplicate",
        ),
        (
            damaged("vocabulary.json", values(vocabularies=[{"symbols": [1] * 6, "rows": [0] * 6, "marks": []}])),
            "symbols, marks and rows",
        ),
        (damaged("vocabulary.json", values(language_marks=3)), "damaged"),
        (damaged("tokenizer.model", lambda data: data[:1000]), "is damaged"),
        (damaged("tokenizer.model", lambda data: b"\xff" * 50), "is damaged"),
    ],
)
def test_damaged_files_are_refused(damage, message, tmp_path):
    spm_tokenizer().save(tmp_path)
    damage(tmp_path)
    with pytest.raises(DocmtError, match=r"checksum|there is no such file"):
        load_tokenizer(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text('{"kind": "pretrained"}')  # without checksums
    with pytest.raises(DocmtError, match=message) as error:
        load_tokenizer(tmp_path)
    assert "\n" not in str(error.value)


def test_pieces_without_a_word_of_the_vocabulary_are_refused(tmp_path):
    json_tokenizer().save(tmp_path)
    (tmp_path / "tokenizer.json").write_text(Tokenizer(models.BPE()).to_str())
    (tmp_path / "tokenizer_config.json").write_text('{"kind": "pretrained"}')  # without checksums
    with pytest.raises(DocmtError, match=r"is damaged \(it lacks '!'\)"):
        load_tokenizer(tmp_path)


def test_it_cannot_be_trained():
    with pytest.raises(DocmtError, match="cannot be trained"):
        train_tokenizer("pretrained", TEXT)
