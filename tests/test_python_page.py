"""What docs/python.md shows runs as it stands, from top to bottom in one namespace."""

import re
from pathlib import Path

import docx
import pytest
import torch
from benchmarks.synthetic.synthetic_corpus import write_corpus

import docmt
from docmt.checkpoint.model_directory import save_model
from docmt.documents import read_parallel
from docmt.model import ModelConfig, TranslationModel
from docmt.model.systems import Group
from docmt.text import BpeTokenizer

PAGE = (Path(__file__).parents[1] / "docs" / "python.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE, re.M | re.S)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The files that the page speaks of: two models, a corpus, a report."""
    write_corpus(tmp_path, train=40, dev=3, test=1, seed=1)
    corpus = read_parallel(tmp_path / "train.en", tmp_path / "train.de")
    tokenizer = BpeTokenizer.train([s for document in corpus for pair in document for s in pair], 400)
    sizes = {"width": 16, "feed_forward": 24, "heads": 2, "encoder_layers": 1, "decoder_layers": 1}
    for seed, name in enumerate(("MODEL", "OTHER")):
        torch.manual_seed(seed)
        config = ModelConfig(
            vocabulary_size=400, group=Group(encoder_layers=1, decoder_layers=1, cross_layers=1), **sizes
        )
        card = {"source_language": "en", "target_language": "de"}
        save_model(tmp_path / name, TranslationModel(config), tokenizer, card)
    document = docx.Document()
    document.add_paragraph("Anna bought a ").add_run("lamp").bold = True
    document.save(tmp_path / "report.docx")
    (tmp_path / "report.txt").write_text("Anna bought a lamp yesterday. It is quite cheap.\n\nTom is here.\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.full
def test_the_page_runs(folder, capsys):
    names = {}
    for number, code in enumerate(BLOCKS, 1):
        exec(compile(code, f"docs/python.md, block {number}", "exec"), names)
    assert type(names["text"]) is str and [type(own) for own in names["texts"]] == [str, str]
    assert (folder / "bericht.txt").read_text().count("\n") == (folder / "translated.txt").read_text().count("\n") == 3
    assert len(names["best"].alternatives) == 2 and len(names["ensemble"].models) == 2
    assert docmt.Translator(folder / "copy").languages == ("en", "de")
    out = capsys.readouterr().out
    assert "left out: document 2: " in out
    assert "there is no directory nowhere. Name a model directory or a run directory, or a model that" in out
    assert out.count("s-BLEU ") == 2 + 2  # head and signature of the comparison
    (_, found) = names["comparison"].outcomes["d_bleu"]
    assert found.difference.value > 50 and found.difference.p_value == pytest.approx(2 / 2**3, abs=0.02)  # 3 documents
    batch, losses = names["batch"], []
    for model in map(docmt.load_model, ("runs/first", "runs/own")):
        losses.append(torch.nn.functional.cross_entropy(model.project(model(batch.inputs)), batch.labels).item())
    assert losses[1] < losses[0] - 0.01, "the page's own loop trains"
    assert names["logits"].shape == (len(names["target"][0]), 400)


def test_every_public_name_is_on_the_page():
    assert len(BLOCKS) > 10
    for name in set(docmt.__all__) - {"__version__"}:
        assert name in PAGE, name
    methods = [name for name in vars(docmt.Translator) if not name.startswith("_")]
    assert {name for name in methods if name not in PAGE} <= {"model", "cut_instances"}
