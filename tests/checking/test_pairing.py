"""Pairs of sentences of files with paragraphs, cues and cells."""

import zipfile

import pytest

from docmt.checking import check_files, read_translation
from docmt.core.errors import DocmtError


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


def subtitles(*texts, shift=0.0):
    return "".join(
        f"{n + 1}\n00:00:{3 * n + shift:06.3f} --> 00:00:{3 * n + 2 + shift:06.3f}\n{text}\n\n".replace(".", ",", 2)
        if text
        else ""
        for n, text in enumerate(texts)
    )


def pairs(source, target):
    [document] = read_translation(source, target).documents
    return list(document)


def test_subtitles_are_paired_in_order(tmp_path):
    """By the sentences of their cues, whatever their times."""
    source = write(tmp_path / "a.srt", subtitles("Hello there,", "we need 45.", "It is late."))
    expected = [("Hello there, we need 45.", "Bonjour, il en faut 45."), ("It is late.", "Il est tard.")]
    for shift in (0.0, 2.9, 10.0):
        text = subtitles("Bonjour,", "il en faut 45.", "Il est tard.", shift=shift)
        assert pairs(source, write(tmp_path / "b.srt", text)) == expected
    assert pairs(source, write(tmp_path / "b.vtt", "WEBVTT\n\n" + text.replace(",0", ".0"))) == expected
    with pytest.raises(DocmtError, match=r"a\.srt has 2 paragraphs .* but .*b\.srt has 1\."):
        check_files(source, write(tmp_path / "b.srt", subtitles("Bonjour,", "il en faut 45.", "...")))


def test_speakers_of_one_cue_stay_apart(tmp_path):
    source = write(tmp_path / "a.srt", subtitles("- Who is it?\n- It is me."))
    target = write(tmp_path / "b.srt", subtitles("- Qui est-ce ?\n- C'est moi."))
    assert pairs(source, target) == [("Who is it?", "Qui est-ce ?"), ("It is me.", "C'est moi.")]


def test_cells_of_markdown_are_compared(tmp_path):
    text = "It has {} rooms.\n\n| n | what |\n|---|---|\n| 7 | {} |\n"
    source = write(tmp_path / "a.md", text.format(45, "12 people came"))
    target = write(tmp_path / "b.md", text.format(45, "21 Leute kamen"))
    assert [f.sentences[0].source for f in check_files(source, target, kinds=["number"]).findings] == ["12 people came"]
    with pytest.raises(DocmtError, match=r"has 4 paragraphs \(and cells, labels\) but .* has 1"):
        check_files(source, write(tmp_path / "b.md", "Es hat 45.\n\n---\n"))


def test_markdown_with_as_many_lines_in_other_places(tmp_path):
    source = write(tmp_path / "a.md", "# A title\n\nIt has\n45 rooms.\n\nIt is 7 m\n")
    target = write(tmp_path / "b.md", "# Un titre\n\nIl a 45 pièces.\n\nIl fait\n7 m.\n")
    assert pairs(source, target)[1:] == [("It has 45 rooms.", "Il a 45 pièces."), ("It is 7 m", "Il fait 7 m.")]


def test_a_last_line_without_translation(tmp_path):
    source, target = write(tmp_path / "a.txt", "One.\nTwo.\n"), write(tmp_path / "b.txt", "Eins.\n\n")
    assert [f.kind for f in check_files(source, target, layout="text").findings] == ["empty"]


@pytest.mark.parametrize("name", ["a.po", "a.json", "a.xlf"])
def test_messages_are_refused_with_a_way_to_check_them(name, tmp_path):
    (tmp_path / name).write_text("{}")
    with pytest.raises(DocmtError, match=rf"{name} is .*, which docmt check does not read\. .*--format jsonl"):
        read_translation(tmp_path / name, tmp_path / name)


def test_standard_input_and_an_empty_translation_are_refused(tmp_path):
    source = write(tmp_path / "a.txt", "One.\n")
    with pytest.raises(DocmtError, match="standard input cannot be checked, as files are read more than once"):
        check_files("-", source)
    with pytest.raises(DocmtError, match=r"b\.txt has no sentences to check"):
        check_files(source, write(tmp_path / "b.txt", ""))
    page = write(tmp_path / "page", "<html><body><p>We need 45.</p></body></html>")
    assert pairs(page, page) == [("We need 45.", "We need 45.")]
    with pytest.raises(DocmtError, match=r"a\.txt is text but .*page is html"):
        check_files(source, page)


def write_book(path, *chapters):
    numbers = range(len(chapters))
    items = "".join(f'<item id="c{n}" href="{n}.xhtml" media-type="application/xhtml+xml"/>' for n in numbers)
    spine = "".join(f'<itemref idref="c{n}"/>' for n in numbers)
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("mimetype", "application/epub+zip")
        file.writestr(
            "META-INF/container.xml",
            '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>'
            '<rootfile full-path="a.opf" media-type="application/oebps-package+xml"/></rootfiles></container>',
        )
        file.writestr(
            "a.opf",
            f'<package xmlns="http://www.idpf.org/2007/opf"><metadata/><manifest>{items}</manifest>'
            f"<spine>{spine}</spine></package>",
        )
        for number, paragraphs in enumerate(chapters):
            body = "".join(f"<p>{text}</p>" for text in paragraphs)
            file.writestr(f"{number}.xhtml", f'<html xmlns="http://www.w3.org/1999/xhtml"><body>{body}</body></html>')
    return path


def test_a_chapter_with_a_lost_paragraph_is_a_finding(tmp_path):
    source = write_book(tmp_path / "a.epub", ["It is here.", "We need 45."], ["It has 77 rooms."])
    target = write_book(tmp_path / "b.epub", ["Es ist hier."], ["Es hat 88 Zimmer."])
    report = check_files(source, target, kinds=["sentence_count", "number"])
    assert report.documents == 2
    assert [(f.kind, f.sentences[0].source) for f in report.findings] == [
        ("sentence_count", "It is here."),
        ("number", "It has 77 rooms."),
    ]
    assert report.findings[0].message.startswith("2 source paragraphs but 1 target paragraphs;")
    with pytest.raises(DocmtError, match=r"has 2 chapters but .* has 1"):
        check_files(source, write_book(tmp_path / "c.epub", ["Es ist hier.", "Wir brauchen 45."]))


def test_a_file_with_both_sides_is_checked_alone(tmp_path):
    first, second = "Hello {name}, you have {count} messages. Good bye.", "Bonjour {name}, au revoir."
    fuzzy = '\n#, fuzzy\nmsgid "Old {x}"\nmsgstr "Vieux"\n'
    catalog = 'msgid ""\nmsgstr "Language: fr\\n"\n' + f'\nmsgid "{first}"\nmsgstr "{second}"\n' + fuzzy
    xliff = (
        '<xliff version="2.0" xmlns="urn:oasis:names:tc:xliff:document:2.0" srcLang="en" trgLang="fr"><file id="f">'
        f'<unit id="1"><segment><source>{first}</source><target>{second}</target></segment></unit>'
        '<unit id="2"><segment><source>New {y}</source></segment></unit></file></xliff>'
    )
    for path in (write(tmp_path / "a.po", catalog), write(tmp_path / "a.xlf", xliff)):
        assert pairs(path, None) == [(first, second)]
        assert [each.message for each in check_files(path).findings if each.kind == "placeholder"] == [
            "“{count}” not in the translation"
        ]
    with pytest.raises(DocmtError, match="has no finished translation to check"):
        check_files(write(tmp_path / "a.po", catalog.partition('\nmsgid "Hello')[0] + fuzzy))
    for name, text in {"a.md": "# Hello", "a.json": '{"a": "Hello"}'}.items():
        with pytest.raises(DocmtError, match="has only one side"):
            check_files(write(tmp_path / name, text))
