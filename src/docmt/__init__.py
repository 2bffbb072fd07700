"""docmt: document-level machine translation.

import docmt

translator = docmt.Translator("model")
translation = translator.translate(docmt.Document.read("report.txt"))
translation.document.write("bericht.txt")
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from docmt.decoding import SearchConfig, Translation, Translator
    from docmt.documents import Document
    from docmt.errors import DocmtError
    from docmt.model_directory import load_model

__version__ = version("docmt")
__all__ = ["DocmtError", "Document", "SearchConfig", "Translation", "Translator", "__version__", "load_model"]

# Loaded on first use, so that `docmt --help` does not wait for torch.
_HOMES = {
    "Document": "docmt.documents",
    "DocmtError": "docmt.errors",
    "SearchConfig": "docmt.decoding",
    "Translation": "docmt.decoding",
    "Translator": "docmt.decoding",
    "load_model": "docmt.model_directory",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'docmt' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    """The public names, those not loaded yet included: what a notebook offers after `docmt.`."""
    return sorted(__all__)
