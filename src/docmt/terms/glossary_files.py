"""Files of glossaries: TSV, CSV, TBX, TMX and JSON."""

from __future__ import annotations

from pathlib import Path

from docmt.core.plain_text import read_bytes
from docmt.formats.patched_text import decode_text
from docmt.terms.glossary_tables import EntryFile, read_table

MAX_BYTES = 100 * 2**20


def read_entries(path: Path | str) -> EntryFile:
    """Return the entries of a file. Raises DocmtError for a file that is too large, damaged or of another kind."""
    data = read_bytes(path, MAX_BYTES)
    return read_table(decode_text(data, str(path))[0], str(path))
