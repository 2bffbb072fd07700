"""docmt inspect: what a model is, what it looks at, how trainings went."""

import json
import re

import pytest
from commands import QUICK, call, fails

import docmt
from docmt.analysis.model_summary import ModelSummary
from docmt.checkpoint.model_directory import ModelCard, load_model, load_model_tokenizer, save_model


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
    assert {"layers 1 + 1", "vocabulary 400, tokenizer bpe", "top_attention combined"} <= set(lines)
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
    facts = ModelSummary.from_directory(tmp_path / "m")
    assert facts.card == {"Data": {"store": "a: b"}, "Training": {"dev loss": "1.5"}}
    assert facts.scores == [{"metric": "d-BLEU", "score": "25.68", "signature": "nrefs:1|tok:13a"}]
    assert facts.recipe == {"seed": 3} and facts.languages == ("", "")
    assert "languages not recorded" in facts.format() and "d-BLEU  25.68 (nrefs:1|tok:13a)" in facts.format()
    (tmp_path / "m" / "README.md").write_text("## Data\n\n- a: one line\n  and another\n- b: c\n\nAn end: of it.\n")
    assert ModelSummary.from_directory(tmp_path / "m").card == {"Data": {"a": "one line and another", "b": "c"}}
    (tmp_path / "m" / "README.md").write_bytes(b"## Data\n\xff")
    bare = ModelSummary.from_directory(tmp_path / "m")
    assert (bare.card, bare.scores, bare.recipe) == ({}, [], {})


def test_a_corpus(run, pair, tmp_path):
    text = looked(run, *pair, "--json", tmp_path / "found.json")
    assert text.startswith("6 documents, ") and "supplied translations" in text.splitlines()[0]
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
    again = json.loads(looked(run, *pair, "--json", "-", "--batch-tokens", 16))
    for one, other in zip(found["attentions"] + found["gates"], again["attentions"] + again["gates"], strict=True):
        number = "entropy" if "entropy" in one else "context_share"
        assert one[number] == pytest.approx(other[number], abs=1e-4)


SITES = ("encoder_self", "decoder_self", "decoder_cross")


def test_a_document_that_fails_midway_is_not_counted(run, pair, tmp_path, monkeypatch):
    import docmt.analysis

    real, calls = docmt.analysis.report_attention, []

    def fail_in_later_documents(model, passes, report):
        real(model, passes, report)
        calls.append(report)
        if len(calls) > 1:
            raise docmt.DocmtError("the batch failed")

    first = [tmp_path / "one.en", tmp_path / "one.de"]
    for path, whole in zip(first, pair, strict=True):
        path.write_text(whole.read_text().split("\n\n")[0] + "\n")
    alone = json.loads(looked(run, *first, "--json", "-"))
    monkeypatch.setattr(docmt.analysis, "report_attention", fail_in_later_documents)
    outcome = call("inspect", run, *pair, "--json", "-")
    assert outcome.status == 2 and "the batch failed" in outcome.err
    numbers = json.loads(outcome.out)
    for name in ("attentions", "gates", "documents", "sentences"):
        assert numbers[name] == alone[name]


def test_without_a_target_its_own_translation_is_looked_at(run, pair, tmp_path):
    text = looked(run, pair[0], *QUICK, "--json", tmp_path / "own.json")
    assert "own translations" in text
    blocks = pair[0].read_text().strip("\n").split("\n\n")
    search = docmt.SearchConfig(beam=1, max_length_ratio=0, max_length_extra=2)
    translator = docmt.Translator(run, search=search)
    documents = [docmt.Document.from_sentences(block.splitlines()) for block in blocks]
    translations = [translator.translate(document).document for document in documents]
    (tmp_path / "own.de").write_text("\n".join("".join(f"{s}\n" for s in own.sentences) for own in translations))
    if any(not sentence for own in translations for sentence in own.sentences):
        pytest.skip("a sentence was translated by nothing, which a file of parallel sentences leaves out")
    given = json.loads(looked(run, pair[0], tmp_path / "own.de", "--json", "-"))
    own = json.loads((tmp_path / "own.json").read_text())
    for one, other in zip(own["attentions"], given["attentions"], strict=True):
        assert one["entropy"] == pytest.approx(other["entropy"], abs=1e-5)


@pytest.mark.full
def test_attention_is_drawn_with_the_tokens(run, pair, tmp_path, drawing):
    outcome = call("inspect", run, *pair, "--figure", tmp_path / "maps.svg")
    assert outcome.status == 0
    assert re.search(r"maps\.svg, document 1: the last layer of each kind in \d of \d sentences, ", outcome.err)
    drawing = (tmp_path / "maps.svg").read_text()
    assert "<!-- decoder cross global 1 -->" in drawing and drawing.count("<!-- &lt;s&gt; -->") > 6
    assert json.loads((tmp_path / "maps.json").read_text())["attentions"]


def test_a_document_that_cannot_be_drawn_is_a_failure_of_its_own(run, pair, tmp_path, drawing, monkeypatch):
    monkeypatch.setattr("docmt.analysis.token_maps.MAX_TOKENS", 3)
    outcome = call("inspect", run, *pair, "--figure", tmp_path / "maps.svg")
    assert outcome.status == 2 and re.search(r"document 1: there are no attention maps of \d+ tokens", outcome.err)


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
        (["RUN", "--curves", "RUN"], "--curves and MODEL are both set: inspect trainings or a model"),
        (["RUN", "--figure", "x.png"], "--figure draws learning curves or attention: name run directories with"),
        (["RUN", "SOURCE", "TARGET", "--figure", "none/x.png"], "cannot write none/x.png: there is no directory"),
        (["--curves", "none"], "cannot read none: there is no such file; give the metrics.jsonl"),
        (["none"], "there is no directory none. Name a model directory or a run directory"),
        (["RUN", "SOURCE", "none.de"], "cannot read none.de: there is no such file"),
        (["--curves", "RUN", "--figure", "x.gif"], "cannot draw x.gif: give a file name that ends in .png"),
        (["--curves", "RUN", "--figure", "none/x.png"], "cannot write none/x.png: there is no directory"),
        (["RUN", "SOURCE", "TARGET", "--json", "none/x"], "cannot write none/x: there is no directory"),
        (["RUN", "--beam", "3"], "--search.beam has no effect without SOURCE: leave it out"),
        (["RUN", "--device", "cpu"], "--device has no effect without SOURCE, because nothing is computed"),
        (["RUN", "--batch-tokens", "9"], "--batch-tokens has no effect without SOURCE, because nothing is computed"),
        (["--curves", "RUN", "--precision", "bfloat16"], "--precision has no effect without SOURCE"),
        (
            ["RUN", "SOURCE", "TARGET", "--max-length-ratio", "2"],
            "--search.max-length-ratio has no effect with TARGET, because nothing is translated: leave it out",
        ),
        (["RUN", "SOURCE", "TARGET", "--json", "SOURCE"], "is an input and would be overwritten by the output"),
        (["--curves", "RUN", "--json", "METRICS"], "metrics.jsonl is an input and would be overwritten by the output"),
        (["RUN,RUN"], "is an ensemble: inspect one model at a time, such as"),
        (["RUN,RUN", "SOURCE", "TARGET"], "is an ensemble: inspect one model at a time, such as"),
    ],
)
def test_what_cannot_be_done_is_told(arguments, message, run, pair, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"RUN": run, "SOURCE": pair[0], "TARGET": pair[1], "RUN,RUN": f"{run},{run}"}
    names["METRICS"] = run / "metrics.jsonl"
    fails("inspect", *[names.get(argument, argument) for argument in arguments], message=message)
    assert list(tmp_path.iterdir()) == []


def test_a_file_without_sentences(run, tmp_path):
    (tmp_path / "empty.en").write_text("\n\n")
    fails("inspect", run, tmp_path / "empty.en", message="empty.en holds no sentences: name a file with text")
