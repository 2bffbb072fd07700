"""Glossaries, damaged in every way: each is read to terms that are what they should be, or refused in a sentence."""

import unicodedata

import pytest
from harness import CONTROLS, PYTHON, keeps_to_the_contract

from docmt import DocmtError
from docmt.documents.words import has_words
from docmt.terms import Glossary
from docmt.terms.glossary import MAX_TERM_BYTES, render_tbx, render_tsv

pytestmark = pytest.mark.full

MUTANTS = 400
"""Of each format. The 2,000 of --fuzz 5 take two minutes."""
FILES = {
    "pairs.tsv": "cat\tchat\ndog\tchien\nice cream\tglace | crème glacée\nthesis\tmémoire\tnote\n",
    "rows.csv": 'source,target,source_lang,target_lang,forbidden,keep,case,note\ncat,"chat, matou",en,fr,minet,no,yes,'
    '"a\npet"\nDocker,,en,,,yes,,\ndog,Hund,en,de,,,,\n',
    "languages.csv": "en;fr-CA;fr;ger;note\ncat;chat;chat;Katze;a pet\ndog;;chien;Hund;\n",
    "two.tbx": '<?xml version="1.0"?><!DOCTYPE martif SYSTEM "x.dtd"><martif type="TBX" xml:lang="en"><text><body>'
    '<termEntry><descrip type="Translation needed">No</descrip><langSet xml:lang="en"><tig><term>Docker</term></tig>'
    '</langSet></termEntry><termEntry id="2"><note>pet</note><langSet xml:lang="en-US"><ntig><termGrp><term>cat'
    '</term></termGrp></ntig></langSet><langSet xml:lang="fr"><tig><term>minet</term><termNote type='
    '"administrativeStatus">deprecatedTerm-admn-sts</termNote></tig><tig><term>chat</term></tig></langSet></termEntry>'
    "</body></text></martif>",
    "three.tbx": '<tbx style="dct" type="TBX-Basic" xml:lang="en" xmlns="urn:iso:std:iso:30042:ed-2" xmlns:b="u"><text>'
    '<body><conceptEntry><langSec xml:lang="en"><termSec><term>cat</term></termSec></langSec><langSec xml:lang="fr">'
    "<termSec><term>chat</term><b:administrativeStatus>preferredTerm-admn-sts</b:administrativeStatus></termSec>"
    "</langSec></conceptEntry></body></text></tbx>",
    "memory.tmx": '<?xml version="1.0"?><!DOCTYPE tmx SYSTEM "tmx14.dtd"><tmx version="1.4"><header/><body><tu><note>'
    'pet</note><tuv xml:lang="en"><seg><bpt i="1">&lt;b&gt;</bpt>cat<ept i="1"/></seg></tuv><tuv lang="fr-FR"><seg>chat'
    '</seg></tuv><tuv xml:lang="de"><seg>Katze</seg></tuv></tu></body></tmx>',
    "terms.json": '{"terms": {"cat": "chat", "dog": ["chien", "clebs"]}, "doNotTranslate": ["Docker"]}',
    "objects.json": '[{"source": "cat", "targets": ["chat"], "forbidden": "minet", "case": true, "note": "pet"}, '
    '{"source": "Docker", "keep": true}]',
}
PIECES = ["\u202e", "\u2066", "\u200f", "\u2028", "\x85", "\x1b]0;x\x07", "\0", "\ufeff", "\ufffe", "\u0301", "é", "😀"]
PIECES += [" | ", "\t", "\n", "\r", "\r\n", " ", "\u00a0", "x" * 10_000, "sep=;\n", "[" * 100_000]
WORDS = """
    =1+1 '=x @ - . | " "" ; , < > & &amp; &a; &#0; &#xD800; ]]> <!-- <![CDATA[ { } [ ] : <term> </term> <hi>x</hi>
    xml:lang="" <?xml?> en de-AT zz null 1e999 \\ud800 "cat" yes no forbidden
"""
PIECES += WORDS.split()
PIECES += ['<!DOCTYPE x [<!ENTITY a "b">]>', '<tuv xml:lang="fr">']


def mutant(data, chance):
    """The bytes of a file with some changes."""
    for _ in range(chance.choice([1, 1, 1, 2, 4])):
        start = chance.randrange(len(data) + 1)
        end = min(start + chance.choice([0, 0, 1, 5, 50]), len(data))
        piece = chance.choice(PIECES).encode()
        part = chance.choice([piece, piece, piece, b"", data[start:end] * 2, chance.randbytes(2)])
        data = data[:start] + part + data[end:]
    return chance.choice([data] * 9 + [data[: chance.randrange(len(data) + 1)]])


def check(glossary):
    """The terms are what glossaries promise."""
    assert glossary.terms
    assert len({term.source for term in glossary.terms}) == len(glossary.terms)
    for term in glossary.terms:
        assert has_words(term.source)
        assert term.targets or term.forbidden
        assert not term.keep or term.targets == (term.source,)
        assert not set(term.targets) & set(term.forbidden)
        for text in (term.source, *term.targets, *term.forbidden):
            assert text.strip() == text == unicodedata.normalize("NFC", text) != ""
            assert len(text.encode()) <= MAX_TERM_BYTES
            assert not CONTROLS.search(text)


@pytest.mark.parametrize("name", FILES)
def test_a_damaged_glossary(name, cases, tmp_path):
    read = 0
    for chance in cases(MUTANTS, "damaged glossaries"):
        text = FILES[name]
        encoded = text.encode(chance.choice(["utf-8", "utf-8", "utf-8", "utf-16"]))
        path = tmp_path / chance.choice([name, name, "glossary"])
        path.write_bytes(mutant(encoded, chance))
        languages = chance.choice(
            [("en", "fr"), ("en", "fr"), ("eng_Latn", "fra_Latn"), ("fr", "en"), ("", "fr"), ("", "")]
        )
        try:
            glossary = Glossary.read(path, languages=languages)
        except DocmtError as error:
            assert not any(word in str(error) for word in PYTHON), error
            assert not CONTROLS.search(str(error)), error
            continue
        check(glossary)
        read += 1
        for render, copy in ((render_tsv, tmp_path / "copy.tsv"), (render_tbx, tmp_path / "copy.tbx")):
            try:
                copy.write_text(render(glossary), encoding="utf-8", newline="")
            except DocmtError:
                continue  # it has no languages, or a bar in a term
            assert Glossary.read(copy, languages=glossary.languages).terms == glossary.terms
    assert read > MUTANTS // 20


def test_damaged_glossaries_and_commands(cases, tmp_path):
    for chance in cases(60, "commands for damaged glossaries"):
        name = chance.choice(list(FILES))
        path = tmp_path / name
        path.write_bytes(mutant(FILES[name].encode(), chance))
        keeps_to_the_contract(
            "terms", "check", path, *chance.choice([[], ["--from=en"], ["--from=en", "--to=fr"], ["--json=-"]])
        )
        keeps_to_the_contract(
            "terms", "convert", path, "-o", tmp_path / chance.choice(["x.tsv", "x.tbx"]), "--from=en", "--to=fr"
        )
