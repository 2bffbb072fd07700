"""The vocabulary of a converted model."""

import logging

import pytest

from docmt.core.errors import DocmtError
from docmt.text import DictionaryTokenizer, load_tokenizer, train_tokenizer


def test_symbols_are_words_and_join_at_their_marks(tmp_path, caplog):
    tokenizer = DictionaryTokenizer(["das", "Haus@@", "tür", "."])
    assert tokenizer.encode_batch(["das Haus@@ tür .", ""]) == [[4, 5, 6, 7], []]
    assert tokenizer.decode_batch([[4, 5, 6, 7], [4, 5], []]) == ["das Haustür .", "das Haus", ""]
    assert tokenizer.vocabulary_size == 10
    tokenizer.save(tmp_path)
    assert load_tokenizer(tmp_path).symbols == tokenizer.symbols
    with caplog.at_level(logging.WARNING):
        assert tokenizer.encode("das Boot") == [4, 3]
    assert "'Boot'" in caplog.text


def test_damaged_files_and_training_are_refused(tmp_path):
    DictionaryTokenizer(["a", "b"]).save(tmp_path)
    for damaged in (b"a\na\n", b"a\nb", b"a\n\xff\n"):
        (tmp_path / "dictionary.txt").write_bytes(damaged)
        with pytest.raises(DocmtError, match=r"dictionary.txt is damaged"):
            load_tokenizer(tmp_path)
    with pytest.raises(DocmtError, match="cannot be trained"):
        train_tokenizer("dictionary", ["a"], 100)
