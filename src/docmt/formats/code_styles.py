"""The styles of documents that are code, by their names in Word, LibreOffice and pandoc."""

from __future__ import annotations

import re

_CODE_STYLE = re.compile(
    r"(?i)(source ?(code|text)|preformatted ?text|html ?(code|preformatted)|verbatim( ?char)?|code( ?block| ?char)?)"
)


def is_code_style(name: str) -> bool:
    """Return whether the text of a style with this name is code, which is not translated."""
    return _CODE_STYLE.fullmatch(name.replace("_20_", " ").replace("_", " ").strip()) is not None
