"""docmt evaluate with several systems: files, models, or both, compared with the first of them."""

import json
import shutil
from itertools import count

import pytest
import sacrebleu
from commands import QUICK, call, fails

from docmt.cli.commands import evaluate
from docmt.evaluation import evaluate_files


def lines_of(path):
    return [line for line in path.read_text().splitlines() if line]


def change(text, step, word):
    """The text with every so many-th sentence changed."""
    lines = [line.replace(".", f" {word}.") if n % step == 0 else line for n, line in enumerate(text.split("\n"))]
    return "\n".join(lines)


@pytest.fixture
def files(corpus, tmp_path, monkeypatch):
    """The test set, two other files of translations and a second reference, in the working directory."""
    monkeypatch.chdir(tmp_path)
    text = (corpus / "test.de").read_text()
    shutil.copy(corpus / "test.en", "test.en")
    shutil.copy(corpus / "test.de", "test.de")
    for name, step in (("a.de", 2), ("b.de", 3), ("c.de", 4)):
        (tmp_path / name).write_text(change(text, step, f"ganz {name}"))
    (tmp_path / "second.de").write_text(change(text, 2, "ganz"))
    return tmp_path


SYSTEMS = ["evaluate", "--systems", "a.de", "b.de", "c.de", "--reference", "test.de"]


def test_files_are_compared_with_the_first(files):
    outcome = call(*SYSTEMS, "--json", "s.json", "--markdown", "table.md", "--samples", 500, "--seed", 3)
    assert (outcome.status, outcome.err) == (0, "")
    head, *rows = outcome.out.splitlines()
    assert head.split() == ["s-BLEU", "d-BLEU", "chrF", "d-chrF"]
    found = json.loads((files / "s.json").read_text())
    settings = {"test": "randomization", "resample": "documents", "samples": 500, "seed": 3}
    assert (found["significance"], found["left_out"], found["references"]) == (settings, 0, ["test.de"])
    for name, row, own in zip(("a.de", "b.de", "c.de"), rows, found["systems"], strict=False):
        alone = json.loads(call("evaluate", "--hypothesis", name, "--reference", "test.de", "--json", "-").out)
        assert {key: own[key] for key in ("d_bleu", "s_bleu", "chrf", "d_chrf")} == {
            key: alone[key] for key in ("d_bleu", "s_bleu", "chrf", "d_chrf")
        }
        assert json.loads(json.dumps(evaluate_files(name, "test.de").to_json())).items() <= alone.items()
        assert row.startswith(f"{name}  {alone['s_bleu']['score']:.2f} ± ")
        assert (own["name"], own["path"], own["beam"]) == (name, name, None)
    table = (files / "table.md").read_text().splitlines()
    assert table[0] == "|  | s-BLEU | d-BLEU | chrF | d-chrF |" and table[4].startswith("| c.de | ")
    assert any("500 samples, seed 3" in line for line in table)
    repeated = ["evaluate", "--hypothesis", "a.de", "--hypothesis", "b.de", "c.de", "--reference", "test.de"]
    assert call(*repeated, "--samples", 500, "--seed", 3) == outcome
    assert call(*SYSTEMS, "--json", "-", "--samples=500", "--seed=3").out == (files / "s.json").read_text()
    assert call(*SYSTEMS, "--markdown", "-", "--samples=500", "--seed=3").out == (files / "table.md").read_text()


def test_options_of_the_tests(files):
    found = json.loads(
        call(*SYSTEMS, "--test", "sign", "--resample", "sentences", "--json", "-", "--metrics", "d-bleu", "ter").out
    )
    differences = [own["outcomes"]["ter"]["difference"] for own in found["systems"]]
    assert differences[0] is None
    assert differences[2]["segments_better"] > differences[2]["segments_worse"]
    assert found["resampled"]["ter"].endswith(" sentences") and found["resampled"]["d_bleu"] == "6 documents"
    assert call(*SYSTEMS, "--test", "bootstrap", "--tokenize", "char").out.count("tok:char") == 2


def test_models_and_files(run, files):
    shutil.copytree(run, files / "other" / run.name)
    source = ["--source", "test.en", "--reference", "test.de", *QUICK]
    arguments = ["evaluate", "--systems", run, "a.de", files / "other" / run.name, *source]
    outcome = call(*arguments, "-o", "out", "--json", "s.json")
    assert outcome.status == 0
    names = [f"{run.parent.name}/{run.name}", f"{files.name}/a.de", f"other/{run.name}"]
    same = f"{files}/other/{run.name} has the same translations as {run}"
    assert f"docmt: {same}\n" in outcome.err
    found = json.loads((files / "s.json").read_text())
    assert [own["path"] for own in found["systems"]] == [str(run), "a.de", f"{files}/other/{run.name}"]
    assert [own["beam"] for own in found["systems"]] == [1, None, 1]
    assert found["systems"][2]["outcomes"]["d_bleu"]["difference"]["p_value"] == 1
    names = [own["name"] for own in found["systems"]]
    assert names == [f"{run.parent.name}/{run.name}", "a.de", f"other/{run.name}"]
    written = sorted(path.name for path in (files / "out").iterdir())
    assert written == sorted(f"{name.replace('/', '-')}.txt" for name in (names[0], names[2]))
    alone = call("evaluate", "--model", run, *source, "-o", "alone", "--json", "-")
    assert (files / "out" / written[0]).read_text() == (files / "alone").read_text()
    assert json.loads(alone.out)["d_bleu"] == found["systems"][0]["d_bleu"]
    assert f"(first: {names[0]}: test.en, document 1, sentence 1)" in outcome.err
    fails(*arguments, "-o", "out", message=r"out/.*\.txt already exists: remove it, or name another directory with -o")
    # Models alone, one of them an ensemble.
    by_name = call("evaluate", "--model", run, "--model", f"{run},other/{run.name}", *source, "-o", "more")
    assert by_name.status == 0
    assert {path.name for path in (files / "more").iterdir()} == {f"{run.name}.txt", f"{run.name}+{run.name}.txt"}
    # What is wrong with the last system is told before the first is translated.
    (files / "none").mkdir()
    fails("evaluate", "--systems", run, "none", *source, "-o", "late", message="none")
    fails("evaluate", "--systems", run, "none.de", *source, "-o", "late", message="cannot read none.de")
    fails("evaluate", "--systems", run, "a.de", *source, "-o", "-", message="-o - cannot take the translations")
    fails("evaluate", "--systems", run, "a.de", *source, "-o", "a.de", message="a file is where a directory is")
    assert not (files / "late").exists()


@pytest.mark.parametrize("protect", [[], ["--protect", "none"]])
def test_a_model_translates_as_docmt_translate_does(run, files, protect):
    """Both copy addresses and paths, or neither does."""
    lines = (files / "test.en").read_text().splitlines()
    lines[0] = f"{lines[0].removesuffix('.')} at /etc/passwd and http://example.eu/a."
    (files / "test.en").write_text("\n".join(lines) + "\n")
    call("translate", run, "test.en", "--layout", "lines", "-o", "t.de", *protect, *QUICK)
    call("evaluate", "--model", run, "--source", "test.en", "--reference", "test.de", "-o", "e.de", *protect, *QUICK)
    translated = (files / "t.de").read_text()
    assert lines_of(files / "e.de") == lines_of(files / "t.de") != []
    assert ("/etc/passwd" in translated and "http://example.eu/a" in translated) is (not protect)


def interrupted(monkeypatch, name, after, *arguments):
    """Calls docmt, and interrupts it when what has this name in the command has been called so often."""
    plainly, calls = getattr(evaluate, name), []

    def counted(*given, **more):
        calls.append(name)
        if len(calls) > after:
            raise KeyboardInterrupt
        return plainly(*given, **more)

    with monkeypatch.context() as patch:
        patch.setattr(evaluate, name, counted)
        outcome = call(*arguments)
    assert (outcome.status, outcome.out) == (130, "")
    return outcome.err


def scores_of(path):
    return [[own["d_bleu"], own["chrf"], own["outcomes"]] for own in json.loads(path.read_text())["systems"]]


@pytest.mark.full
def test_a_finished_file_stands_for_its_model_after_an_interruption(run, files, monkeypatch):
    shutil.copytree(run, files / "other")
    options = ["--reference", "test.de", "--samples", 100]
    of_models = [*options, "--source", "test.en", *QUICK]
    asked = ["evaluate", "--systems", run, "other", "a.de", *of_models]
    assert call(*asked, "--json", "whole.json").status == 0
    first = f"outs/{run.name}.txt"
    assert interrupted(monkeypatch, "translate_corpus", 1, *asked, "-o", "outs") == "docmt: interrupted\n"
    way_on = ["evaluate", "--systems", first, "other", "a.de", *of_models, "-o", "outs"]
    assert interrupted(monkeypatch, "compare", 0, *way_on).endswith("docmt: interrupted\n")
    assert sorted(path.name for path in (files / "outs").iterdir()) == ["other.txt", f"{run.name}.txt"]
    last = ["evaluate", "--systems", first, "outs/other.txt", "a.de", *options]
    assert call(*last, "--json", "last.json").status == 0
    (files / "outs" / "other.txt").unlink()
    assert call(*way_on, "--json", "on.json").status == 0
    assert scores_of(files / "whole.json") == scores_of(files / "on.json") == scores_of(files / "last.json")


def test_comparing_many_files_shows_progress(files, monkeypatch):
    monkeypatch.setattr("docmt.core.progress.time.monotonic", count(0, 20).__next__)
    told = call(*SYSTEMS, "--samples", 100).err
    assert "scoring (systems): 1 of 3 " in told and "comparing (metrics): 4 of 4 " in told


def test_several_references(run, files):
    names = ["--reference", "test.de", "second.de"]
    sides = [lines_of(files / name) for name in ("a.de", "test.de", "second.de")]
    expected = sacrebleu.corpus_bleu(sides[0], sides[1:]).score
    by_file = json.loads(call("evaluate", "--hypothesis", "a.de", *names, "--json", "-").out)
    assert by_file["s_bleu"]["score"] == expected and by_file["references"] == ["test.de", "second.de"]
    several = json.loads(call("evaluate", "--systems", "a.de", "b.de", *names, "--json", "-").out)
    assert several["systems"][0]["s_bleu"] == by_file["s_bleu"]
    model = ["evaluate", "--model", run, "--source", "test.en", *names, *QUICK]
    assert call(*model, "-o", "out").status == 0
    by_model = json.loads(call(*model, "--json", "-").out)
    written = json.loads(call("evaluate", "--hypothesis", "out", *names, "--json", "-").out)
    assert by_model["chrf"] == written["chrf"] and "nrefs:2|" in by_model["chrf"]["signature"]
    (files / "short.de").write_text("\n".join((files / "second.de").read_text().split("\n")[1:]))
    message = "reference 2 and reference 1 differ in documents or sentence counts"
    fails("evaluate", "--hypothesis", "a.de", "--reference", "test.de", "short.de", message=message)


def test_pairs_that_were_left_out(run, files):
    """The corpus of a model leaves them out, and files beside it would be shifted."""
    text = (files / "test.de").read_text()
    (files / "marked.de").write_text(
        "<d>\n" + text.replace("\n\n", "\n<d>\n").replace(lines_of(files / "test.de")[1], "")
    )
    (files / "marked.en").write_text("<d>\n" + (files / "test.en").read_text().replace("\n\n", "\n<d>\n"))
    arguments = ["--source", "marked.en", "--reference", "marked.de", *QUICK]
    outcome = call("evaluate", "--systems", run, "a.de", *arguments)
    assert outcome.status == 2 and "a.de cannot be aligned with marked.de, of which sentence pairs" in outcome.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--systems", "a.de", "b.de", "./a.de"], "the list of systems has ./a.de twice: name it once"),
        (["--systems", "a.de", "none.de"], "cannot read none.de: there is no such file"),
        (["--systems", "a.de", "RUN"], "RUN is a model, which needs --source: name the file to translate"),
        (["--systems", "a.de", "b.de", "--samples", "0"], "--significance.samples is 0: choose a number from 100 to"),
        (["--systems", "a.de", "b.de", "--test", "t"], "--significance.test is 't': choose one of randomization, boot"),
        (["--systems", "a.de", "b.de", "--resample", "words"], "--significance.resample is 'words': choose one of"),
        (["--systems", "a.de", "b.de", "--metrics.unit", "instance"], "a.de is a file, which has no instances"),
        (
            ["--systems", "a.de", "b.de", "--json", "out", "--markdown", "./out"],
            r"two outputs would both be written to ./out: name another file for one of them",
        ),
        (
            ["--model", "RUN", "--source", "test.en", "-o", "-", "--json", "-"],
            "two outputs would both go to standard output: name a file for one of them",
        ),
        (
            ["--systems", "a.de", "b.de", "--json", "-", "--markdown", "-"],
            "two outputs would both go to standard output",
        ),
        (["--systems", "a.de", "b.de", "--markdown", "no/m.md"], "cannot write no/m.md: there is no directory"),
        (
            ["--systems", "a.de", "two.de"],
            "two.de has 2 documents but test.de has 6. Both must contain the same documents",
        ),
        (["--systems", "a.de", "empty.de"], "empty.de has no text. Give a file with translations"),
        (["--hypothesis", "a.de", "--markdown", "m"], "--markdown needs several systems: name more than one"),
    ],
)
def test_what_does_not_fit(run, files, arguments, message):
    (files / "RUN").symlink_to(run)
    (files / "two.de").write_text("Er ist alt.\n\nEr ist billig.\n")
    (files / "empty.de").write_text("\n" * (files / "a.de").read_text().count("\n"))
    fails("evaluate", "--reference", "test.de", *arguments, message=message)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (["evaluate", "--model", "RUN", "--source", "test.en"], "--reference"),
        (["evaluate", "--systems", "RUN", "RUN,RUN", "--source", "test.en"], "--reference"),
        (["probe", "RUN", "--source", "test.en"], "--reference"),
        (["score", "RUN", "test.en"], "TARGET"),
    ],
)
def test_text_without_a_reference(run, files, arguments, name):
    (files / "RUN").symlink_to(run)
    message = f"error: {name} is missing: test.en is not JSONL with both sides, so name the other file"
    fails(*arguments, message=message)


def test_more_that_does_not_fit(files):
    fails("evaluate", "--systems", "a.de", "b.de", message="a.de needs --reference: name the file with the references")
    for name in ("one.de", "other.de", "reference.de"):
        (files / name).write_text(f"Er ist alt.\nSie ist billig {name}.\n")
    one = ["evaluate", "--systems", "one.de", "other.de", "--reference", "reference.de"]
    fails(*one, message=r"cannot resample a single document.* resample sentences \(--significance.resample sentences\)")
    assert call(*one, "--resample", "sentences").status == 0


def test_options_of_models_are_no_matter_for_files(files):
    """One command line for files and models: what only models need changes nothing for files."""
    plain = call(*SYSTEMS)
    told = call(*SYSTEMS, "--beam", 2, "--device", "cpu", "--source", "test.en", "-o", "unused")
    assert (told.status, told.out) == (0, plain.out)
    assert "--output, --device, --source, --search.beam: no effect, because" in told.err
    named = ["evaluate", "--hypothesis", "a.de", "--systems", "b.de", "c.de", "--reference", "test.de"]
    assert call(*named) == plain
    assert not (files / "unused").exists()
    alone = ["--reference", "test.de"]
    assert call("evaluate", "--systems", "a.de", *alone) == call("evaluate", "--hypothesis", "a.de", *alone)
