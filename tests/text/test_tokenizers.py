"""The Tokenizer contract, for every kind trained here."""

import ast
import json
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import docmt.text.tokenizer as tokenizer_module
from docmt.core.errors import DocmtError
from docmt.text import BpeTokenizer, SentencePieceTokenizer, SpecialTokens, Tokenizer, load_tokenizer, train_tokenizer

KINDS = ("bpe", "sentencepiece")
SIZE = 400
AWKWARD = [
    "",
    " ",
    "   ",
    " leading and trailing ",
    "double  space",
    "\t tab\nnewline\r\n",
    "<s>",
    "</s> <pad> <unk> <eod> <mask> <0x41>",
    "Ġ Ċ",
    "\0 nul \0\0",
    "👩‍👩‍👧 emoji 🇫🇷",
    "e\u0301 o\u0302\u0323 combining, ﬁ ligature, Å angstrom",
    "नमस्ते สวัสดี 你好世界",
    "\u00a0 \u2009 \u3000 \ufeff",
    "1996 3,14 ²³ ٣",
    "\ufffd \U0010ffff",
]


def sentences(count: int = 1500) -> list[str]:
    """Words made of syllables, so that there is something to merge."""
    chance = random.Random(5)
    syllables = ["the", "cat", "dog", "é", "où", "naï", "ver", "sch", "ein", "able", "ment", "un", "ro", "ta", "li"]
    words = ["".join(chance.choices(syllables, k=chance.randint(1, 4))) for _ in range(300)]
    words += ["the", "cat", "house", "l'homme", "1996", ",", ".", "«"] * 20
    return [" ".join(chance.choices(words, k=chance.randint(1, 12))) for _ in range(count)]


@pytest.fixture(scope="module")
def tokenizers() -> dict[str, Tokenizer]:
    return {kind: train_tokenizer(kind, iter(sentences()), SIZE) for kind in KINDS}


def test_special_tokens() -> None:
    specials = SpecialTokens(100)
    assert (specials.bos, specials.pad, specials.eos, specials.unk, specials.first_word) == (0, 1, 2, 3, 4)
    assert (specials.eod, specials.mask) == (98, 99)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("text", AWKWARD)
def test_awkward_text_comes_back(tokenizers: dict[str, Tokenizer], kind: str, text: str) -> None:
    ids = tokenizers[kind].encode(text)
    assert tokenizers[kind].decode(ids) == text
    assert all(4 <= token < SIZE - 2 for token in ids)
    assert bool(ids) == bool(text)


@pytest.mark.parametrize("kind", KINDS)
@given(text=st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_comes_back(tokenizers: dict[str, Tokenizer], kind: str, text: str) -> None:
    expected = text if kind == "bpe" else text.replace("▁", " ")
    assert tokenizers[kind].decode(tokenizers[kind].encode(text)) == expected


def test_what_sentencepiece_loses_is_what_its_docstring_says(tokenizers: dict[str, Tokenizer]) -> None:
    assert "U+2581" in (SentencePieceTokenizer.__doc__ or "")
    assert tokenizers["sentencepiece"].decode(tokenizers["sentencepiece"].encode("a▁b")) == "a b"
    assert tokenizers["bpe"].decode(tokenizers["bpe"].encode("▁ a▁b")) == "▁ a▁b"


@pytest.mark.parametrize("kind", KINDS)
def test_a_word_has_the_same_tokens_first_and_later(tokenizers: dict[str, Tokenizer], kind: str) -> None:
    tokenizer = tokenizers[kind]
    word = tokenizer.encode("house")
    assert tokenizer.encode("house house") == word + word


def test_bpe_splits_digits_and_learns_words(tokenizers: dict[str, Tokenizer]) -> None:
    tokenizer = tokenizers["bpe"]
    assert len(tokenizer.encode("house")) == 1
    assert [tokenizer.decode([token]) for token in tokenizer.encode("1996")] == ["1", "9", "9", "6"]
    assert [tokenizer.decode([token]) for token in tokenizer.encode("house, house.")] == ["house", ",", "house", "."]


@pytest.mark.parametrize("kind", KINDS)
def test_batches_are_the_single_sentences(tokenizers: dict[str, Tokenizer], kind: str) -> None:
    tokenizer, batch = tokenizers[kind], sentences(50) + AWKWARD
    encoded = tokenizer.encode_batch(batch)
    assert encoded == [tokenizer.encode(sentence) for sentence in batch]
    assert tokenizer.decode_batch(encoded) == batch
    assert tokenizer.encode_batch([]) == [] and tokenizer.decode_batch([]) == []


@pytest.mark.parametrize("kind", KINDS)
def test_decoding_leaves_special_tokens_out(tokenizers: dict[str, Tokenizer], kind: str) -> None:
    tokenizer = tokenizers[kind]
    specials = tokenizer.specials
    assert tokenizer.vocabulary_size == specials.vocabulary_size == SIZE
    words = tokenizer.encode("the cat")
    marked = [specials.bos, *words, specials.unk, specials.eos, specials.pad, specials.eod, specials.mask]
    assert tokenizer.decode(marked) == "the cat"
    for outside in (-1, SIZE):
        with pytest.raises(ValueError, match="outside of the vocabulary"):
            tokenizer.decode([outside])


@pytest.mark.parametrize("kind", KINDS)
def test_half_a_character_decodes_to_the_replacement_character(tokenizers: dict[str, Tokenizer], kind: str) -> None:
    tokenizer = tokenizers[kind]
    assert "\ufffd" in tokenizer.decode(tokenizer.encode("😀")[:-1])


@pytest.mark.parametrize("kind", KINDS)
def test_saved_and_loaded_is_the_same(tokenizers: dict[str, Tokenizer], kind: str, tmp_path: Path) -> None:
    other = tmp_path / "config.json"
    other.write_text("{}")
    tokenizers[kind].save(tmp_path)
    loaded = load_tokenizer(tmp_path)
    assert type(loaded) is type(tokenizers[kind]) and loaded.vocabulary_size == SIZE
    assert loaded.encode_batch(AWKWARD) == tokenizers[kind].encode_batch(AWKWARD)
    described = json.loads((tmp_path / "tokenizer_config.json").read_text())
    assert described["kind"] == kind and len(described["crc32"]) == 1
    assert other.read_text() == "{}"
    assert len(list(tmp_path.iterdir())) == 3


@pytest.mark.parametrize("kind", KINDS)
def test_training_is_deterministic(tokenizers: dict[str, Tokenizer], kind: str, tmp_path: Path) -> None:
    again = train_tokenizer(kind, iter(sentences()), SIZE)
    file = {"bpe": "tokenizer.json", "sentencepiece": "tokenizer.model"}[kind]
    for name, tokenizer in (("first", tokenizers[kind]), ("again", again)):
        tokenizer.save(tmp_path / name)
    assert (tmp_path / "first" / file).read_bytes() == (tmp_path / "again" / file).read_bytes()


@pytest.mark.parametrize("kind", KINDS)
def test_the_largest_possible_vocabulary_is_named_and_possible(kind: str, capfd: pytest.CaptureFixture[str]) -> None:
    text = sentences(200)
    with pytest.raises(DocmtError, match=r"100000 is too large for .* at most (\d+)$") as caught:
        train_tokenizer(kind, text, 100_000)
    largest = int(str(caught.value).split()[-1])
    assert train_tokenizer(kind, text, largest).vocabulary_size == largest
    with pytest.raises(DocmtError, match=f"at most {largest}"):
        train_tokenizer(kind, text, largest + 1)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("kind", KINDS)
def test_too_small_a_vocabulary(kind: str) -> None:
    with pytest.raises(DocmtError, match="100 is too small"):
        train_tokenizer(kind, sentences(20), 100)


def test_sentencepiece_names_the_smallest_vocabulary() -> None:
    with pytest.raises(DocmtError, match=r"262 is too small for the characters .* at least (\d+)$") as caught:
        train_tokenizer("sentencepiece", sentences(20), 262)
    smallest = int(str(caught.value).split()[-1])
    assert train_tokenizer("sentencepiece", sentences(20), smallest).vocabulary_size == smallest


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_to_learn_from(kind: str) -> None:
    for empty in ([], ["", ""]):
        with pytest.raises(DocmtError, match="no text to train"):
            train_tokenizer(kind, empty, SIZE)


@pytest.mark.parametrize("kind", KINDS)
def test_lone_surrogates_are_refused(tokenizers: dict[str, Tokenizer], kind: str) -> None:
    with pytest.raises(DocmtError, match="surrogate"):
        tokenizers[kind].encode_batch(["fine", "broken \ud800"])
    with pytest.raises(DocmtError, match="surrogate"):
        train_tokenizer(kind, ["fine", "broken \ud800"], SIZE)


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_while_reading_keeps_its_kind(kind: str) -> None:
    def reader():  # type: ignore[no-untyped-def]
        yield "one"
        raise DocmtError("line 2 is broken")

    with pytest.raises(DocmtError, match="line 2 is broken"):
        train_tokenizer(kind, reader(), SIZE)


def test_unknown_kind(tmp_path: Path) -> None:
    with pytest.raises(DocmtError, match=r"'word'.*bpe, sentencepiece"):
        train_tokenizer("word", [], SIZE)
    (tmp_path / "tokenizer_config.json").write_text('{"kind": ["bpe"]}')
    with pytest.raises(DocmtError, match="unknown tokenizer kind"):
        load_tokenizer(tmp_path)


def test_missing_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(DocmtError, match="there is no tokenizer in"):
        load_tokenizer(tmp_path / "nowhere")
    (tmp_path / "tokenizer_config.json").write_text('{"kind": "bpe"}')
    with pytest.raises(DocmtError, match=r"cannot read .*tokenizer\.json"):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b"{}", b"\xff\xfe", b'{"kind"', b"[" * 100_000])
def test_damaged_configuration(tokenizers: dict[str, Tokenizer], damage: bytes, tmp_path: Path) -> None:
    tokenizers["bpe"].save(tmp_path)
    (tmp_path / "tokenizer_config.json").write_bytes(damage)
    with pytest.raises(DocmtError, match=r"tokenizer_config\.json does not describe"):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("damage", ["empty", "half", "other"])
def test_damaged_model(tokenizers: dict[str, Tokenizer], kind: str, damage: str, tmp_path: Path) -> None:
    tokenizers[kind].save(tmp_path)
    path = tmp_path / {"bpe": "tokenizer.json", "sentencepiece": "tokenizer.model"}[kind]
    data = path.read_bytes()
    path.write_bytes({"empty": b"", "half": data[: len(data) // 2], "other": b'{"version": "1.0"}\xff'}[damage])
    with pytest.raises(DocmtError, match=r"tokenizer\.(json|model) is damaged"):
        load_tokenizer(tmp_path)


STRANGE = {
    "truncation": {"direction": "Right", "max_length": 3, "strategy": "LongestFirst", "stride": 0},
    "padding": {
        "strategy": "BatchLongest",
        "direction": "Right",
        "pad_to_multiple_of": None,
        "pad_id": 1_000_000,
        "pad_type_id": 0,
        "pad_token": "x",
    },
    "normalizer": {"type": "Lowercase"},
    "added_tokens": [
        {
            "id": 0,
            "content": "a",
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
    ],
    "pre_tokenizer": {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": False},
    "post_processor": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
    "decoder": {"type": "Fuse"},
}


@pytest.mark.parametrize("name", STRANGE)
def test_changed_settings_are_refused_by_the_checksum(
    tokenizers: dict[str, Tokenizer], name: str, tmp_path: Path
) -> None:
    """Each would change sentences, or lose their ends, without a word."""
    tokenizers["bpe"].save(tmp_path)
    path = tmp_path / "tokenizer.json"
    values = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**values, name: STRANGE[name]}), encoding="utf-8")
    with pytest.raises(DocmtError, match=r"tokenizer\.json is damaged"):
        load_tokenizer(tmp_path)


def words_of(values: dict[str, Any], name: str) -> Any:
    return values["model"][name]


DAMAGES: dict[str, Callable[[dict[str, Any]], object]] = {
    "no word for a merge": lambda values: words_of(values, "vocab").pop("".join(words_of(values, "merges")[-1])),
    "a merge of three": lambda values: words_of(values, "merges").append("a b c"),
    "a merge of numbers": lambda values: words_of(values, "merges").append([1, 2]),
    "a merge of strangers": lambda values: words_of(values, "merges").append(["x\x1b", "y"]),
    "a prefix longer than the words": lambda values: values["model"].update(continuing_subword_prefix="####"),
    "ids with a hole": lambda values: words_of(values, "vocab").update(more=100_000),
    "an id twice": lambda values: words_of(values, "vocab").update(more=5),
    "another model": lambda values: values["model"].update(type="WordPiece"),
    "no model": lambda values: values.pop("model"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_words_and_merges_that_do_not_fit(tokenizers: dict[str, Tokenizer], damage: str, tmp_path: Path) -> None:
    tokenizers["bpe"].save(tmp_path)
    path = tmp_path / "tokenizer.json"
    values = json.loads(path.read_text(encoding="utf-8"))
    DAMAGES[damage](values)
    path.write_text(json.dumps(values), encoding="utf-8")
    with pytest.raises(DocmtError, match=r"tokenizer\.json is damaged"):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize("seed", range(3))
def test_any_change_of_a_tokenizer_json_is_refused_or_harmless(
    tokenizers: dict[str, Tokenizer], seed: int, tmp_path: Path
) -> None:
    """Without its checksum: what is accepted still encodes and decodes every text."""
    tokenizers["bpe"].save(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text('{"kind": "bpe"}')
    data = (tmp_path / "tokenizer.json").read_bytes()
    generator = random.Random(seed)
    for _ in range(60):
        damaged = bytearray(data)
        damaged[generator.randrange(len(data))] = generator.randrange(256)
        (tmp_path / "tokenizer.json").write_bytes(damaged)
        try:
            loaded = load_tokenizer(tmp_path)
        except DocmtError:
            continue
        assert loaded.decode_batch(loaded.encode_batch(AWKWARD)) == AWKWARD


@pytest.mark.parametrize(
    "start", [b"", b"\x0a\x0e", b"\x0a\xff\xff\xff\xff\x0f", b"\x12\x04abcd", b"{}", b"\0" * 10_000]
)
def test_what_is_no_sentencepiece_model(tokenizers: dict[str, Tokenizer], start: bytes, tmp_path: Path) -> None:
    tokenizers["sentencepiece"].save(tmp_path)
    (tmp_path / "tokenizer.model").write_bytes(start)
    (tmp_path / "tokenizer_config.json").write_text('{"kind": "sentencepiece"}')  # without checksums
    with pytest.raises(DocmtError, match=r"tokenizer\.model is damaged or not a SentencePiece model"):
        load_tokenizer(tmp_path)


def test_a_sentencepiece_model_brought_along(tmp_path: Path) -> None:
    """With control pieces in front, no byte pieces, and normalisation: as most published models are."""
    import sentencepiece

    path = tmp_path / "their.model"
    with path.open("wb") as file:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(sentences()),
            model_writer=file,
            vocab_size=120,
            pad_id=0,
            eos_id=1,
            unk_id=2,
            bos_id=-1,
            control_symbols=["<2fr>"],
            user_defined_symbols=["@@"],
            minloglevel=3,
        )
    tokenizer = SentencePieceTokenizer.from_model(path)
    assert tokenizer.vocabulary_size == 120 - 4 + 6  # without <pad> </s> <unk> <2fr>, with ours
    assert tokenizer.decode(tokenizer.encode("the @@ cat")) == "the @@ cat"
    assert tokenizer.decode(tokenizer.encode("  ｔhe  cat ")) == "the cat"
    ids = tokenizer.encode("the 你 cat")
    assert SpecialTokens.unk in ids and tokenizer.decode(ids).split() == ["the", "cat"]
    assert all(4 <= token < tokenizer.specials.eod for token in tokenizer.encode("the <2fr> </s>") if token != 3)
    tokenizer.save(tmp_path / "saved")
    assert (tmp_path / "saved" / "tokenizer.model").read_bytes() == path.read_bytes()
    assert load_tokenizer(tmp_path / "saved").encode("the @@ cat") == tokenizer.encode("the @@ cat")
    with pytest.raises(DocmtError, match=r"cannot read .*missing\.model"):
        SentencePieceTokenizer.from_model(tmp_path / "missing.model")


def test_forking_after_use_is_quiet_and_works() -> None:
    program = """
import os, signal, sys
from docmt.text import BpeTokenizer
tokenizer = BpeTokenizer.train(["the cat sat"] * 9, 265)
batch = ["the cat sat"] * 200
expected = tokenizer.encode_batch(batch)
child = os.fork()
if child == 0:
    signal.alarm(20)
    os._exit(0 if tokenizer.encode_batch(batch) == expected else 1)
status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
sys.exit(status or "TOKENIZERS_PARALLELISM" in os.environ)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stderr) == (0, "")


def test_bpe_kind() -> None:
    assert BpeTokenizer.kind == "bpe" and SentencePieceTokenizer.kind == "sentencepiece"


def test_the_contract_knows_no_kind() -> None:
    """`docmt.text.tokenizer_registry` looks down on all kinds: none of them is imported inside of a function."""
    for path in Path(tokenizer_module.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("docmt"):
                assert node.col_offset == 0, f"{path.name}, line {node.lineno}"
