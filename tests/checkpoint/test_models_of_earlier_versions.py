"""Model directories that docmt 0.3.0 wrote (tests/data/models-0.3.0/make.py) still compute and translate the same."""

import json
from pathlib import Path

import pytest
import torch

from docmt import Document, SearchConfig, Translator, load_model

FOLDER = Path(__file__).parent.parent / "data" / "models-0.3.0"
NAMES = sorted(path.stem for path in FOLDER.glob("*.json"))


def test_there_is_a_model_of_every_system():
    systems = {"sentence", "document", "group", "concat", "context", "multihop", "hierarchical"}
    assert systems <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_model_of_0_3_0_translates_as_it_did(name):
    expected = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    logits = load_model(FOLDER / name).logits([(expected["source"], expected["target"])], expected["drafts"])[0]
    torch.testing.assert_close(logits[:, expected["words"]], torch.tensor(expected["logits"]), atol=1e-4, rtol=1e-4)

    source = Document.from_sentences(["the lamp is here", "it is old", "they see the umbrella", "it is new"])
    target = Document.from_sentences(["die Lampe ist hier", "sie ist alt", "sie sehen den Schirm", "er ist neu"])
    translator = Translator(FOLDER / name, device="cpu", search=SearchConfig(beam=3))
    translation = translator.translate(source)
    texts, scores = zip(*expected["translation"], strict=True)
    assert [sentence.target for sentence in translation.sentences] == list(texts)
    if name != "document":  # 0.3.0 scored its miscounted translations as they were found, not as they are read
        assert [sentence.score for sentence in translation.sentences] == pytest.approx(scores, abs=1e-3)
    scored = translator.score(source, target)
    assert [sentence.score for sentence in scored.sentences] == pytest.approx(expected["score"], abs=1e-3)
