"""What each system sees, as the figures of docs/systems.md show it: measured, not drawn by hand."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "docs"))
from draw_systems import SENTENCES, SYSTEMS, draw, seen_sentences

OWN = [[column == row for column in range(SENTENCES)] for row in range(SENTENCES)]
ALL = [[True] * SENTENCES for _ in range(SENTENCES)]
OTHERS = [[column != row for column in range(SENTENCES)] for row in range(SENTENCES)]
BEFORE = [[column <= row for column in range(SENTENCES)] for row in range(SENTENCES)]
TWO_BEFORE = [[row - 2 <= column <= row for column in range(SENTENCES)] for row in range(SENTENCES)]
SEEN = {
    "sentence": {"source": OWN, "target": OWN},
    "document": {"source": ALL, "target": BEFORE},
    "group": {"source": ALL, "target": BEFORE},
    "concat": {"source": TWO_BEFORE, "target": TWO_BEFORE},
    "context": {"source": TWO_BEFORE, "target": OWN},
    "multihop": {"source": TWO_BEFORE, "target": OWN, "draft": TWO_BEFORE},
    "hierarchical-encoder": {"source": TWO_BEFORE, "target": OWN},
    "hierarchical-decoder": {"source": TWO_BEFORE, "target": TWO_BEFORE},
    "flat": {"source": TWO_BEFORE, "target": OWN},
    "hybrid": {"source": ALL, "target": TWO_BEFORE},  # two decoder layers, which see one sentence before each
    "selective": {"source": ALL, "target": OWN},
    "selective-decoder": {"source": ALL, "target": OWN, "draft": OTHERS},
    "cadec": {"source": TWO_BEFORE, "target": OWN, "draft": TWO_BEFORE},
}


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_score_depends_on_the_sentences_that_the_figure_shows(name):
    assert seen_sentences(name) == SEEN[name]


def test_a_figure_is_written(tmp_path):
    draw("context", tmp_path / "context.svg")
    assert (tmp_path / "context.svg").read_text().startswith("<?xml")
