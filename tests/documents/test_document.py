"""Document: joining gives the text back, spans cut out the sentences, replacing keeps the gaps."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from docmt.core.errors import DocmtError
from docmt.documents import Document, read_input

# Any text, and text made of what segmentation cares about, which hypothesis would rarely put together by itself.
PIECES = st.sampled_from(
    [
        *"aAbB.!?…:;,()[]\"'„“”‘’‚«»-*#>=|1259 \n\r\t\x00\x0b\x0c\x1c\x1f\x85\xa0\u2028\u2029\u3000\ufeff\u200b\u200f",
        *("\r\n", "\n\n", "1. ", "- ", "> ", "## ", "Dr.", "M. ", "3. Oktober", "J.\xa0", "J.-C.", "z. B.", "[x] "),
        *(
            "A sentence. ",
            "word ",
            "你好。",
            "「はい。」",
            "שלום. ",
            "مرحبا؟ ",
            "है। ",
            "😀",
            "👩‍👩‍👧",
            "e\u0301",
            "-----\n",
            "===\n",
        ),
    ]
)
TEXTS = st.text(st.characters(exclude_categories=["Cs"])) | st.lists(PIECES, max_size=40).map("".join)
LANGUAGES = st.sampled_from(["en", "de", "fr", "zh", "ar", "hi", "unknown", "de_AT", ""])


@given(TEXTS, LANGUAGES, st.booleans())
@example("", "en", False)
@example("\n\n \t\r\n", "en", True)
@example("\ufeff# Title\r\n\r\nA \x00 b.\r\n", "en", True)
@example("Plan B\u2028. And plan C\xa0.", "en", False)
def test_any_text_comes_back_and_sentences_are_clean(text: str, language: str, join_lines: bool) -> None:
    document = Document.from_text(text, language=language, join_lines=join_lines)
    assert document.text() == text
    assert [text[start:end] for start, end in document.spans()] == list(document.sentences)
    for sentence in document.sentences:
        assert sentence == sentence.strip()
        assert any(character.isalnum() for character in sentence)
        if not join_lines:
            assert len(sentence.splitlines()) == 1
    assert document.replace_sentences(document.sentences) == document


@given(st.lists(TEXTS))
def test_sentences_one_a_line(sentences: list[str]) -> None:
    document = Document.from_sentences(sentences, id="x")
    assert document.sentences == tuple(sentences)
    assert document.text() == "".join(f"{sentence}\n" for sentence in sentences)
    assert [document.text()[start:end] for start, end in document.spans()] == sentences


def test_replacing_keeps_gaps_and_id() -> None:
    document = Document.from_text("\ufeff# Ein Titel\n\n- Er kam.  Sie ging.\n", language="de", id="t")
    translated = document.replace_sentences(["A title", "He came.", ""])
    assert translated.text() == "\ufeff# A title\n\n- He came.  \n"
    assert translated.id == "t"
    assert document.sentences == ("Ein Titel", "Er kam.", "Sie ging.")


@pytest.mark.parametrize("sentences", [[], ["a"], ["a", "b", "c"]])
def test_replacing_with_another_number_of_sentences_is_refused(sentences: list[str]) -> None:
    document = Document.from_text("One. Two.", id="report.txt")
    with pytest.raises(DocmtError, match=rf"report\.txt has 2 sentences but {len(sentences)} replacements"):
        document.replace_sentences(sentences)


def test_counts_must_fit() -> None:
    with pytest.raises(ValueError, match="1 sentences need 2 gaps, not 1"):
        Document(("a",), ("",))


def test_is_immutable() -> None:
    document = Document.from_text("One.")
    with pytest.raises(dataclasses.FrozenInstanceError):
        document.id = "x"  # type: ignore[misc]


def test_spans_count_characters_not_bytes() -> None:
    document = Document.from_text("Hé 😀 wow! Ça va?", language="fr")
    assert document.spans() == [(0, 9), (10, 16)]


def test_lone_surrogate_is_refused() -> None:
    with pytest.raises(DocmtError, match=r"lone surrogate \(U\+D800\)"):
        Document.from_text("a\ud800b")


def test_read_protects_the_same_lines_as_the_command_line(tmp_path: Path) -> None:
    text = "One title\n\nA word.\n\n```\nx = 1\n```\n"
    (tmp_path / "t.txt").write_text(text)
    document = Document.read(tmp_path / "t.txt")
    assert document.sentences == ("One title", "A word.")
    assert (document.text(), document.id) == (text, str(tmp_path / "t.txt"))
    assert [document] == read_input(tmp_path / "t.txt").documents
    (tmp_path / "t.html").write_text("<p>One.</p>")
    with pytest.raises(DocmtError, match=r"t\.html is a web page, which only docmt translate and docmt check read"):
        Document.read(tmp_path / "t.html")


def test_files_of_several_documents_are_not_one(tmp_path: Path) -> None:
    line = '{"id": "a", "source": ["One.", "Two."]}\n'
    (tmp_path / "a.jsonl").write_text(line)
    assert Document.read(tmp_path / "a.jsonl").sentences == ("One.", "Two.")
    (tmp_path / "a.jsonl").write_text(line * 2)
    with pytest.raises(DocmtError, match=r"a\.jsonl has 2 documents\. Read them with docmt\.documents\.read_input"):
        Document.read(tmp_path / "a.jsonl")


def test_other_types_are_refused() -> None:
    with pytest.raises(TypeError, match="text must be a str, not NoneType"):
        Document.from_text(None)  # type: ignore[arg-type]
    for sentences in ("One. Two.", [None]):
        with pytest.raises(TypeError, match="sentences must be a sequence of str"):
            Document.from_sentences(sentences)  # type: ignore[arg-type]
