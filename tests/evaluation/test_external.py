"""Metrics of other processes: a stub that speaks their interface, and all that such a process can do wrong."""

import json
import shlex
import subprocess
import sys

import pytest

from docmt.core.errors import DocmtError
from docmt.evaluation import ExternalConfig, score_externally
from docmt.evaluation.adapters import comet_adapter

SOURCES = [("One.", "Two.", "Three."), ("Four.",)]
HYPOTHESES = [("Eins.", "Zwo.", "Drei."), ("Vier.",)]
REFERENCES = [("Eins.", "Zwei.", "Drei."), ("Vier!",)]
ANSWER = {"name": "Stub", "signature": "version:1", "scores": [1, 0.5, 1.0, 0]}
STUB = """
import json, os, signal, sys
nan, inf = float("nan"), float("inf")
rows = [json.loads(line) for line in sys.stdin]
"""


@pytest.fixture
def stub(tmp_path):
    """Makes a command of a script that has the `rows` of its input."""

    def make(script, *arguments):
        path = tmp_path / "stub metric.py"
        path.write_text(STUB + script)
        return shlex.join([sys.executable, str(path), *arguments])

    return make


def score(command, **settings):
    return score_externally(SOURCES, HYPOTHESES, REFERENCES, ["a", "b"], ExternalConfig(command, **settings))


EQUAL = """
print("loading ...")
scores = [float(row["mt"] == row["ref"]) for row in rows]
print(json.dumps({"name": "Stub", "signature": "version:1", "scores": scores}))
"""


def test_scores_of_a_process(stub):
    result = score(stub(EQUAL))
    assert result.scores == [[1.0, 0.0, 1.0], [0.0]]
    assert (result.name, result.signature, result.score) == ("Stub", "version:1|context:0", 0.5)
    assert result.format() == "Stub    0.5000  4 sentences  length ratio 0.950  version:1|context:0"
    assert result.warning() == ""
    assert json.loads(json.dumps(result.to_json()))["scores"] == [[1.0, 0.0, 1.0], [0.0]]


SAVE = """
open(sys.argv[1], "w").write(json.dumps(rows))
print(json.dumps({"name": "S", "signature": "", "scores": [0] * 4}))
"""
WITH_REFERENCES, WITH_HYPOTHESES = ([[], ["Eins."], ["Eins.", word], []] for word in ("Zwei.", "Zwo."))


@pytest.mark.parametrize(
    ("settings", "signature", "context"),
    [
        ({}, "|context:0", [[], [], [], []]),
        ({"context": 1}, "|context:1.reference", [[], ["Eins."], ["Zwei."], []]),
        ({"context": 2}, "|context:2.reference", WITH_REFERENCES),
        ({"context": 9, "hypothesis_context": "hypothesis"}, "|context:9.hypothesis", WITH_HYPOTHESES),
    ],
)
def test_what_the_process_is_told(stub, tmp_path, settings, signature, context):
    assert score(stub(SAVE, str(tmp_path / "rows")), **settings).signature == signature
    rows = json.loads((tmp_path / "rows").read_text())
    assert [(row["document"], row["sentence"]) for row in rows] == [("a", 1), ("a", 2), ("a", 3), ("b", 1)]
    assert [row["mt_context"] for row in rows] == context
    first = max(0, 2 - settings.get("context", 0))
    assert rows[2]["src_context"] == ["One.", "Two."][first:]
    assert rows[2]["ref_context"] == ["Eins.", "Zwei."][first:]
    assert (rows[1]["src"], rows[1]["mt"], rows[1]["ref"]) == ("Two.", "Zwo.", "Zwei.")


def answered(**changes):
    """A script that gives the right answer, but for these entries."""
    return f"print(json.dumps({ ({**ANSWER, **changes})!r}))"


def test_inputs_that_are_too_long(stub):
    result = score(stub(answered(subwords=[512, 513, 7, 600], limit=512)))
    assert result.too_long == [(0, 1), (1, 0)]
    assert result.warning().startswith("2 inputs longer than the limit of Stub, 512 subwords")
    assert "(first: document 1, sentence 2)" in result.warning()
    assert result.to_json()["too_long"] == [[1, 2], [2, 1]]


WINDOWS = [
    ("2:2", [[(1, "One. Two."), (3, "Three. Four."), (5, "Five.")], [(1, "Six.")]]),
    ("3:1", [[(1, "One. Two. Three."), (2, "Two. Three. Four."), (3, "Three. Four. Five.")], [(1, "Six.")]]),
    ("4:3", [[(1, "One. Two. Three. Four."), (4, "Four. Five.")], [(1, "Six.")]]),
    ("9:9", [[(1, "One. Two. Three. Four. Five.")], [(1, "Six.")]]),
]
LENGTHS = """
open(sys.argv[1], "w").write(json.dumps(rows))
print(json.dumps({"name": "S", "signature": "", "scores": [len(row["src"].split()) for row in rows]}))
"""


@pytest.mark.parametrize(("window", "expected"), WINDOWS)
def test_windows_cover_each_document(stub, tmp_path, window, expected):
    sides = [("One.", "Two.", "Three.", "Four.", "Five."), ("Six.",)]
    config = ExternalConfig(stub(LENGTHS, str(tmp_path / "rows")), window=window)
    result = score_externally(sides, sides, sides, ["a", "b"], config)
    rows = json.loads((tmp_path / "rows").read_text())
    assert [(row["document"], row["sentence"], row["mt"]) for row in rows] == [
        (name, *each) for name, windows in zip("ab", expected, strict=True) for each in windows
    ]
    sizes = [[len(text.split()) for _, text in windows] for windows in expected]
    assert result.scores == sizes and result.score == sum(map(sum, sizes)) / len(rows)
    assert f"{len(rows)} windows  length ratio 1.000  |context:0|window:{window}" in result.format()


def test_a_metric_that_cuts_its_input_is_known_by_its_name(stub):
    sides = [("a word " * 200, "One."), ("Two.",)]
    command = stub("print(json.dumps({'name': 'wmt-COMET', 'signature': '', 'scores': [0] * len(rows)}))")
    result = score_externally(sides, sides, sides, ["a", "b"], ExternalConfig(command, window="2:1"))
    assert result.limit == 512 and result.too_long == [(0, 0)]
    assert "512 subwords with context, as estimated from their words, were cut off" in result.warning()
    assert result.warning().endswith("Reduce external.window")


def test_a_metric_may_tell_only_lengths_or_only_its_limit(stub):
    told = score(stub(answered(name="COMET", subwords=[512, 513, 7, 600])))
    assert (told.limit, told.too_long, told.is_estimated) == (512, [(0, 1), (1, 0)], False)
    guessed = score(stub(answered(limit=1)), context=1)
    assert guessed.too_long == [(0, 1), (0, 2)] and guessed.is_estimated


@pytest.mark.parametrize("window", ["6", "2:3", "0:0", "a:b", "3:"])
def test_windows_that_are_none(window):
    with pytest.raises(DocmtError, match=r"external\.window is .*: give W:S"):
        ExternalConfig("x", window=window)


FAILURES = [
    ("sys.exit(3)", "exited with status 3. Its output is above"),
    ("os.kill(os.getpid(), signal.SIGKILL)", "was killed by signal 9, perhaps for lack of memory"),
    ("", "'', is not a JSON object"),
    ("print('[' * 100_000)", "is not a JSON object"),
    ("print('[1, 2]')", r"'\[1, 2\]', is not a JSON object"),
    ("sys.stdout.buffer.write(bytes([255]))", "is not a JSON object"),
    ("print('{}')", 'has no "name": print an object as in docs/evaluation.md'),
    (answered(signature=1), "signature is 1: give text"),
    (answered(scores="0.5"), "scores is '0.5': give a list"),
    (answered(scores=[1, 2, 3]), "has 3 scores for 4 sentences"),
    (answered(scores=[1, float("nan"), 1, 1]), "has no number as score 2"),
    (answered(scores=[1, 10**400, 1, 1]), "scores is 1000"),
    (answered(scores=[True, 1, 1, 1]), "scores is True: give a number"),
    (answered(limit=[512]), r"limit is \[512\]: give a whole number"),
    (answered(subwords=[1, 2]), "has 2 subwords for 4 sentences"),
]


@pytest.mark.parametrize(("script", "message"), FAILURES)
def test_what_a_process_can_do_wrong(stub, script, message, capfd):
    with pytest.raises(DocmtError, match=message) as error:
        score(stub(script))
    assert "\n" not in str(error.value)


def test_a_process_that_does_not_read(tmp_path):
    path = tmp_path / "deaf.py"
    path.write_text(f"import json; print(json.dumps({ANSWER!r}))")
    assert score(shlex.join([sys.executable, str(path)])).score == 0.625


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("no-such-metric --fast", "external.command names no-such-metric, which is not an executable"),
        ("/", "external.command names /, which is not an executable"),
        ("'unclosed", "external.command cannot be parsed"),
        (" ", "external.command is empty"),
        ("a\0b", "which is not an executable"),
    ],
)
def test_commands_that_cannot_be_started(command, message):
    with pytest.raises(DocmtError, match=message):
        score(command)
    with pytest.raises(DocmtError, match=message):
        ExternalConfig(command).arguments()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"command": "x", "context": -1}, "external.context is -1: choose a number from 0"),
        ({"context": 2}, "external.context has no effect without external.command"),
        ({"hypothesis_context": "source"}, "external.hypothesis_context is 'source': choose one of reference"),
    ],
)
def test_limits_of_settings(settings, message):
    with pytest.raises(DocmtError, match=message):
        ExternalConfig(**settings)


def test_sides_of_unequal_shape(stub):
    with pytest.raises(DocmtError, match="needs one translation and one reference for each source sentence"):
        score_externally(SOURCES, [("Eins.",), ("Vier.",)], REFERENCES, ["a", "b"], ExternalConfig(stub(EQUAL)))
    with pytest.raises(DocmtError, match="there are no sentences"):
        score_externally([()], [()], [()], ["a"], ExternalConfig(stub(EQUAL)))


FAKE_COMET = """
import types

class Tokenizer:
    sep_token = "</s>"
    def __call__(self, texts, truncation):
        assert truncation is False
        return {"input_ids": [text.split() for text in texts]}

class Model:
    use_context = False
    encoder = types.SimpleNamespace(tokenizer=Tokenizer(), max_positions=9)
    def eval(self): pass
    def enable_context(self): self.use_context = path != "max.ckpt"
    def predict(self, given, batch_size, gpus):
        print("Predicting", batch_size, gpus)
        return types.SimpleNamespace(scores=[float("</s>" in sample["mt"]) for sample in given])

def load_from_checkpoint(name):
    global path
    path = name
    return Model()

def download_model(name):
    return name + ".ckpt"
"""


@pytest.fixture
def comet(tmp_path):
    """A command that runs the adapter where a small module stands for COMET."""
    folder = tmp_path / "environment"
    (folder / "unbabel_comet-9.9.dist-info").mkdir(parents=True)
    (folder / "unbabel_comet-9.9.dist-info" / "METADATA").write_text("Name: unbabel-comet\nVersion: 9.9\n")
    (folder / "comet.py").write_text(FAKE_COMET)
    return f"env PYTHONPATH={shlex.quote(str(folder))} {shlex.quote(sys.executable)} {{comet}}"


def test_the_adapter_for_comet(comet, capfd):
    result = score(comet, context=2)
    assert result.scores == [[0.0, 1.0, 1.0], [0.0]]
    assert result.signature == "model:Unbabel/wmt22-comet-da|version:9.9|context:2.reference"
    assert (result.limit, result.too_long) == (7, [])
    assert score(f"{comet} --batch-size 3").scores == [[0.0, 0.0, 0.0], [0.0]]
    with pytest.raises(DocmtError, match="exited with status 1"):
        score(f"{comet} --model max.ckpt", context=1)
    assert "max.ckpt cannot use context, as it does not pool by the mean" in capfd.readouterr().err


def test_the_adapter_joins_contexts_and_counts():
    row = {"src": "c", "mt": "z", "ref": "Z", "src_context": ["a", "b"], "mt_context": ["x", "y"], "ref_context": []}
    (sample,) = comet_adapter.build_samples([row], "</s>")
    assert sample == {"src": "a </s> b </s> c", "mt": "x </s> y </s> z", "ref": "Z"}

    def tokenize(texts):
        return {"input_ids": [text.split() for text in texts]}

    assert comet_adapter.max_subwords(tokenize, [sample, {"src": "a", "mt": "b c", "ref": ""}]) == [5, 2]


def test_the_adapter_needs_nothing_of_docmt():
    arguments = [sys.executable, "-S", "-I", comet_adapter.__file__, "--help"]
    outcome = subprocess.run(arguments, capture_output=True, text=True)
    assert outcome.returncode == 0 and "--model" in outcome.stdout, outcome.stderr
