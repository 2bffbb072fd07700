"""docmt inspect: what a model is, what it looks at, how trainings went."""

import json
import re

import pytest
from commands import QUICK, call, fails

import docmt
from docmt.analysis.model_facts import ModelFacts
from docmt.checkpoint.model_card import ModelCard
from docmt.checkpoint.model_directory import load_model, load_model_tokenizer, save_model


@pytest.fixture
def pair(corpus):
    """Source and target of the test documents."""
    return corpus / "test.en", corpus / "test.de"


@pytest.fixture
def drawing():
    """Skips the test where nothing can be drawn."""
    pytest.importorskip("matplotlib", reason="matplotlib (the extra plots) is not installed")


def looked(*arguments):
    outcome = call("inspect", *arguments)
    assert (outcome.status, outcome.err) == (0, ""), outcome
    return outcome.out


def test_what_a_model_is(run, tmp_path):
    text = looked(run, "--json", tmp_path / "facts.json")
    assert text.startswith(f"{run / 'model'}: group model, en to de, written by docmt {docmt.__version__}\n")
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert {"layers 1 + 1", "vocabulary 400, tokenizer bpe", "top combined"} <= set(lines)
    assert any(line.startswith("updates ") for line in lines)
    facts = json.loads((tmp_path / "facts.json").read_text())
    parameters = sum(own.numel() for own in load_model(run).parameters())
    assert facts["weights"] == {name: list(own.shape) for name, own in load_model(run).named_parameters()}
    assert facts["parameters"]["all"] == parameters == sum(facts["parameters"].values()) - parameters
    assert (facts["system"], facts["config"]["width"], facts["training"]["updates"]) == ("group", 16, "100")
    assert facts["run"]["updates"] == 100 and facts["run"]["best_dev_loss"] > 0
    assert facts["recipe"]["model"]["system"] == "group"
    assert json.loads(looked(run, "--json", "-")) == facts
    assert "\nRun\n" not in looked(run / "model")


def test_the_card_is_read_as_it_was_written(run, tmp_path):
    scores = [{"name": "d-BLEU", "score": 25.678, "signature": "nrefs:1|tok:13a"}]
    card = ModelCard(data={"store": "a: b"}, training={"dev_loss": 1.5}, scores=scores, recipe={"seed": 3})
    save_model(tmp_path / "m", load_model(run), load_model_tokenizer(run), card)
    facts = ModelFacts.of(tmp_path / "m")
    assert facts.card == {"Data": {"store": "a: b"}, "Training": {"dev loss": "1.5"}}
    assert facts.scores == [{"metric": "d-BLEU", "score": "25.68", "signature": "nrefs:1|tok:13a"}]
    assert facts.recipe == {"seed": 3} and facts.languages == ("", "")
    assert "languages not recorded" in facts.format() and "d-BLEU  25.68 (nrefs:1|tok:13a)" in facts.format()
    (tmp_path / "m" / "README.md").write_bytes(b"## Data\n\xff")
    bare = ModelFacts.of(tmp_path / "m")
    assert (bare.card, bare.scores, bare.recipe) == ({}, [], {})


def test_a_corpus(run, pair, tmp_path):
    text = looked(run, *pair, "--json", tmp_path / "found.json")
    assert text.startswith("6 documents, ") and "given translations" in text.splitlines()[0]
    found = json.loads((tmp_path / "found.json").read_text())
    kinds = [own["kind"] for own in found["attentions"]]
    assert kinds == [f"{site}_{scope}" for site in SITES for scope in ("local", "global")]
    assert [own["kind"] for own in found["gates"]] == list(SITES)
    for own in found["attentions"]:
        assert len(own["head_entropies"]) == 2 and own["layer"] == 1 and own["queries"] > 100
        assert bool(own["shares_by_distance"]) == own["kind"].endswith("global")
        words = own["kind"].replace("_", " ")
        assert re.search(rf"^{words} +1 +{own['entropy']:.2f} ", text, re.M)
    assert "document" not in found
    # As one document after the other, whatever is read together.
    again = json.loads(looked(run, *pair, "--json", "-", "--search.batch_tokens", 16))
    for one, other in zip(found["attentions"] + found["gates"], again["attentions"] + again["gates"], strict=True):
        number = "entropy" if "entropy" in one else "context_share"
        assert one[number] == pytest.approx(other[number], abs=1e-4)


SITES = ("encoder_self", "decoder_self", "decoder_cross")


def test_one_document(run, pair, tmp_path, drawing):
    text = looked(run, *pair, "--document", 2, "--sentence", 2, "--figure", tmp_path / "looks.png")
    assert (tmp_path / "looks.png").read_bytes().startswith(b"\x89PNG")
    found = json.loads((tmp_path / "looks.json").read_text())
    document, blocks = found["document"], pair[0].read_text().split("\n\n")
    assert [own["source"] for own in document["sentences"]] == blocks[1].splitlines()
    assert (document["id"], found["documents"]) == ("2", 1)
    assert [own["kind"] for own in document["attention"]] == [f"{site}_global" for site in SITES]
    count = len(document["sentences"])
    for own in document["attention"]:
        assert len(own["rows"]) == count and len(own["layers"]) == 1 and own["sentence"] == 2
        side = "source" if own["kind"].startswith("encoder") else "target"
        assert len(own["tokens"]) == len(document["sentences"][1][f"{side}_tokens"])
        for row in [*own["rows"], *own["tokens"]]:
            assert sum(row["weights"]) == pytest.approx(1, abs=1e-3) == sum(row["even"])
            assert row["first"] >= 1 and row["first"] + len(row["weights"]) - 1 <= count
        assert f"{own['kind'].replace('_', ' ')}: percent of the weight" in text
    for gate in document["gates"]:
        side = "source" if gate["kind"].startswith("encoder") else "target"
        assert [len(own) for own in gate["tokens"]] == [len(own[f"{side}_tokens"]) for own in document["sentences"]]
    assert document["sentences"][0]["source_tokens"][0] == "<s>"


def test_without_a_target_its_own_translation_is_looked_at(run, pair):
    found = json.loads(looked(run, pair[0], "--document", "3", *QUICK, "--json", "-"))
    source = docmt.Document.from_sentences([own["source"] for own in found["document"]["sentences"]])
    search = {"beam": 1, "max_length_ratio": 0, "max_length_extra": 2}
    translated = docmt.Translator(run, **search).translate(source)
    assert [own["target"] for own in found["document"]["sentences"]] == list(translated.document.sentences)
    assert "own translations" in looked(run, pair[0], *QUICK)


def test_a_document_has_a_name_in_jsonl(run, tmp_path):
    records = [{"id": name, "source": ["A lamp.", "It."], "target": ["Lampe.", "Sie."]} for name in ("x", "2", "x")]
    path = tmp_path / "corpus.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    for asked, number in (("2", 2), ("3", 3), ("1", 1)):
        found = json.loads(looked(run, path, path, "--document", asked, "--json", "-"))
        assert found["document"]["id"] == records[number - 1]["id"]
    message = r"corpus.jsonl has several documents 'x': give the number of one \(1, 3\)"
    fails("inspect", run, path, path, "--document", "x", message=message)


def test_a_long_document(run, tmp_path, drawing):
    """The numbers of 500 sentences go to the file; there is no table of them, and the picture has no labels."""
    for side, text in (("en", "It is a lamp."), ("de", "Sie ist neu.")):
        (tmp_path / f"long.{side}").write_text(f"{text}\n" * 500)
    pair = (tmp_path / "long.en", tmp_path / "long.de")
    text = looked(run, *pair, "--figure", tmp_path / "long.svg", "--relative")
    assert "which sentences its 500 sentences look at is in the picture" in text
    assert (tmp_path / "long.svg").read_text().startswith("<?xml")
    document = json.loads((tmp_path / "long.json").read_text())["document"]
    rows = document["attention"][0]["rows"]
    assert len(rows) == 500 and all(sum(row["weights"]) == pytest.approx(1, abs=1e-3) for row in rows)


def test_curves_of_several_runs(run, tmp_path, drawing):
    other = tmp_path / "other"
    other.mkdir()
    (other / "metrics.jsonl").write_text('{"update": 7, "loss": 2.5}\n')
    arguments = ("--curves", run, other, "--figure", tmp_path / "curves.pdf")
    lines = looked(*arguments).splitlines()
    assert lines[0].startswith("run    updates 100, last loss ") and " best dev loss " in lines[0]
    assert lines[1] == "other  updates 7, last loss 2.5"
    assert (tmp_path / "curves.pdf").read_bytes().startswith(b"%PDF")
    runs = json.loads((tmp_path / "curves.json").read_text())["runs"]
    assert runs["other"] == {"update": {"updates": [7], "values": [7]}, "loss": {"updates": [7], "values": [2.5]}}
    same = json.loads(looked("--curves", run, run / "metrics.jsonl", "--json", "-"))
    assert len(same["runs"]) == 2  # by their paths, as both have one name


def test_runs_of_any_name(run, tmp_path, drawing):
    names = ["b$\\x", "_run", "c\udcff"]
    for name in names:
        (tmp_path / name).mkdir()
        (tmp_path / name / "metrics.jsonl").write_text('{"update": 7, "loss": 2.5}\n')
    text = looked("--curves", *(tmp_path / name for name in names), "--figure", tmp_path / "curves.svg")
    assert [line.split()[0] for line in text.splitlines()] == ["b$\\x", "_run", "c\\udcff"]
    assert list(json.loads((tmp_path / "curves.json").read_text())["runs"]) == ["b$\\x", "_run", "c\\udcff"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "MODEL is missing; name a model directory, or run directories with --curves"),
        (["RUN", "--curves", "RUN"], "--curves and MODEL are both given: look at trainings, or at a model"),
        (["RUN", "--document", "1"], r"--document needs text to look at: docmt inspect MODEL SOURCE \[TARGET\]"),
        (["RUN", "--figure", "x.png"], "--figure needs text to look at"),
        (["--curves", "RUN", "--layer", "1"], "--layer needs text to look at"),
        (["--curves", "none"], "cannot read none: there is no such file; name the metrics.jsonl"),
        (["none"], "there is no directory none: give a model directory or a run directory"),
        (["RUN", "SOURCE", "none.de"], "cannot read none.de: there is no such file"),
        (
            ["RUN", "SOURCE", "TARGET", "--document", "7"],
            r"test.en has no document '7': its documents are 1 to 6 \(6\)",
        ),
        (["RUN", "SOURCE", "TARGET", "--layer", "1"], "--layer is for the picture: add --figure FILE"),
        (
            ["RUN", "SOURCE", "TARGET", "--document", "2", "--sentence", "1"],
            "--sentence is for the picture: add --figure FILE, or --document with --json FILE, or leave it out",
        ),
        (["RUN", "SOURCE", "TARGET", "--relative"], "--relative is for the picture: add --figure FILE"),
        (["--curves", "RUN", "--relative"], "--relative needs text to look at"),
        (["RUN", "SOURCE", "--layer", "0", "--figure", "x.png"], "--layer is 0: choose a number from 1"),
        (["RUN", "SOURCE", "TARGET", "--layer", "2", "--figure", "x.png"], "--layer is 2, but the model has 1 layer:"),
        (["RUN", "SOURCE", "TARGET", "--head", "3", "--figure", "x.png"], "--head is 3, but the model has 2 heads:"),
        (
            ["RUN", "SOURCE", "TARGET", "--sentence", "99", "--figure", "x.png"],
            r"--sentence is 99, but the document has",
        ),
        (["RUN", "SOURCE", "TARGET", "--figure", "x.gif"], "cannot draw x.gif: name a file that ends in .png"),
        (["RUN", "SOURCE", "TARGET", "--figure", "none/x.png"], "cannot write none/x.png: there is no directory"),
        (["RUN", "SOURCE", "TARGET", "--json", "none/x"], "cannot write none/x: there is no directory"),
        (["RUN", "--beam", "3"], "--search.beam has no meaning without text to translate: leave it out"),
        (["RUN", "--device", "cpu"], "--device has no meaning without text to look at, as nothing is computed"),
        (["--curves", "RUN", "--precision", "bfloat16"], "--precision has no meaning without text to look at"),
        (
            ["RUN", "SOURCE", "TARGET", "--max_length_ratio", "2"],
            "--search.max_length_ratio has no meaning with TARGET, which is read and not translated: leave it out",
        ),
        (["RUN,RUN", "SOURCE", "TARGET"], "is an ensemble: look into one model at a time, such as"),
    ],
)
def test_what_cannot_be_done_is_told(arguments, message, run, pair, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"RUN": run, "SOURCE": pair[0], "TARGET": pair[1], "RUN,RUN": f"{run},{run}"}
    fails("inspect", *[names.get(argument, argument) for argument in arguments], message=message)
    assert list(tmp_path.iterdir()) == []


def test_a_file_without_sentences(run, tmp_path):
    (tmp_path / "empty.en").write_text("\n\n")
    fails("inspect", run, tmp_path / "empty.en", message="empty.en holds no sentences: give a file with text")
