"""The recipe that puts new encoder layers into a trained model."""

import runpy
import sys
from pathlib import Path

import pytest

import docmt

SCRIPT = Path(__file__).parents[2] / "recipes" / "general" / "deepen.py"
TEXT = "The committee adopted these measures. It is a good report of 3 pages. We thank the citizens."


@pytest.mark.parametrize("name", ["en-fr-sentence", pytest.param("en-fr", marks=pytest.mark.full)])
def test_a_deeper_model_begins_as_the_old_one(name, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["deepen.py", name, str(tmp_path / "deep"), "--layers", "2"])
    runpy.run_path(str(SCRIPT), run_name="__main__")
    old, new = docmt.Translator(name), docmt.Translator(tmp_path / "deep")
    assert new.model.config.encoder_layers == old.model.config.encoder_layers + 2
    document = docmt.Document.from_text(TEXT)
    made = old.translate(document)
    assert str(new.translate(document)) == str(made)
    assert new.score(document, made).score == pytest.approx(old.score(document, made).score, abs=0.1)
