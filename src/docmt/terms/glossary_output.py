"""Writing of glossaries: TSV and TBX version 3."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from xml.sax.saxutils import escape, quoteattr

from docmt.core.errors import DocmtError
from docmt.core.plain_text import STANDARD, plain_name
from docmt.core.settings import quote
from docmt.terms.glossary import Glossary, Term, format_tag
from docmt.terms.glossary_tables import ALTERNATIVES, COLUMNS, read_flag

_HEAD = """<?xml version="1.0" encoding="UTF-8"?>
<tbx type="TBX-Basic" style="dca" xml:lang={language} xmlns="urn:iso:std:iso:30042:ed-2">
<tbxHeader><fileDesc><sourceDesc><p>docmt</p></sourceDesc></fileDesc></tbxHeader>
<text><body>
"""
_TAIL = "</body></text>\n</tbx>\n"
_FORBIDDEN = "deprecatedTerm-admn-sts"


def find_writer(path: str) -> Callable[[Glossary], str]:
    """Return the function that renders a glossary in the format of a name; TSV for standard output.

    Raises DocmtError for other names.
    """
    for suffix, render in ((".tsv", render_tsv), (".tbx", render_tbx)):
        if plain_name(path).lower().endswith(suffix) or path == STANDARD:
            return render
    raise DocmtError(f"{path} names no format to write: end it in .tsv or .tbx")


def render_tsv(glossary: Glossary) -> str:
    """Return a glossary as a table with a header.

    Cells are written as they are, also those that a spreadsheet takes for a formula. Raises DocmtError for a term with
    what separates alternatives in it.
    """
    text = io.StringIO()
    writer = csv.writer(text, delimiter="\t", lineterminator="\n")
    writer.writerow(COLUMNS)
    languages = list(map(format_tag, glossary.languages))
    for term in glossary.terms:
        for each in (term.source, *term.targets, *term.forbidden):
            if ALTERNATIVES in each:
                raise DocmtError(f"{quote(each)} has {ALTERNATIVES} in it, which separates cells of TSV: write TBX")
        targets, forbidden = (f" {ALTERNATIVES} ".join(texts) for texts in (term.targets, term.forbidden))
        if term.forbidden and read_flag(forbidden) is not None:
            forbidden += f" {ALTERNATIVES}"  # the word "no" in another language, not that nothing is forbidden
        flags = ["yes" * flag for flag in (term.keep, term.case)]
        writer.writerow([term.source, targets, *languages, forbidden, *flags, term.note])
    return text.getvalue()


def render_tbx(glossary: Glossary) -> str:
    """Return a glossary as TBX version 3 in the style DCA. Raises DocmtError if its languages are not known."""
    if not all(glossary.languages):
        raise DocmtError("TBX names the languages of terms: add --from CODE and --to CODE")
    languages = [quoteattr(format_tag(code)) for code in glossary.languages]
    entries = (_render_entry(number, term, languages) for number, term in enumerate(glossary.terms, 1))
    return _HEAD.format(language=languages[0]) + "".join(entries) + _TAIL


def _render_entry(number: int, term: Term, languages: Sequence[str]) -> str:
    data = '<descrip type="doNotTranslate">yes</descrip>' if term.keep else ""
    note = f"<note>{escape(term.note)}</note>" if term.note else ""
    case = '<termNote type="caseSensitive">yes</termNote>' if term.case else ""
    sections = [_render_section(term.source, case)]
    status = f'<termNote type="administrativeStatus">{_FORBIDDEN}</termNote>'
    sections.append("".join(_render_section(text, "") for text in term.targets))
    sections[1] += "".join(_render_section(text, status) for text in term.forbidden)
    inner = "".join(
        f"\n<langSec xml:lang={language}>{section}</langSec>"
        for language, section in zip(languages, sections, strict=True)
        if section
    )
    return f'<conceptEntry id="c{number}">{data}{note}{inner}\n</conceptEntry>\n'


def _render_section(text: str, data: str) -> str:
    return f"<termSec><term>{escape(text)}</term>{data}</termSec>"
