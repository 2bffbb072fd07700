"""Translations that end before their time: what is finished is kept, and --resume goes on to the same bytes."""

import errno
import gzip
import json
import os
import re
import signal

import pytest
import torch
from commands import call, fails, start, wait_for_lines

import docmt
from docmt.checkpoint.model_directory import save_model
from docmt.core import resumable_file
from docmt.decoding import SearchConfig, Translator
from docmt.model import ModelConfig, TranslationModel
from docmt.model.systems import Concat, Group
from docmt.text import BpeTokenizer

SIZES = {"width": 16, "feed_forward": 24, "heads": 2, "encoder_layers": 1, "decoder_layers": 1, "instance_tokens": 40}
SYSTEMS = {
    "sentence": {"system": "sentence"},
    "group": {"group": Group(encoder_layers=1, decoder_layers=1, cross_layers=1)},
    "concat": {"system": "concat", "concat": Concat(sentences=3)},
}


def search(beam=1, max_length_extra=4, batch_tokens=12):
    """Options: about two sentences in a batch, and eight in what is finished together."""
    options = {"beam": beam, "max_length_ratio": 0, "max_length_extra": max_length_extra, "batch_tokens": batch_tokens}
    return [*(f"--{name}={value}" for name, value in options.items()), "-q"]


SEARCH = search()
TEXT = "".join(
    f"{'# ' * (n % 5 == 0)}Anna bought lamp {n}. It is cheap.{' ' * (n % 3)}\n{chr(10) * (n % 4 == 1)}"
    for n in range(9)
)
LINES = "".join(f"Anna bought lamp {n}.\nIt is cheap.\n{chr(10) * (n % 3)}" for n in range(9))
OBJECTS = [
    {"id": "a", "source": ["It is cheap.", "", "Anna bought a lamp."] * 3},
    {"id": "b", "source": ["", ""]},
    *[{"document": "c", "sentence": n + 1, "source": f"It is number {n}."} for n in range(7)],
    {"id": "d", "text": "It is cheap. It is old.\n\nAnna bought a lamp."},
]
JSONL = "".join(json.dumps(own) + "\n" for own in OBJECTS)
INPUTS = {
    "text": (TEXT, "in.txt", []),
    "text without an end": (TEXT.rstrip(), "in.txt", []),
    "text as JSONL": (TEXT, "in.txt", ["--format", "jsonl"]),
    "lines": (LINES, "in.txt", ["--layout", "lines"]),
    "JSONL": (JSONL, "in.jsonl", []),
    "JSONL as text": (JSONL, "in.jsonl", ["--format", "text"]),
    "n best": (JSONL, "in.jsonl", ["--n-best", 2, "--format", "jsonl"]),
    "sampled": (TEXT, "in.txt", ["--sampling", "--seed", 3]),
    "carried": (TEXT, "in.txt", ["--overlap", 2]),
    "consistent": (JSONL, "in.jsonl", ["--consistent", "--format", "text"]),  # scores differ in last digits
    "compressed": (TEXT, "in.txt", []),
}


def save(path, name, seed=0):
    torch.manual_seed(seed)
    model = TranslationModel(ModelConfig(vocabulary_size=264, **SIZES, **SYSTEMS[name]))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    save_model(path, model, BpeTokenizer.train(["a few words"], 264))
    return path


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Of every system a directory with a model of random weights."""
    folder = tmp_path_factory.mktemp("models")
    return {name: save(folder / name, name) for name in SYSTEMS}


class Stop(KeyboardInterrupt):
    """Ctrl-C."""


@pytest.fixture
def stop_after(monkeypatch):
    """Ends translations after so many additions to the file; gives how many there were. A negative number: in the
    middle of writing the next one."""
    append, made = resumable_file._append, []

    def stop(count):
        made.clear()

        def appending(file, data):
            additions = sum(b'"note"' in own for own in made)
            if additions == abs(count) and b'"version"' not in data:
                if count < 0:
                    os.write(file.fileno(), data[: len(data) // 2])
                raise Stop
            append(file, data)
            made.append(data)

        monkeypatch.setattr(resumable_file, "_append", appending)

    def count():
        return sum(b'"note"' in own for own in made)

    stop.count = count
    return stop


def begun(path):
    """The text in the whole lines of OUT.partial."""
    *whole, _ = path.read_bytes().split(b"\n")
    return "".join(json.loads(line).get("text", "") for line in whole)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


QUICK_INPUTS = ("text", "JSONL", "n best", "compressed")


@pytest.mark.full
@pytest.mark.parametrize(
    "name", [name if name in QUICK_INPUTS else pytest.param(name, marks=pytest.mark.full) for name in INPUTS]
)
def test_interrupted_anywhere(models, tmp_path, stop_after, name):
    text, source, options = INPUTS[name]
    model = models["group" if name == "carried" else "concat" if name == "JSONL as text" else "sentence"]
    (tmp_path / source).write_text(text)
    output = tmp_path / ("out.gz" if name == "compressed" else "out")
    command = ["translate", model, tmp_path / source, *search(beam=2 if "--n-best" in options else 1), *options]
    whole = call(*command).out
    stop_after(10**6)
    assert call(*command, "-o", output).status == 0
    read = gzip.decompress if name == "compressed" else bytes
    expected = output.read_bytes()
    assert read(expected).decode() == whole
    assert names(tmp_path) == sorted([source, output.name])
    additions = stop_after.count()
    assert additions >= 3
    for ends in [1, 2, -2] if name == "text" else [1 - additions]:
        output.write_text("old")
        stop_after(ends)
        outcome = call(*command, "-o", output)
        assert outcome.status == 130
        kept = tmp_path / f"{output.name}.partial"
        told = f"docmt: finished parts are in {kept}: run the same command with --resume to continue\n"
        assert outcome.err == told + "docmt: interrupted\n"
        assert output.read_text() == "old"
        assert names(tmp_path) == sorted([source, output.name, kept.name])
        text = begun(kept)
        assert whole.startswith(text) and text != whole
        fails(*command, "-o", output, message=rf"{kept} is unfinished: continue it with --resume, or remove it")
        stop_after(10**6)
        assert call(*command, "-o", output, "--resume").status == 0
        assert stop_after.count() == additions - abs(ends)
        assert output.read_bytes() == expected
        assert names(tmp_path) == sorted([source, output.name])


def test_other_sentences_of_a_file_with_markup_are_another_input(models, tmp_path, stop_after):
    """Translations were given to other sentences, with status 0."""
    texts = "".join(f"<p>Er kam am {n}. Mai. See www.b.org/{n}.</p>" for n in range(1, 5))
    (tmp_path / "in.html").write_text(texts)
    command = ["translate", models["sentence"], tmp_path / "in.html", *SEARCH]
    whole = call(*command, "--input.language", "de").out
    command += ["-o", tmp_path / "out.html", "--input.language"]
    stop_after(1)
    assert call(*command, "de").status == 130
    stop_after(10**6)
    fails(*command, "en", "--resume", message=r"out\.html\.partial: it was started with another input\.")
    fails(*command, "de", "--resume", "--protect", "none", message=r"out\.html\.partial: .* another --protect\.")
    assert call(*command, "de", "--resume").status == 0
    assert (tmp_path / "out.html").read_text() == whole
    assert all(f"www.b.org/{n}" in whole for n in range(1, 5))


@pytest.mark.full
def test_again_and_again(models, tmp_path, stop_after):
    (tmp_path / "in.txt").write_text("\n".join(TEXT.splitlines()[:7]))
    command = ["translate", models["concat"], tmp_path / "in.txt", "-o", tmp_path / "out", *SEARCH]
    whole = call(*command[:3], *SEARCH).out
    for _ in range(20):
        stop_after(1)
        if call(*command, "--resume").status == 0:
            break
    assert (tmp_path / "out").read_text() == whole


@pytest.mark.full
def test_what_was_told_before_is_told_again(models, tmp_path, stop_after):
    (tmp_path / "in.txt").write_text(TEXT)
    command = ["translate", models["sentence"], tmp_path / "in.txt", "-o", tmp_path / "out", *SEARCH]
    told = call(*command).err
    assert re.search(r"^docmt: \d\d? x sentences ended by the length limit", told)
    stop_after(2)
    assert call(*command).status == 130
    stop_after(10**6)
    assert call(*command, "--resume").err == told
    assert "sentences are done" not in told
    stop_after(2)
    assert call(*command).status == 130
    stop_after(10**6)
    loud = call(*[word for word in command if word != "-q"], "--resume").err
    assert re.match(rf"docmt: {tmp_path}/in\.txt: \d+ of 18 sentences are done\n", loud)


@pytest.mark.full
def test_several_files(models, tmp_path, stop_after):
    """The files that are finished are there, and are not translated again."""
    files = [tmp_path / f"{name}.txt" for name in "abc"]
    for file in files:
        file.write_text(TEXT)
    (tmp_path / "b.txt").write_text("---\n\n---\n")
    command = ["translate", models["sentence"], *files, "-o", tmp_path / "out", *SEARCH]
    assert call(*command).status == 0
    expected = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    assert sorted(expected) == ["a.txt", "b.txt", "c.txt"]
    stop_after(10**6)
    assert call(*command).status == 0
    additions = stop_after.count()
    stop_after(additions - 1)
    (tmp_path / "out" / "a.txt").unlink()
    assert call(*command).status == 130
    assert names(tmp_path / "out") == [*("a.txt", "a.txt.partial", "b.txt", "b.txt.partial", "c.txt", "c.txt.partial")]
    stop_after(10**6)
    assert call(*command, "--resume").status == 0
    assert stop_after.count() == 1
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == expected


@pytest.mark.full
def test_files_of_an_earlier_call_are_not_taken_for_those_of_this_one(models, tmp_path, stop_after):
    files = [tmp_path / f"{name}.txt" for name in "abc"]
    for file in files:
        file.write_text(TEXT)
    stop_after(10**6)
    for name in ("sentence", "group"):
        assert call("translate", models[name], *files, "-o", tmp_path / name, *SEARCH).status == 0
    command = ["translate", models["group"], *files, "-o", tmp_path / "sentence", *SEARCH]
    stop_after(1)
    assert call(*command).status == 130
    assert names(tmp_path / "sentence") == ["a.txt", "a.txt.partial", "b.txt", "c.txt"]
    stop_after(10**6)
    assert call(*command, "--resume").status == 0
    found, expected = (
        {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} for name in ("sentence", "group")
    )
    assert found == expected


@pytest.mark.full
def test_a_finished_output_of_another_model_is_not_left(models, tmp_path):
    """--resume left what was there, whatever it was made from, with status 0."""
    (tmp_path / "in.txt").write_text(TEXT)
    command = ["translate", models["sentence"], tmp_path / "in.txt", "-o", tmp_path / "out"]
    assert call(*command, *SEARCH).status == 0
    for model, options in ((models["group"], SEARCH), (models["sentence"], search(max_length_extra=5))):
        again = call(*command[:1], model, *command[2:], *options, "--resume")
        assert again.status == 0
        assert "out exists and has no unfinished part to resume: translating all of it again" in again.err
        assert (tmp_path / "out").read_text() == call("translate", model, tmp_path / "in.txt", *options).out


@pytest.mark.full
def test_what_this_command_has_finished_stays(models, tmp_path, stop_after):
    files = [tmp_path / f"{name}.txt" for name in "ab"]
    for file in files:
        file.write_text(TEXT)
    command = ["translate", models["sentence"], *files, "-o", tmp_path / "out", *SEARCH]
    stop_after(10**6)
    assert call(*command).status == 0
    additions = stop_after.count()
    stop_after(additions - 1)
    assert call(*command).status == 130
    fails(
        *command[:1],
        models["group"],
        *command[2:],
        "--resume",
        message=r"a\.txt\.partial: it was started with another model",
    )
    (tmp_path / "out" / "a.txt").write_text("mine\n")
    stop_after(10**6)
    resumed = call(*command, "--resume")
    assert (resumed.status, stop_after.count()) == (0, 1)
    assert (tmp_path / "out" / "a.txt").read_text() == "mine\n"
    assert names(tmp_path / "out") == ["a.txt", "b.txt"]


@pytest.mark.parametrize("failing", ["a file that cannot be read", "a document that fails"])
def test_finished_outputs_stay_known_after_failures(models, tmp_path, monkeypatch, failing):
    """Where another file had failed, --resume translated everything again, over changes by hand."""
    (tmp_path / "a.txt").write_text(TEXT)
    (tmp_path / "bad.txt").write_bytes(b"\xff\xfe\xff" if failing == "a file that cannot be read" else b"It is bad.\n")
    command = [
        "translate",
        models["sentence"],
        tmp_path / "a.txt",
        tmp_path / "bad.txt",
        "-o",
        tmp_path / "th",
        *SEARCH,
    ]
    with monkeypatch.context() as patched:
        if failing == "a document that fails":
            patched.setattr(
                "docmt.cli.output.find_invalid_score",
                lambda translation, first: "bad" * ("bad" in translation.sentences[0].source),
            )
        assert call(*command).status == 2
        assert names(tmp_path / "th") == ["a.txt", "a.txt.partial"]
        (tmp_path / "th" / "a.txt").write_text("mine\n")
        again = call(*command, "--resume")
        assert again.status == 2
        assert "translating it again" not in again.err
        assert (tmp_path / "th" / "a.txt").read_text() == "mine\n"
    (tmp_path / "bad.txt").write_text("It is good.\n")
    assert call(*command, "--resume").status == 0
    assert (tmp_path / "th" / "a.txt").read_text() == "mine\n"
    assert names(tmp_path / "th") == ["a.txt", "bad.txt"]


@pytest.mark.parametrize(
    "changed", [*(pytest.param(name, marks=pytest.mark.full) for name in ("a bit", "the end")), "a line"]
)
def test_damage_is_noticed(models, tmp_path, stop_after, changed):
    """Bytes that a disk changed were taken for text, or ended in a traceback."""
    (tmp_path / "in.txt").write_text(TEXT)
    command = ["translate", models["sentence"], tmp_path / "in.txt", "-o", tmp_path / "out", *SEARCH]
    whole = call(*command[:3], *SEARCH).out
    stop_after(3)
    assert call(*command).status == 130
    stop_after(10**6)
    kept = tmp_path / "out.partial"
    data = kept.read_bytes()
    if changed == "the end":
        kept.write_bytes(data[:-10])
        assert call(*command, "--resume").status == 0
        assert (tmp_path / "out").read_text() == whole
        return
    lines = data.splitlines(keepends=True)
    damaged = [b"".join([lines[0], *lines[1:2], *lines[1:]])[: len(data)]] if changed == "a line" else []
    for place in range(0, len(data) - 1, 97) if changed == "a bit" else []:
        damaged.append(data[:place] + bytes([data[place] ^ 2]) + data[place + 1 :])
    for bytes_there in damaged:
        kept.write_bytes(bytes_there)
        outcome = call(*command, "--resume")
        assert outcome.status == 2, outcome
        assert re.fullmatch(
            r"docmt: error: \S+out\.partial(, line \d: damaged; remove the file to start| exists and is not) [^\n]+\n",
            outcome.err,
        )
        assert kept.read_bytes() == bytes_there


@pytest.mark.full
def test_only_the_same_is_gone_on_with(models, tmp_path, stop_after):
    source, output = tmp_path / "in.txt", tmp_path / "out"
    source.write_text(TEXT)
    command = ["translate", models["sentence"], source, "-o", output]
    stop_after(2)
    assert call(*command, *SEARCH).status == 130
    stop_after(10**6)
    other = save(tmp_path / "other", "sentence", seed=1)
    begun = rf"cannot resume {output}\.partial: it was started with another %s. Use the same, or remove it "
    resumed = [*command, "--resume"]
    fails(*resumed[:1], other, *resumed[2:], *SEARCH, message=begun % "model")
    fails(*resumed, *search(max_length_extra=5), message=begun % r"--search\.max-length-extra")
    fails(*resumed, *SEARCH, "--format", "jsonl", message=begun % "--format, input")
    fails(*resumed, *SEARCH, "--layout", "lines", message=begun % "input")
    source.write_text(TEXT + "One more.\n")
    fails(*resumed, *search(beam=2), message=begun % r"--search\.beam, input")
    source.write_text(TEXT)
    (tmp_path / "moved.txt").write_text(TEXT)
    # Smaller batches, where memory was the reason, and another place of the same text.
    assert call(*command[:2], tmp_path / "moved.txt", *resumed[3:], *search(batch_tokens=6)).status == 0
    assert output.read_text() == call(*command[:3], *SEARCH).out


def test_an_option_that_is_left_out_is_named(models, tmp_path, stop_after):
    (tmp_path / "in.txt").write_text(TEXT)
    command = ["translate", models["group"], tmp_path / "in.txt", "-o", tmp_path / "out", *SEARCH]
    stop_after(2)
    assert call(*command, "--search.sequential").status == 130
    stop_after(10**6)
    fails(*command, "--resume", message=r"it was started with another --search\.sequential\.")


def test_what_cannot_be_gone_on_with(models, tmp_path):
    (tmp_path / "in.txt").write_text(TEXT)
    command = ["translate", models["sentence"], tmp_path / "in.txt", "--resume", *SEARCH]
    not_resumable = "--resume cannot continue %s; write to a file with -o FILE"
    fails(*command, message=not_resumable % "standard output")
    fails(*command, "-o", os.devnull, message=not_resumable % f"{os.devnull}, a device or pipe")


def test_standard_input(models, tmp_path, stop_after):
    """It is the same text when it is given again."""
    command = ["translate", models["sentence"], "-o", tmp_path / "out", *SEARCH]
    stop_after(1)
    assert call(*command, stdin=TEXT.encode()).status == 130
    stop_after(10**6)
    fails(*command, "--resume", stdin=LINES.encode(), message="started with another input")
    assert call(*command, "--resume", stdin=TEXT.encode()).status == 0
    assert (tmp_path / "out").read_text() == call("translate", models["sentence"], *SEARCH, stdin=TEXT.encode()).out


@pytest.mark.parametrize(
    "text",
    [
        "mine",
        '{"docmt": 1}\n',
        pytest.param("mine\n", marks=pytest.mark.full),
        pytest.param("{", marks=pytest.mark.full),
    ],
)
def test_what_is_not_ours_stays(models, tmp_path, text):
    (tmp_path / "in.txt").write_text(TEXT)
    command = ["translate", models["sentence"], tmp_path / "in.txt", "-o", tmp_path / "out", *SEARCH]
    others = [tmp_path / "out.partial", tmp_path / "out.journal"]
    for other in others:
        other.write_text(text)
    for resume in ([], ["--resume"]):
        if text != "{":  # which may be the beginning of our first line
            fails(*command, *resume, message=r"out\.partial exists and is not an unfinished translation")
            assert [other.read_text() for other in others] == [text, text]
    others[0].unlink()
    assert call(*command).status == 0
    assert others[1].read_text() == text


def test_nothing_is_left_of_what_was_not_begun(models, tmp_path, stop_after):
    (tmp_path / "in.txt").write_text(TEXT)
    stop_after(0)
    outcome = call("translate", models["sentence"], tmp_path / "in.txt", "-o", tmp_path / "out", *SEARCH)
    assert (outcome.status, outcome.err) == (130, "docmt: interrupted\n")
    assert names(tmp_path) == ["in.txt"]


@pytest.mark.parametrize("text", ["", "\n", " \n\n\t\n", "---\n\n---"])
@pytest.mark.parametrize("options", [[], ["--layout", "lines"], ["--format", "jsonl"]])
def test_texts_without_sentences(models, tmp_path, text, options):
    (tmp_path / "in.txt").write_text(text)
    command = ["translate", models["sentence"], tmp_path / "in.txt", "-o", tmp_path / "out", *SEARCH, *options]
    for resume in ([], ["--resume"]):
        assert call(*command, *resume).status == 0
        if "-" not in text:
            assert (tmp_path / "out").read_text() == ("" if "jsonl" in options else text)
        assert names(tmp_path) == ["in.txt", "out"]


def test_a_full_disk(models, tmp_path, monkeypatch):
    """What was finished before is kept, and is gone on with when there is room."""
    (tmp_path / "in.txt").write_text(TEXT)
    command = ["translate", models["sentence"], tmp_path / "in.txt", "-o", tmp_path / "out", *SEARCH]
    whole, append, room = call(*command[:3], *SEARCH).out, resumable_file._append, [1500]

    def appending(file, data):
        written = data[: max(0, room[0])]
        room[0] -= len(data)
        append(file, written)
        if len(written) < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(resumable_file, "_append", appending)
    outcome = call(*command)
    assert outcome.status == 2
    kept, error = outcome.err.splitlines()
    assert (
        kept == f"docmt: finished parts are in {tmp_path}/out.partial: run the same command with --resume to continue"
    )
    assert re.fullmatch(r"docmt: error: cannot write \S+/out\.partial: No space left on device; free space .*", error)
    room[0] = 10**9
    assert call(*command, "--resume").status == 0
    assert (tmp_path / "out").read_text() == whole


@pytest.mark.full
def test_killed_in_a_process_of_its_own(models, tmp_path):
    (tmp_path / "in.txt").write_text(TEXT * 4)
    command = ["translate", models["group"], tmp_path / "in.txt", "-o", tmp_path / "out", *SEARCH]
    process = start(*command)
    wait_for_lines(tmp_path / "out.partial", 4, process)
    process.send_signal(signal.SIGSTOP)
    with_it = call(*command, "--resume")
    assert with_it.status == 2
    assert re.search(rf"out is being written by process {process.pid} on \S+: wait for it, or stop it", with_it.err)
    process.kill()
    process.communicate()
    assert call(*command, "--resume").status == 0
    assert (tmp_path / "out").read_text() == call(*command[:3], *SEARCH).out
    assert names(tmp_path) == ["in.txt", "out"]


@pytest.mark.full
def test_terminated(models, tmp_path):
    """A signal of the system ended it in silence."""
    (tmp_path / "in.txt").write_text(LINES * 8)
    process = start("translate", models["group"], tmp_path / "in.txt", "-o", tmp_path / "out", *SEARCH)
    wait_for_lines(tmp_path / "out.partial", 4, process)
    process.send_signal(signal.SIGTERM)
    _, told = process.communicate()
    kept = f"docmt: finished parts are in {tmp_path}/out.partial: run the same command with --resume to continue\n"
    assert (process.returncode, told) == (130, f"{kept}docmt: interrupted\n")


def test_documents_that_failed_are_tried_again(models, tmp_path, monkeypatch):
    """An output that lacked some counted as finished for ever."""
    good, bad = ({"id": name, "source": [f"It is {name}."]} for name in ("good", "bad"))
    (tmp_path / "in.jsonl").write_text(f"{json.dumps(good)}\n{json.dumps(bad)}\n")
    (tmp_path / "whole.txt").write_text(TEXT)
    inputs = [tmp_path / "in.jsonl", tmp_path / "whole.txt"]
    command = ["translate", models["sentence"], *inputs, "-o", tmp_path / "to", *SEARCH]
    assert call(*command).status == 0
    expected = (tmp_path / "to" / "in.jsonl").read_text()
    with monkeypatch.context() as patched:
        patched.setattr(
            "docmt.cli.output.find_invalid_score",
            lambda translation, first: "bad" * ("bad" in translation.sentences[0].source),
        )
        for again in ([], ["--resume"]):
            told = call(*command, *again)
            assert told.status == 2
            assert "1 of 2 documents are not wholly translated: " in told.err
            assert (f"{tmp_path}/to/in.jsonl lacks documents that failed: translating it again" in told.err) == bool(
                again
            )
            assert "whole.txt is there already" not in told.err
    lacking = (tmp_path / "to" / "in.jsonl").read_text()
    assert "error" in lacking
    (tmp_path / "to" / "in.jsonl").write_text("mine\n")
    told = call(*command, "--resume")
    assert (told.status, (tmp_path / "to" / "in.jsonl").read_text()) == (2, "mine\n")
    assert "1 of 2 documents are not wholly translated: " in told.err
    (tmp_path / "to" / "in.jsonl").write_text(lacking)
    (tmp_path / "to" / "whole.txt").write_text("mine\n")
    told = call(*command, "--resume")
    assert told.status == 0
    assert (tmp_path / "to" / "in.jsonl").read_text() == expected
    assert (tmp_path / "to" / "whole.txt").read_text() == "mine\n"
    assert names(tmp_path / "to") == ["in.jsonl", "whole.txt"]


def test_arguments_of_the_interface_that_mean_nothing(models):
    translator = Translator(models["sentence"])
    for group in ("a", 0, None, 1.5):
        with pytest.raises(docmt.DocmtError, match=f"group is {group!r}: "):
            translator.stream(["One."], group=group)
    for look_ahead in (-1, 0, "a"):
        with pytest.raises(docmt.DocmtError, match=f"look_ahead is {look_ahead!r}. Choose at least 1 source token"):
            translator.stream_parts(["One."], look_ahead=look_ahead)


@pytest.mark.full
def test_pieces_of_the_interface(models):
    translator = Translator(
        models["group"], search=SearchConfig(beam=1, max_length_ratio=0, max_length_extra=4), batch_tokens=12
    )
    documents = [docmt.Document.from_text(text, id=text[:1]) for text in (TEXT, "", LINES)]
    lists = list(translator.stream_parts(documents))
    pieces = [piece for together in lists for piece in together]
    whole = translator.translate_all(documents)
    for number, (document, translation) in enumerate(zip(documents, whole, strict=True)):
        own = [piece for piece in pieces if piece.document == number]
        assert "".join(piece.source.text() for piece in own) == document.text()
        assert "".join(piece.text() for piece in own) == translation.text()
        assert [piece.first for piece in own] == [0, *[piece.resume_point.sentences for piece in own]][:-1]
        assert [s.target for piece in own for s in piece.translation] == [s.target for s in translation]
    done = {piece.document: piece.resume_point for piece in pieces[:4]}
    rest = [piece for together in translator.stream_parts(documents, resume_points=done) for piece in together]
    assert rest == pieces[4:]
    with pytest.raises(docmt.DocmtError, match="int is not a document"):
        translator.stream_parts([3])
