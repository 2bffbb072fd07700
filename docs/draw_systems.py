"""Draw which sentences each system sees, and write one SVG for each system to docs/images.

Nothing is drawn by hand. A small random model of the system scores a document of six sentences. Then one sentence is
replaced, and the sentences whose scores change have seen it. Run it with `python docs/draw_systems.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from docmt.decoding import SearchConfig
from docmt.decoding.scoring import score_documents
from docmt.model import ModelConfig, TranslationModel
from docmt.model.systems import Cadec, Concat, Context, Flat, Hierarchical, Hybrid, MultiHop, Selective
from docmt.text import SpecialTokens

FOLDER = Path(__file__).parent / "images"
SENTENCES = 6
SIZES = {"width": 16, "feed_forward": 16, "heads": 2, "encoder_layers": 2, "decoder_layers": 2, "dropout": 0.0}
SYSTEMS: dict[str, dict[str, Any]] = {
    "sentence": {"system": "sentence"},
    "document": {"system": "document"},
    "group": {"system": "group"},
    "concat": {"system": "concat", "concat": Concat(sentences=3)},
    "context": {"system": "context", "context": Context(sentences=2, fusion="published")},
    "multihop": {"system": "multihop", "multihop": MultiHop(sentences=2, fusion="published")},
    "hierarchical-encoder": {"system": "hierarchical", "hierarchical": Hierarchical(sentences=2, fusion="published")},
    "hierarchical-decoder": {
        "system": "hierarchical",
        "hierarchical": Hierarchical(sentences=2, side="decoder", fusion="published"),
    },
    "flat": {"system": "flat", "flat": Flat(sentences=2)},
    "hybrid": {"system": "hybrid", "hybrid": Hybrid(fusion="published")},
    "selective": {"system": "selective", "selective": Selective(fusion="published", attention="word")},
    "selective-decoder": {
        "system": "selective",
        "selective": Selective(side="decoder", fusion="published", attention="word"),
    },
    "cadec": {"system": "cadec", "cadec": Cadec(sentences=2, fusion="published")},
}
_SPECIALS = SpecialTokens(vocabulary_size=40)
_FIRST_WORD = SpecialTokens.first_word
_CHANGED_SCORE = 1e-5  # nats


def seen_sentences(name: str) -> Mapping[str, list[list[bool]]]:
    """Return, by side, which sentence (column) changes the score of which target sentence (row)."""
    torch.manual_seed(3)
    model = TranslationModel(
        ModelConfig(vocabulary_size=_SPECIALS.vocabulary_size, instance_tokens=256, **SIZES, **SYSTEMS[name])
    )
    with torch.no_grad():  # large weights, so that no change of a score is lost in rounding
        for weights in model.parameters():
            if weights.dim() > 1:
                weights.normal_(std=0.5)
    model.eval()
    sides = {
        side: [[_FIRST_WORD + start + number, _FIRST_WORD + start + number + 1] for number in range(SENTENCES)]
        for side, start in (("source", 0), ("target", 8), ("draft", 16))
    }
    reads_drafts = model.system.context_spec().drafts

    def scores(documents: Mapping[str, list[list[int]]]) -> list[float]:
        drafts = [documents["draft"]] if reads_drafts else None
        (scored,) = score_documents(
            model, [documents["source"]], [documents["target"]], _SPECIALS, SearchConfig(), drafts=drafts
        )
        return scored.sentence_scores

    usual = scores(sides)
    seen: dict[str, list[list[bool]]] = {}
    for side in sides if reads_drafts else ("source", "target"):
        columns = []
        for number in range(SENTENCES):
            changed = [list(sentence) for sentence in sides[side]]
            changed[number] = [_FIRST_WORD + 26, _FIRST_WORD + 27]
            columns.append(
                [
                    abs(new - old) > _CHANGED_SCORE
                    for new, old in zip(scores({**sides, side: changed}), usual, strict=True)
                ]
            )
        seen[side] = [list(row) for row in zip(*columns, strict=True)]
    return seen


def draw(name: str, path: Path) -> None:
    """Write the figure of a system as SVG."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "docmt", "font.size": 9})
    from matplotlib.figure import Figure

    seen = seen_sentences(name)
    figure = Figure(figsize=(2.4 * len(seen), 2.3), layout="constrained")
    panels = figure.subplots(1, len(seen), squeeze=False)[0]
    numbers = [str(number) for number in range(1, SENTENCES + 1)]
    for axes, (side, rows) in zip(panels, seen.items(), strict=True):
        axes.imshow([[float(value) for value in row] for row in rows], cmap="Blues", vmin=0, vmax=1.5)
        axes.set_xticks(range(SENTENCES), numbers)
        axes.set_yticks(range(SENTENCES), numbers)
        axes.set_xticks([number - 0.5 for number in range(1, SENTENCES)], minor=True)
        axes.set_yticks([number - 0.5 for number in range(1, SENTENCES)], minor=True)
        axes.grid(which="minor", color="white")
        axes.tick_params(which="both", length=0)
        axes.set_title(f"{side} sentence", fontsize=9)
    panels[0].set_ylabel("score of target sentence")
    figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for system in SYSTEMS:
        draw(system, FOLDER / f"{system}.svg")
        print(FOLDER / f"{system}.svg")
