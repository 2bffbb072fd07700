"""docmt evaluate with a metric that is a process of its own."""

import json
import shlex
import sys

import pytest
from commands import QUICK, call, fails

from docmt.core.errors import DocmtError
from docmt.evaluation import ExternalConfig

STUB = """
import json, sys
rows = [json.loads(line) for line in sys.stdin]
scores = [float(row["mt"] == row["ref"] and bool(row["src"])) for row in rows]
answer = {"name": "Stub", "signature": "version:1", "scores": scores, "subwords": [9] * len(rows), "limit": 8}
print(json.dumps(answer))
"""


@pytest.fixture
def command(tmp_path):
    (tmp_path / "stub.py").write_text(STUB)
    return shlex.join([sys.executable, str(tmp_path / "stub.py")])


@pytest.fixture
def files(tmp_path):
    """A hypothesis, its reference and its source."""
    for name, text in (("h", "Eins.\nZwo.\n\nDrei.\n"), ("r", "Eins.\nZwei.\n\nDrei.\n"), ("s", "1.\n2.\n\n3.\n")):
        (tmp_path / name).write_text(text)
    return ["--hypothesis", tmp_path / "h", "--reference", tmp_path / "r", "--source", tmp_path / "s"]


def test_files(files, command, tmp_path):
    outcome = call("evaluate", *files, "--external.command", command, "--json", tmp_path / "o.json")
    assert outcome.status == 0, outcome
    assert "\nStub    0.6667  3 sentences  length ratio 0.933  version:1|context:0\n" in outcome.out
    assert outcome.err.startswith("docmt: 3 inputs longer than the limit of Stub, 8 subwords")
    found = json.loads((tmp_path / "o.json").read_text())
    assert found["external"]["scores"] == [[1.0, 0.0], [1.0]]
    assert found["s_bleu"] is not None


def test_a_model(run, corpus, command, tmp_path):
    pair = ["--source", corpus / "test.en", "--reference", corpus / "test.de"]
    outcome = call("evaluate", "--model", run, *pair, "--external.command", command, "--json", "-", *QUICK)
    assert outcome.status == 0, outcome.err
    found = json.loads(outcome.out)
    assert [len(scores) for scores in found["external"]["scores"]] and found["external"]["name"] == "Stub"
    assert found["external"]["segments"] == found["sentences"]


def test_other_scores_stay_when_the_metric_fails(files, tmp_path):
    command = shlex.join([sys.executable, "-c", "import sys; sys.exit(7)"])
    outcome = call("evaluate", *files, "--external.command", command, "--json", tmp_path / "o.json")
    assert outcome.status == 2
    assert "exited with status 7. Its output is above" in outcome.err and "s-BLEU" in outcome.out
    assert json.loads((tmp_path / "o.json").read_text())["external"] is None


@pytest.mark.parametrize(
    ("chosen", "options", "message"),
    [
        (slice(4), (), "--external.command needs --source beside --hypothesis"),
        (
            slice(6),
            ("--external.command", "no-such-metric"),
            "external.command names no-such-metric, which is not an executable",
        ),
    ],
)
def test_options_that_do_not_go_together(files, command, chosen, options, message):
    given = options if "--external.command" in options else (*options, "--external.command", command)
    fails("evaluate", *files[chosen], *given, message=message)


def test_several_systems(files, command, tmp_path):
    (tmp_path / "r2").write_text((tmp_path / "r").read_text())
    systems = ["--systems", tmp_path / "h", tmp_path / "r2", *files[2:], "--external.command", command]
    outcome = call("evaluate", *systems, "--json", tmp_path / "o.json", "--html", tmp_path / "o.html")
    assert outcome.status == 0, outcome
    assert outcome.err.count("3 inputs longer than the limit of Stub") == 2 and "docmt: r2: 3 inputs" in outcome.err
    head, first, second = outcome.out.splitlines()[:3]
    assert head.split()[-1] == "external" and "  0.6667 ± 0.2500" in first
    assert "  1.0000 ± 0.0000  p 1.0000" in second and "external  Stub|version:1|context:0" in outcome.out
    assert "<td>+0.3333, p 1.0000" in (tmp_path / "o.html").read_text()
    one, other = json.loads((tmp_path / "o.json").read_text())["systems"]
    assert one["external"]["scores"] == [[1.0, 0.0], [1.0]] and one["outcomes"]["external"]["difference"] is None
    assert other["outcomes"]["external"]["difference"]["value"] == pytest.approx(1 / 3)
    failing = shlex.join([sys.executable, "-c", "import sys; sys.exit(7)"])
    outcome = call("evaluate", *systems[:-1], failing)
    assert (
        outcome.status == 2 and outcome.err.count("exited with status 7") == 2 and "docmt: error: r2: " in outcome.err
    )
    assert outcome.out.splitlines()[1].split()[-1] == "-"


def test_overlapping_windows_are_no_samples(files, command):
    arguments = ["--source", files[5], "--external.command", command, "--external-window", "3:2"]
    message = "--external-window scores several sentences at once, so resample documents"
    systems = ["--systems", files[1], files[3], "--reference", files[3]]
    fails("evaluate", *systems, *arguments, "--resample", "sentences", message=message)


def test_context_of_hypotheses_without_context():
    with pytest.raises(DocmtError, match=r"external.hypothesis_context has no effect without external.context"):
        ExternalConfig(command="metric", hypothesis_context="hypothesis")
    assert ExternalConfig(command="metric", context=1, hypothesis_context="hypothesis").context == 1
