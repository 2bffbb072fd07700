"""Settings of the documentation site, which `make docs` builds from these pages with Sphinx."""

import re
from importlib import metadata

from sphinx.application import Sphinx

project = "docmt"
release = metadata.version("docmt")
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.mathjax"]
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
root_doc = "index"
exclude_patterns = ["_build", "README.md"]  # the list of pages for readers of the repository
html_theme = "furo"
html_title = "docmt"
autodoc_typehints = "signature"
autodoc_member_order = "bysource"


def _as_rst(lines: list[str]) -> None:
    """Write a docstring, in which backticks mark code and nothing else is markup, as reStructuredText."""
    text = "\n".join(lines)
    parts = re.split(r"`+([^`]+)`+", text)
    escaped = [
        f"``{part}``" if number % 2 else re.sub(r"([*|_\\])", r"\\\1", part) for number, part in enumerate(parts)
    ]
    lines[:] = "".join(escaped).splitlines()


def setup(app: Sphinx) -> None:
    """Have docstrings read as they are written."""
    app.connect("autodoc-process-docstring", lambda *arguments: _as_rst(arguments[-1]))
