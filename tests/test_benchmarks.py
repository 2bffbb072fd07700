"""The benchmarks run on tiny sizes, and their report is complete. Times are not judged."""

import contextlib
import io
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from benchmarks import __main__ as command
from benchmarks import attention, books, decoding, peers, real_peers, repair, sentences, training
from benchmarks.measure import Case, Finding, format_table, interleave
from forked import CONTEXT, Forking

pytestmark = pytest.mark.full

TINY = {"width": 8, "feed_forward": 8, "heads": 2, "vocabulary_size": 40, "encoder_layers": 2, "decoder_layers": 2}


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """Return the JSON and the text of `python -m benchmarks --quick`, on sizes of a few tokens."""
    output, printed = tmp_path_factory.mktemp("benchmarks") / "new" / "report.json", io.StringIO()
    with pytest.MonkeyPatch.context() as monkeypatch, contextlib.redirect_stdout(printed):
        shrink(monkeypatch)
        assert command.main(["--quick", "--output", str(output)]) == 0
    return json.loads(output.read_text()), printed.getvalue()


def shrink(monkeypatch):
    """Make the quick settings smaller still, with targets, and fork."""
    monkeypatch.setattr(books, "subprocess", Forking)
    monkeypatch.setattr(
        attention, "QUICK", replace(attention.QUICK, heads=2, head_width=4, tokens=(50, 120), memory_tokens=(230, 920))
    )
    model = replace(decoding.QUICK.model, **TINY)
    monkeypatch.setattr(
        decoding,
        "QUICK",
        replace(
            decoding.QUICK, model=model, document_tokens=(20, 60), rounds={1: (2, 1), 2: (1, 1)},
            side_by_side={"bfloat16": {5: 2.5}}, growth=1.5,
        ),
    )  # fmt: skip
    monkeypatch.setattr(decoding, "SIDE_BY_SIDE_TOKENS", 60)
    (size,) = training.QUICK.sizes
    size = replace(
        size, model=replace(size.model, **TINY), batch_tokens=80, least_bfloat16=1e9,
        side_by_side={"float32": {80: 1.5}},
    )  # fmt: skip
    monkeypatch.setattr(training, "QUICK", replace(training.QUICK, sizes=(size,), instance_tokens=(40, 80), growth=9.0))


def test_report_of_all_benchmarks(report):
    written, printed = report
    assert written["quick"] is True
    assert written["machine"]["torch"] == torch.__version__ and written["machine"]["threads"] == 1
    assert list(written["benchmarks"]) == ["attention", "decoding", "linear", "training", "systems", "books", "store"]
    for name, result in written["benchmarks"].items():
        assert result["seconds"] > 0 and result["settings"], name
        for row in result["measurements"]:
            times = row.get("seconds", [1.0])
            assert times and min(times) > 0 and row.get("best_seconds", min(times)) == min(times), row
        for finding in result["findings"]:
            assert set(finding) == {"what", "value", "unit", "at_least", "at_most", "met"}
            assert np.isfinite(finding["value"]) and finding["value"] >= 0, finding
            assert finding["what"] in printed


def test_peers(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(peers, "get_context", lambda kind: CONTEXT)
    for package in ("ctranslate2", "transformers"):
        pytest.importorskip(package, reason="the extra bench is not installed")
    assert command.main(["peers", "--quick", "--output", str(tmp_path / "report.json")]) == 0
    result = json.loads((tmp_path / "report.json").read_text())["benchmarks"]["peers"]
    assert {row["by"].split()[0].strip(",") for row in result["measurements"]} == {
        "docmt",
        "CTranslate2",
        "transformers",
    }
    assert all(
        row["tokens"] == 3 * 4 * (2 if "documents" in row["translated"] else 1) for row in result["measurements"]
    )
    assert all(finding["value"] > 0 and finding["met"] is None for finding in result["findings"])


def test_attention_findings(report):
    result = report[0]["benchmarks"]["attention"]
    timed = [row for row in result["measurements"] if "seconds" in row]
    assert len(timed) == 2 * 2 * 2 and all(len(row["seconds"]) == 2 for row in timed)
    judged = {finding["what"]: finding["met"] for finding in result["findings"] if finding["met"] is not None}
    assert sum("difference" in label for label in judged) == 4 and sum("memory" in label for label in judged) == 2
    assert all(judged.values()), judged  # equality and linear memory hold at any size


def test_store_findings(report):
    result = report[0]["benchmarks"]["store"]
    steps = [row["step"] for row in result["measurements"]]
    assert steps[:2] == ["imports", "open"] and "first batch" in steps and len(steps) == len(set(steps))
    for row in result["measurements"]:
        assert row["pairs"] == 500 and row["private_mib"] <= row["peak_mib"] and row["mapped_mib"] > 0, row
    opening, peak = result["findings"]
    assert opening["value"] == next(row["seconds"][0] for row in result["measurements"] if row["step"] == "open")
    assert peak["value"] == max(row["peak_mib"] for row in result["measurements"])


def test_decoding_findings(report):
    result = report[0]["benchmarks"]["decoding"]
    rows = result["measurements"]
    assert len(rows) == 2 * 2 * 2 * 2
    assert {(row["documents"], row["document_tokens"]): len(row["seconds"]) for row in rows} == {
        (1, 20): 2, (1, 60): 1, (2, 20): 1, (2, 60): 1,
    }  # fmt: skip
    assert all(row["tokens"] == row["documents"] * row["document_tokens"] for row in rows)
    speeds = {
        (row["precision"], row["beam"], row["documents"], row["document_tokens"]): row["tokens_per_second"]
        for row in rows
    }
    values = {finding["what"]: finding for finding in result["findings"]}
    growth = values["float32, beam 1, 2 at a time: cost of a token at 60 against 20"]
    assert growth["value"] == pytest.approx(speeds["float32", 1, 2, 20] / speeds["float32", 1, 2, 60])
    assert growth["at_most"] == 1.5
    (beside,) = (finding for label, finding in values.items() if "side by side" in label)
    assert beside["what"].startswith("bfloat16, beam 5, 1 at a time: speed at 60; side by side it was 2.5 times")
    assert beside["value"] == pytest.approx(speeds["bfloat16", 5, 1, 60]) and beside["met"] is None


def test_training_findings(report):
    result = report[0]["benchmarks"]["training"]
    rows = result["measurements"]
    assert [(row["precision"], row["system"], row["instance_tokens"]) for row in rows] == [
        (precision, system, tokens)
        for precision in ("float32", "bfloat16")
        for system in ("group", "document")
        for tokens in (40, 80)
    ]
    assert all(row["tokens"] == 80 and len(row["seconds"]) == 2 for row in rows)
    met = {finding["what"]: finding["met"] for finding in result["findings"]}
    assert met["quick group bfloat16: speed at 40"] is False
    assert met["quick group float32: speed at 80; side by side it was 1.5 times the published code's"] is None
    assert "MISSED" in report[1]


def test_full_settings_are_those_of_the_targets():
    assert attention.FULL.tokens[-1] == 8192 and attention.FULL.memory_tokens[-1] == 32768
    base, small = (size.model.resolve() for size in training.FULL.sizes)
    assert (base.width, base.feed_forward, base.encoder_layers, base.vocabulary_size) == (512, 2048, 6, 30000)
    assert (small.width, small.encoder_layers, small.decoder_layers, small.vocabulary_size) == (256, 3, 3, 8192)
    assert decoding.FULL.model.instance_tokens > max(decoding.FULL.document_tokens)
    assert all(set(ratios) <= set(training.FULL.instance_tokens) for ratios in training.SIDE_BY_SIDE.values())
    assert decoding.SIDE_BY_SIDE_TOKENS in decoding.FULL.document_tokens


def test_only_named_benchmarks_run(tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(command, "run", lambda names, quick, *_: calls.append((names, quick)) or {})
    assert command.main(["training", "attention", "--output", str(tmp_path / "a.json")]) == 0
    assert calls == [(["attention", "training"], False)]
    for wrong in (["memory"], ["--threads", "0"]):
        with pytest.raises(SystemExit) as stopped:
            command.main([*wrong, "--output", str(tmp_path / "b.json")])
        assert stopped.value.code == 2


def test_rounds_are_interleaved():
    order = []

    def case(name, rounds):
        return Case({"name": name}, lambda: order.append(name) or 7, rounds)

    cases = [case("a", 2), case("b", 1), case("c", 3)]
    interleave("test", cases)
    assert order == ["a", "b", "c", "a", "c", "c"]
    assert [len(case.seconds) for case in cases] == [2, 1, 3] and cases[0].tokens == 7


def test_repair_beside_sequential_search(tmp_path, capsys):
    source, reference, output = tmp_path / "a.en", tmp_path / "a.de", tmp_path / "rows.json"
    source.write_text("She sees the dog.\nIt is cheap.\n\nHe sleeps.\n")
    reference.write_text("Sie sieht den Hund.\nEr ist billig.\n\nEr schläft.\n")
    model = Path(__file__).parent / "data" / "group_bad_drafts"
    repair.main([*map(str, (model, source, reference)), "--repeats", "1", "--device", "cpu", "--output", str(output)])
    sequential, repaired = json.loads(output.read_text())
    assert (sequential["search"], repaired["search"]) == ("sequential", "repair")
    assert sequential["equal"] == sequential["speed 1"] * 100 == 100 and 0 <= repaired["equal"] <= 100
    assert repaired["seconds 16"] > 0 and "speed 16" in capsys.readouterr().out


def test_right_words_of_free_translations():
    item = {"sentence": 1, "correct": 1, "candidates": [["Egal.", "Die Tür."], ["Egal.", "Das Tor."]]}
    by_source, by_target = ({**item, "phenomenon": phenomenon} for phenomenon in ("pronoun", "name"))
    translated = [["Egal.", "Das Tor steht."], ["Die Tür ist da.", "Die Tür."], ["Tor", "Tür"], ["Nichts.", "Tür"]]
    right = repair.count_right([by_source, by_target, by_target, by_target], translated)
    assert right == {"source decides": 100, "target decides": 50}


def test_targets():
    assert Finding("a", 2.0).met is None
    assert Finding("a", 2.0, at_least=2.0).met is True and Finding("a", 1.9, at_least=2.0).met is False
    assert Finding("a", 2.0, at_most=2.0).met is True and Finding("a", 2.1, at_most=2.0).met is False
    assert str(Finding("a", 2.1, at_most=2.0)).endswith("target: at most 2   MISSED")


def test_table_has_a_column_for_every_name():
    text = format_table([{"a_b": 1, "raw": [1.0]}, {"c": 1234.5, "a_b": 22}])
    assert text.splitlines() == ["a b      c", "  1", " 22  1,234"]


@pytest.mark.parametrize("total", [23, 128, 512, 2048])
def test_lengths_add_up(total):
    source, target = sentences.draw_parallel_lengths(total, np.random.default_rng(total))
    assert sum(source) == sum(target) == total and len(source) == len(target) == round(total / 23)
    assert min(source + target) >= 4


def test_peak_memory_counts_what_is_held_at_once():
    def work():
        first = torch.ones(1000)
        del first
        second, third = torch.ones(2000), torch.ones(3000)
        del second, third

    assert attention.measure_peak_bytes(work) == pytest.approx(4 * 5000, abs=200)


def test_peers_with_real_weights(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(real_peers, "get_context", lambda kind: CONTEXT)
    pytest.importorskip("ctranslate2", reason="the extra bench is not installed")
    text = tmp_path / "text.txt"
    text.write_text("We have a plan. It is good.\nIt costs little.\n\nThe committee met.\nIt agreed.\n")
    arguments = ["peers", "--quick", "--output", str(tmp_path / "report.json"), "--weights", "en-fr-sentence"]
    with pytest.raises(SystemExit):
        command.main(arguments)
    assert command.main([*arguments, "--text", str(text)]) == 0
    result = json.loads((tmp_path / "report.json").read_text())["benchmarks"]["peers"]
    rows = [(row["translated"], row["by"], row["load"], row["tokens"]) for row in result["measurements"]]
    for engine in ("docmt en-fr-sentence", "docmt en-fr", "CTranslate2"):
        for load in ("alone", "beside a busy process"):
            assert ("a document", engine, load, 10) in rows and ("2 documents", engine, load, 15) in rows
    assert all(finding["value"] > 0 for finding in result["findings"])
