"""The picture of one document."""

import warnings
from xml.etree import ElementTree

import numpy as np
import pytest
import torch

from docmt.analysis.document_figure import draw_document, matrix
from docmt.analysis.looks import Site
from docmt.analysis.sentences import DocumentLooks, Map, Row
from docmt.core.errors import DocmtError

KIND, GATE = "encoder_self_global", "encoder_self"


def looks(sentences=3, tokens=2):
    """Every sentence looks at itself and (but for the last) at the next, and has a gate at each token."""
    found = DocumentLooks(sentences, sentence=1)
    site = Site(KIND, 1)
    weights = torch.tensor([[0.25, 0.25, 0.5], [0.75, 0.75, 0.5]])  # of two heads, and of even attention
    rows = {n: Row(n, weights if n + 1 < sentences else torch.ones(1, 3)) for n in range(sentences)}
    found.maps[site], found.token_maps[site] = Map(site, rows), dict.fromkeys(range(tokens), rows[1])
    found.gates[Site(GATE, 1)] = {n: [0.5] * tokens if n else [None] * tokens for n in range(sentences)}
    return found


def test_cells_are_the_weights():
    rows = looks().rows(KIND)
    np.testing.assert_allclose(matrix(rows, 3, 3), [[0.25, 0.75, np.nan], [np.nan, 0.25, 0.75], [np.nan, np.nan, 1]])
    # Of four sentences two share a cell: what they look at in it together, on average.
    rows = looks(4).rows(KIND)
    np.testing.assert_allclose(matrix(rows, 4, 4, most_cells=2), [[0.625, 0.375], [np.nan, 1]])


@pytest.mark.parametrize("relative", [False, True])
def test_what_strangers_wrote_is_drawn_as_text(tmp_path, relative):
    pytest.importorskip("matplotlib", reason="matplotlib (the extra plots) is not installed")
    pieces = {"source": [["<s>", "$x_1^"], ["\x1b[2J", "\u65e5\u672c"], ["&<\u202e", ""]]}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        draw_document(looks(), pieces, tmp_path / "x.svg", relative=relative)
    ElementTree.parse(tmp_path / "x.svg")


def test_long_documents_and_a_single_sentence(tmp_path):
    pytest.importorskip("matplotlib", reason="matplotlib (the extra plots) is not installed")
    for sentences in (1, 700):
        own = looks(max(sentences, 2)) if sentences > 1 else DocumentLooks(1)
        own.gates = looks(sentences, 2).gates if sentences > 1 else {Site(GATE, 1): {0: [None, 0.5]}}
        draw_document(own, {"source": [["a", "b"]] * sentences}, tmp_path / f"{sentences}.png")
        assert (tmp_path / f"{sentences}.png").read_bytes().startswith(b"\x89PNG")


def test_nothing_to_draw_is_told(tmp_path):
    with pytest.raises(DocmtError, match="there is nothing to draw: no attention here chooses"):
        draw_document(DocumentLooks(3), {"source": [], "target": []}, tmp_path / "x.png")
    with pytest.raises(DocmtError, match="there is nothing to draw"):
        draw_document(looks(), {"source": [["a", "b"]] * 3}, tmp_path / "x.png", layer=2)
    assert list(tmp_path.iterdir()) == []
