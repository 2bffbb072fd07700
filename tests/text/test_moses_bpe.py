"""The Moses pipeline: what comes back, what does not, and what is stored."""

import json
import re
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sacremoses import MosesPunctNormalizer

from docmt.core.errors import DocmtError
from docmt.text import MosesBpeTokenizer, SpecialTokens, load_tokenizer, train_tokenizer
from docmt.text.bpe import Moses

SIZE = 560
ENGLISH = [
    "The cat isn't on the mat; it's Anna's.",
    '"Well," she said, "I don\'t know (yet)."',
    "He paid $3.50 (about 5%) in 1996, not 1,000,000!",
    "The dogs' bones are 'very old', aren't they?",
    "Mr. Smith's well-known U.S. visit... cost £20 - or more.",
    "We know that he and the cat paid AT & T | nobody [yet] {5} in London.",
    "Is it 10 o'clock? Yes! We know.",
]
GERMAN = [
    'Er sagte: "Das ist gut", und ging.',
    "Das Haus ist z.B. in der Straße Nr. 5, seit dem 3. Mai 1996.",
    "Die Süd-Nord-Verbindung kostet ca. 1.000.000 €, oder 3,5%?",
    "Ein Haus & das Dach | nichts [mehr] ist 'gut' in Köln!",
    "Hat er das Haus gesehen? Nein, das war Die Zeit.",
]
FRENCH = [
    "L'homme n'est pas là, c'est-à-dire aujourd'hui.",
    "Qu'est-ce que c'est ?",
    '"Bonjour", dit-il à M. Dupont.',
    "Il a payé 3,5 % (environ 1 000 €) ; c'est tout : Rien !",
    "Le père & la mère | l'enfant [non] ont-ils dormi à Paris ?",
]
OTHERS = {"de": GERMAN, "fr": FRENCH}


def sentences(language: str) -> list[tuple[str, str]]:
    """Each as it stands and inside of another, so that words are seen in their true case."""
    pairs = [("source", text) for text in ENGLISH] + [("target", text) for text in OTHERS[language]]
    inside = [(side, f"x {text[0].lower()}{text[1:]}" if text[0].isalpha() else text) for side, text in pairs]
    return (pairs + inside + inside) * 3


@pytest.fixture(scope="module")
def german() -> MosesBpeTokenizer:
    return MosesBpeTokenizer.train(iter(sentences("de")), SIZE, ("en", "de"))


@pytest.fixture(scope="module")
def french() -> MosesBpeTokenizer:
    return MosesBpeTokenizer.train(iter(sentences("fr")), SIZE, ("en", "fr"))


def pieces(tokenizer: MosesBpeTokenizer, directory: Path) -> list[str]:
    """The units by id."""
    tokenizer.save(directory)
    vocabulary = json.loads((directory / "tokenizer.json").read_text())["model"]["vocab"]
    return [""] * SpecialTokens.first_word + sorted(vocabulary, key=vocabulary.__getitem__)


@pytest.mark.parametrize("text", [*ENGLISH, *GERMAN, *FRENCH])
def test_ordinary_prose_comes_back(german: MosesBpeTokenizer, french: MosesBpeTokenizer, text: str) -> None:
    tokenizer, side = (french if text in FRENCH else german), ("source" if text in ENGLISH else "target")
    ids = tokenizer.encode(text, side)
    assert tokenizer.decode(ids, side) == text
    assert ids and all(4 <= token < SIZE - 2 for token in ids)


def test_prose_with_words_that_training_did_not_see(german: MosesBpeTokenizer) -> None:
    for side, text in (
        ("source", "Zoë's brother-in-law (Björn) bought 17 \"jam jars\" for $9.99; didn't he?"),
        ("target", 'Übrigens: Quietschende Türen öffnen sich um 12.30 Uhr, "ganz leise", für 7,50 €.'),
    ):
        assert german.decode(german.encode(text, side), side) == text


@pytest.mark.parametrize(
    ("side", "text", "comes_back"),
    [
        ("source", "“Quoted” ‘text’ – really… it’s", "\"Quoted\" 'text' - really... it's"),
        ("source", "a  tab\tand\nlines ", "A tab and lines"),
        ("source", "and/or AT&T_x", "And / or AT & T _ x"),
        ("source", "<s> & </s> <0x41> &amp; x@y.com", "< s > & < / s > < 0x41 > & amp; x @ y.com"),
        ("source", "cost\0s \x07 5 % :", "Costs 5%:"),
        ("source", "he is 6'2\" tall", "He is 6 '2 \"tall"),
        ("source", "iPhone: it is THE end.", "IPhone: It is the end."),
        ("source", "e\u0301t\u00e9", "Été"),
        ("source", "👩\u200d👧", "👩 \u200d 👧"),
        ("target", "Wie geht's? „Gut“, »sehr«", 'Wie geht \'s? "Gut", "sehr"'),
        ("target", "Das kostet 5 € mehr.", "Das kostet 5 €mehr."),
        ("target", "Das Haus: da ist es.", "Das Haus: Da ist es."),
        ("target", "ßa", "ßa"),
        ("source", " \t ", ""),
        ("source", "\x01", ""),
        ("source", "", ""),
    ],
)
def test_what_does_not_come_back_is_known(german: MosesBpeTokenizer, side: str, text: str, comes_back: str) -> None:
    assert german.decode(german.encode(text, side), side) == comes_back


def test_each_side_has_its_own_rules(french: MosesBpeTokenizer, tmp_path: Path) -> None:
    text, units = "L'homme va?", pieces(french, tmp_path)
    texts = {side: "".join(units[token] for token in french.encode(text, side)) for side in ("source", "target")}
    assert texts == {"source": "L &apos;homme va ? ", "target": "l&apos; homme va ? "}
    assert french.decode(french.encode(text, "target"), "target") == "L'homme va ?"
    assert french.decode(french.encode("She came?", "source"), "source") == "She came?"
    for side in (None, "english"):
        with pytest.raises(ValueError, match="source or target"):
            french.encode("text", side)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="source or target"):
            french.decode([], side)  # type: ignore[arg-type]


def test_units_are_words_in_their_true_case_with_the_blank_that_ends_them(
    german: MosesBpeTokenizer, tmp_path: Path
) -> None:
    units = pieces(german, tmp_path)
    assert units[4:260] == [f"<0x{byte:02X}>" for byte in range(256)]

    def spelled(text: str, side: str) -> list[str]:
        return [units[token] for token in german.encode(text, side)]

    assert spelled("The cat & the cat", "source") == ["the ", "cat ", "&amp; ", "the ", "cat "]
    assert spelled("Das Haus", "target") == ["das ", "Haus "]
    assert spelled("The cat", "target")[0] == "T"  # not a word of German
    assert "".join(spelled("Hundehaus-Kasse", "target")) == "Hundehaus-Kasse "
    assert german.decode(
        german.encode("The cat", "source")[:1] + german.encode("Die Zeit", "target")[-1:], "source"
    ) == ("The Zeit")


def test_a_character_that_training_did_not_see_is_its_bytes(german: MosesBpeTokenizer, tmp_path: Path) -> None:
    units = pieces(german, tmp_path)
    ids = german.encode("猫😀", "source")
    assert SpecialTokens.unk not in ids
    assert [units[token] for token in ids][:3] == ["<0xE7>", "<0x8C>", "<0xAB>"]
    for text in ("The 猫 sat.", "Žluťoučký kůň", "Он жил в Москве", "٣ नमस्ते"):
        assert german.decode(german.encode(text, "source"), "source") == text
    assert german.decode(german.encode("猫", "source")[:2], "source") == "\ufffd" * 2


def visible(text: str) -> list[str]:
    return sorted("".join(text.split()).casefold())


@given(text=st.text(st.characters(exclude_categories=["Cs"])))
def test_no_character_of_any_text_is_lost(german: MosesBpeTokenizer, text: str) -> None:
    """The decoded text has everything in the Moses tokens, which have everything except what is normalised."""
    for side, language in (("source", "en"), ("target", "de")):
        scripts = Moses(language)
        tokens = scripts.tokenize(text)
        assert not any(sign in token for token in tokens for sign in "|<>'\"[] ")
        decoded = german.decode(german.encode(text, side), side)  # type: ignore[arg-type]
        normal = MosesPunctNormalizer(language).normalize(unicodedata.normalize("NFC", text))
        assert visible(decoded) == visible(re.sub(r"[\0-\x1f]", "", normal))


def test_batches_special_tokens_and_bad_ids(german: MosesBpeTokenizer) -> None:
    batch = [*ENGLISH, "", "猫"]
    encoded = german.encode_batch(batch, "source")
    assert encoded == [german.encode(text, "source") for text in batch]
    assert german.decode_batch(encoded, "source") == batch
    assert german.encode_batch([], "target") == german.decode_batch([], "target") == []
    specials = german.specials
    assert german.vocabulary_size == specials.vocabulary_size == SIZE
    words = german.encode("The cat", "source")
    marked = [specials.bos, *words, specials.unk, specials.eos, specials.pad, specials.eod, specials.mask]
    assert german.decode(marked, "source") == "The cat"
    with pytest.raises(ValueError, match="outside of the vocabulary"):
        german.decode([SIZE], "source")
    with pytest.raises(DocmtError, match="surrogate"):
        german.encode("broken \ud800", "source")


def test_saved_and_loaded_is_the_same(german: MosesBpeTokenizer, french: MosesBpeTokenizer, tmp_path: Path) -> None:
    german.save(tmp_path / "de")
    french.save(tmp_path / "fr")
    loaded = load_tokenizer(tmp_path / "de")
    assert sorted(path.name for path in (tmp_path / "de").iterdir()) == [
        "moses.json",
        "tokenizer.json",
        "tokenizer_config.json",
    ]
    assert type(loaded) is MosesBpeTokenizer and loaded.languages == ("en", "de") and loaded.vocabulary_size == SIZE
    assert loaded.has_same_vocabulary(german) and german.has_same_vocabulary(loaded)
    assert not loaded.has_same_vocabulary(french) and not loaded.has_same_vocabulary(
        train_tokenizer("bpe", ["a b"], 262)
    )
    texts = [*ENGLISH, *GERMAN, "猫 x"]
    for side in ("source", "target"):
        assert loaded.encode_batch(texts, side) == german.encode_batch(texts, side)  # type: ignore[arg-type]
    loaded.save(tmp_path / "again")
    for file in ("moses.json", "tokenizer.json"):
        assert (tmp_path / "again" / file).read_bytes() == (tmp_path / "de" / file).read_bytes()


def test_other_truecasing_is_another_vocabulary(german: MosesBpeTokenizer, tmp_path: Path) -> None:
    german.save(tmp_path)
    path = tmp_path / "moses.json"
    path.write_text(path.read_text().replace('["cat"]', '["Cat"]'))
    with pytest.raises(DocmtError, match=r"moses\.json is damaged .*checksum in tokenizer_config\.json"):
        load_tokenizer(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text('{"kind": "moses-bpe"}')
    changed = load_tokenizer(tmp_path)
    assert changed.encode("a cat", "source") != german.encode("a cat", "source")
    assert not changed.has_same_vocabulary(german)


def test_training_is_deterministic(german: MosesBpeTokenizer) -> None:
    again = train_tokenizer("moses-bpe", iter(sentences("de")), SIZE, ("en", "de"))
    assert again.has_same_vocabulary(german)


def test_the_vocabulary_has_a_smallest_and_a_largest_size(german: MosesBpeTokenizer) -> None:
    text = sentences("de")
    for size, message in ((100_000, r"100000 is too large for"), (262, r"262 is too small for the characters")):
        with pytest.raises(DocmtError, match=rf"{message} .* at (?:most|least) (\d+)$") as caught:
            train_tokenizer("moses-bpe", text, size, ("en", "de"))
        limit = int(str(caught.value).split()[-1])
        tokenizer = train_tokenizer("moses-bpe", text, limit, ("en", "de"))
        assert tokenizer.vocabulary_size == limit
        assert tokenizer.decode(tokenizer.encode(GERMAN[0], "target"), "target") == GERMAN[0]
    with pytest.raises(DocmtError, match=r"100 is too small\. It needs at least 262"):
        train_tokenizer("moses-bpe", text, 100, ("en", "de"))
    with pytest.raises(DocmtError, match="0 is too small"):
        train_tokenizer("moses-bpe", text, 0, ("en", "de"))
    with pytest.raises(DocmtError, match="30000 is too large"):
        train_tokenizer("moses-bpe", text, languages=("en", "de"))
    with pytest.raises(DocmtError, match="16000 is too large"):
        train_tokenizer("bpe", text)


def test_what_cannot_be_learned_from() -> None:
    with pytest.raises(DocmtError, match="no text to train"):
        train_tokenizer("moses-bpe", [], 300, ("en", "de"))
    with pytest.raises(DocmtError, match="training text is empty after Moses"):
        train_tokenizer("moses-bpe", [("source", "\x01 ")], 300, ("en", "de"))
    with pytest.raises(ValueError, match="source or target"):
        train_tokenizer("moses-bpe", ["no side"], 300, ("en", "de"))
    with pytest.raises(ValueError, match="codes of both languages"):
        train_tokenizer("moses-bpe", [("source", "x")], 300)
    with pytest.raises(DocmtError, match="'english' is not the code of a language"):
        train_tokenizer("moses-bpe", [("source", "x")], 300, ("english", "de"))


@pytest.mark.parametrize(
    ("file", "damage", "message"),
    [
        ("moses.json", None, r"cannot read the truecasing file .*moses\.json"),
        ("moses.json", b"", "is damaged"),
        ("moses.json", b"[]", "is damaged"),
        ("moses.json", b'{"languages": ["en"], "source": [], "target": []}', "is damaged"),
        ("moses.json", b'{"languages": ["en", "de"], "source": [["a"], ["A"]], "target": []}', r"is damaged"),
        ("moses.json", b'{"languages": ["en", "de"], "source": [[]], "target": []}', r"is damaged"),
        ("moses.json", b'{"languages": ["en", "de"], "source": [["a", "b"]], "target": []}', r"is damaged"),
        ("moses.json", b'{"languages": ["en", "de"], "source": [5], "target": []}', r"is damaged"),
        ("moses.json", b'{"languages": ["en", "\xff"]}', "is damaged"),
        ("moses.json", b'{"languages": ["en", "."], "source": [], "target": []}', r"'\.' is not the code"),
        ("tokenizer.json", None, r"cannot read the tokenizer file .*tokenizer\.json"),
        ("tokenizer.json", b"{", "is damaged"),
    ],
)
def test_damaged_files(
    german: MosesBpeTokenizer, file: str, damage: bytes | None, message: str, tmp_path: Path
) -> None:
    german.save(tmp_path)
    if damage is None:
        (tmp_path / file).unlink()
    else:
        (tmp_path / file).write_bytes(damage)
        with pytest.raises(DocmtError, match=rf"{file} is damaged \(it does not match its checksum"):
            load_tokenizer(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text('{"kind": "moses-bpe"}')  # without checksums
    with pytest.raises(DocmtError, match=message):
        load_tokenizer(tmp_path)
