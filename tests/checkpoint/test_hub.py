"""docmt pull against a small hub on the loopback, in processes of their own."""

import json
import os
import signal
import time
from contextlib import suppress

import pytest
import torch
from commands import assert_one_sentence
from forked import ForkedPython, run_forked
from safetensors.torch import load_file

pytest.importorskip("transformers")
pytest.importorskip("huggingface_hub")

import hub
from hub_server import COMMIT, serve_hub
from tiny_pretrained import convert_pretrained, save_marian

from docmt import Translator, load_model
from docmt.checkpoint import convert_huggingface
from docmt.checkpoint.hub import find_pair

ID = "Helsinki-NLP/opus-mt-en-fr"
FULL = pytest.mark.full
START = """
import sys, huggingface_hub.constants
from docmt.cli.app import main
huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE = 1000  # bytes that are written at once
sys.exit(main())
"""
CARD = b"---\nlanguage:\n- en\n- fr\nlicense: apache-2.0\n---\n# A model\n"


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The files of a tiny Marian model, and its pickled weights."""
    directory, state = save_marian(tmp_path_factory.mktemp("marian"))
    torch.save(state, directory / "pytorch_model.bin")
    found = {path.name: path.read_bytes() for path in directory.iterdir()}
    return {**found, "README.md": CARD, "tf_model.h5": b"x" * 1000, ".gitattributes": b"x", "../config.json": b"x"}


@pytest.fixture
def server(files):
    with serve_hub() as hub_server:
        hub_server.repositories[ID] = {name: data for name, data in files.items() if name != "pytorch_model.bin"}
        yield hub_server


@pytest.fixture
def pull(server, home, tmp_path):
    """Run docmt in a process whose hub is the server."""

    def environment(**changes):
        values = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "HUGGING"))}
        values |= {"HF_ENDPOINT": server.endpoint, "HF_HOME": str(tmp_path / "cache"), "HF_HUB_DISABLE_XET": "1"}
        return {**values, "DOCMT_HOME": str(home), "OMP_NUM_THREADS": "1", **changes}

    def run(*arguments, command="pull", wait=True, **changes):
        run_or_start = run_forked if wait else ForkedPython
        return run_or_start(["-c", START, command, *arguments], env=environment(**changes))

    return run


def left(home):
    """The names in the folder of models."""
    return sorted(path.name for path in (home / "models").glob("*")) if home.exists() else []


def refused(outcome, message, home):
    assert outcome.returncode == 2, outcome.stderr
    assert outcome.stdout == ""
    lines = [line for line in outcome.stderr.splitlines(keepends=True) if line.startswith("docmt: error")]
    assert_one_sentence("".join(lines), message)
    assert "Traceback" not in outcome.stderr
    assert not [name for name in left(home) if not name.startswith(".")]


@pytest.mark.full
def test_a_model_is_pulled_and_translates_by_its_pair(pull, server, home, files, tmp_path):
    outcome = pull(ID)
    assert outcome.returncode == 0, outcome.stderr
    assert outcome.stderr.startswith(f"docmt: {ID}: en to fr, licence apache-2.0, ")
    assert "try: docmt translate en-fr FILE" in outcome.stderr
    path = home / "models" / "opus-mt-en-fr"
    assert outcome.stdout.startswith(f"{path}: system sentence, ")
    assert left(home) == ["opus-mt-en-fr"]
    config, card = json.loads((path / "config.json").read_text()), (path / "README.md").read_text()
    assert (config["license"], config["hub_id"], config["hub_revision"]) == ("apache-2.0", ID, COMMIT)
    assert "\nlicense: apache-2.0\n" in card and f"repository {ID}, revision {COMMIT}" in card
    asked = {each.rpartition("/")[2] for each in server.paths() if "/resolve/" in each}
    assert asked == files.keys() - {"pytorch_model.bin", "tf_model.h5", ".gitattributes", "../config.json"} - {
        *[name for name in files if name.endswith(".h5")]
    }
    local = tmp_path / "local"
    local.mkdir()
    for name in asked:
        (local / name).write_bytes(files[name])
    convert_huggingface(local, tmp_path / "converted", source_language="en", target_language="fra")
    ours, theirs = (load_file(each / "model.safetensors") for each in (path, tmp_path / "converted"))
    assert all(ours[name].equal(theirs[name]) for name in theirs)
    assert Translator("en-fr").languages == ("en", "fr")
    server.requests.clear()
    again = pull(ID)
    assert (again.returncode, again.stdout) == (0, f"{path}: is there already, in this revision\n")
    assert "apache-2.0" in again.stderr and not [each for each in server.paths() if "safetensors" in each]


@pytest.mark.full
def test_pickled_weights_are_converted_and_not_kept(pull, server, home, files, tmp_path):
    server.repositories[ID] = {name: data for name, data in files.items() if name != "model.safetensors"}
    outcome = pull(ID, "-o", tmp_path / "model")
    assert outcome.returncode == 0, outcome.stderr
    assert load_model(tmp_path / "model").config.system == "sentence"
    assert not list(tmp_path.rglob("*.bin")) and not list(tmp_path.glob(".*"))
    large = [path for path in (tmp_path / "cache").rglob("*") if path.stat().st_size == len(files["pytorch_model.bin"])]
    assert not large


class Attack:
    """An object whose loading writes a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.system, (f"echo attacked > {self.path}",)


@pytest.mark.full
def test_code_in_pickled_weights_is_refused_and_not_run(pull, server, home, files, tmp_path):
    torch.save({"a": Attack(tmp_path / "attacked")}, tmp_path / "evil")
    server.repositories[ID] = {name: data for name, data in files.items() if name != "model.safetensors"}
    server.repositories[ID]["pytorch_model.bin"] = (tmp_path / "evil").read_bytes()
    refused(pull(ID), r"pytorch_model\.bin may run code: it has 'posix\.system'", home)
    assert not (tmp_path / "attacked").exists() and not list(home.rglob("*.bin"))


@pytest.mark.full
def test_a_broken_connection_is_resumed_where_it_broke(pull, server, home):
    server.cut["model.safetensors"] = 5000
    outcome = pull(ID)
    assert outcome.returncode == 0, outcome.stderr
    ranges = [range for _, path, range in server.requests if path.endswith("model.safetensors") and range]
    assert ranges == ["bytes=5000-"]
    assert left(home) == ["opus-mt-en-fr"]


@pytest.mark.full
@pytest.mark.parametrize("file", ["model.safetensors", pytest.param("pytorch_model.bin", marks=FULL)])
def test_a_killed_pull_leaves_no_model_and_is_continued(file, pull, server, home, files, tmp_path):
    other = {"model.safetensors": "pytorch_model.bin"}.get(file, "model.safetensors")
    server.repositories[ID] = {name: data for name, data in files.items() if name != other}
    server.stalled[file] = 20_000  # of which the first are on the disk: Python writes 8,192 at once
    process = pull(ID, wait=False)
    deadline = time.monotonic() + 60
    started = False
    while not started:
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.02)
        with suppress(FileNotFoundError):  # a smaller file was finished and renamed meanwhile
            started = any(path.stat().st_size >= 8192 for path in tmp_path.rglob("*.incomplete"))
    refused(pull(ID), f"{ID} is being pulled by process .*: wait for it, or stop it", home)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert not [name for name in left(home) if not name.startswith(".")]
    server.stalled.clear()
    server.requests.clear()
    assert pull(ID).returncode == 0
    # The hub's library continues a file in one process only, but whole files are not asked for again.
    assert {path.rpartition("/")[2] for path in server.paths() if "/resolve/" in path} == {file}
    assert left(home) == ["opus-mt-en-fr"]


@pytest.mark.full
@pytest.mark.parametrize(
    ("status", "code", "message"),
    [
        (
            403,
            "GatedRepo",
            f"{ID} is gated. Accept its terms on http.*, and log in with `hf auth login` or set HF_TOKEN",
        ),
        (401, "", f"has no model {ID}, or it is private. Check its name, or log in"),
        pytest.param(401, "GatedRepo", f"{ID} is gated", marks=FULL),
        pytest.param(404, "RepoNotFound", f"has no model {ID}, or it is private", marks=FULL),
        pytest.param(418, "", f"does not give {ID}", marks=FULL),
    ],
)
def test_a_model_that_is_not_accessible(status, code, message, pull, server, home):
    server.status, server.error_code = status, code
    refused(pull(ID), message, home)


@FULL
def test_a_repository_that_is_no_model(pull, server, home, files):
    refused(pull("en-de"), "en-de is no repository of the hub. Write it with its owner: Helsinki-NLP/opus", home)
    refused(pull("a/none"), "has no model a/none", home)
    refused(pull(ID, "--revision", "none"), f"{ID} has no revision none. Name a branch, a tag or a commit", home)
    server.repositories["a/empty"] = {"README.md": b""}
    refused(pull("a/empty"), r"a/empty has no config\.json, so it is no model that docmt reads", home)
    server.repositories["a/tf"] = {name: files[name] for name in ("config.json", "tf_model.h5")}
    refused(pull("a/tf"), r"a/tf has neither model\.safetensors nor pytorch_model\.bin", home)


@pytest.mark.full
def test_an_unknown_language_is_an_error_before_the_weights_are_there(pull, server, home):
    message = "target-language is 'xx', which this model does not know. Did you mean fra"
    refused(pull(ID, "--target-language", "xx"), message, home)
    assert not [path for path in server.paths() if "safetensors" in path]
    outcome = pull(ID, "--target-language", "fra")
    assert outcome.returncode == 0 and left(home) == ["opus-mt-en-fr.fra"]


@FULL
def test_a_prefix_for_another_model_than_t5_is_an_error_before_the_weights_are_there(pull, server, home):
    refused(pull(ID, "--prefix", "translate: "), "--prefix is for T5 models. Remove it", home)
    assert not [path for path in server.paths() if "safetensors" in path]


@FULL
def test_a_t5_model_gets_its_prefix(pull, server, home, tmp_path):
    _, without, _ = convert_pretrained(tmp_path, "t5", hub.t5_spm, {})
    directory = without.with_name("t5 t5_spm")
    server.repositories["a/t5"] = {path.name: path.read_bytes() for path in directory.iterdir()}
    outcome = pull("a/t5", "--prefix", "a b", "-o", tmp_path / "with")
    assert outcome.returncode == 0 and "Add it with" not in outcome.stderr
    assert "Add it with --prefix" in pull("a/t5", "-o", tmp_path / "again").stderr
    convert_huggingface(directory, tmp_path / "expected", prefix="a b")
    with_prefix, expected = (load_model(tmp_path / name).config for name in ("with", "expected"))
    assert with_prefix == expected != load_model(without).config == load_model(tmp_path / "again").config


@FULL
def test_a_file_of_another_size_is_refused(pull, server, home, files):
    server.sizes["model.safetensors"] = len(files["model.safetensors"]) + 1
    refused(pull(ID), f"bytes, not the .* of {ID}. Remove it and pull again", home)


@FULL
@pytest.mark.parametrize("answer", [b"[]", b"{}", b"<html>"])
def test_an_answer_that_is_not_of_the_hub(answer, pull, server, home):
    server.answer = answer
    refused(pull(ID), f"{ID} was not downloaded|has no config", home)


@pytest.mark.full
def test_no_network(pull, server, home):
    refused(
        pull(ID, HF_ENDPOINT="http://127.0.0.1:9"), r"http://127\.0\.0\.1:9 cannot be reached .*Check the network", home
    )


@pytest.mark.full
def test_offline_the_cache_is_enough_and_nothing_is_asked(pull, server, home, tmp_path):
    refused(pull(ID, HF_HUB_OFFLINE="1"), f"{ID} is not in the cache, and HF_HUB_OFFLINE is set. Pull it once", home)
    assert server.requests == []
    assert pull(ID).returncode == 0
    server.requests.clear()
    outcome = pull(ID, "-o", tmp_path / "again", HF_HUB_OFFLINE="1")
    assert outcome.returncode == 0, outcome.stderr
    assert "licence apache-2.0" in outcome.stderr and server.requests == []
    assert json.loads((tmp_path / "again" / "config.json").read_text())["hub_revision"] == COMMIT


@FULL
def test_a_licence_without_commercial_use_is_said_at_pull_and_use(pull, server, home, tmp_path):
    server.repositories[ID]["README.md"] = CARD.replace(b"apache-2.0", b"cc-by-nc-4.0")
    outcome = pull(ID)
    assert f"the licence of {ID}, cc-by-nc-4.0, forbids commercial use" in outcome.stderr
    assert "cc-by-nc-4.0, no commercial use" in pull(command="models").stdout
    (tmp_path / "in.txt").write_text("A house.\n")
    used = pull("en-fr", tmp_path / "in.txt", "--search.beam=1", "--max-length-extra=2", command="translate")
    assert used.returncode == 0 and "the licence of opus-mt-en-fr, cc-by-nc-4.0, forbids commercial use" in used.stderr


@pytest.mark.full
def test_a_docmt_model_is_pulled_as_it_is(pull, server, home, tmp_path):
    assert pull(ID, "-o", tmp_path / "model").returncode == 0
    server.repositories["me/mine"] = {
        path.name: path.read_bytes() for path in (tmp_path / "model").iterdir() if path.is_file()
    }
    outcome = pull("me/mine")
    assert outcome.returncode == 0, outcome.stderr
    path = home / "models" / "mine"
    assert (path / "model.safetensors").read_bytes() == (tmp_path / "model" / "model.safetensors").read_bytes()
    assert json.loads((path / "config.json").read_text())["hub_id"] == "me/mine"
    assert Translator("me/mine").languages == ("en", "fr")
    message = "me/mine is a docmt model. Leave out the languages"
    refused(pull("me/mine", "--target-language", "de", "-o", tmp_path / "x"), message, tmp_path / "none")


@pytest.mark.full
def test_a_full_disk_leaves_no_model(pull, server, home):
    limit = "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (9000, 9000)); import signal; "
    limit += "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); from docmt.cli.app import main; sys.exit(main())"
    environment = {"HF_ENDPOINT": server.endpoint, "HF_HOME": str(home / "cache"), "HF_HUB_DISABLE_XET": "1"}
    outcome = run_forked(["-c", limit, "pull", ID], env={**os.environ, **environment})
    refused(outcome, "cannot write .*: File too large", home)


@pytest.mark.parametrize(
    ("name", "pair"),
    [
        ("opus-mt-en-de", ("en", "de")),
        ("opus-mt-tc-big-en-fr", ("en", "fr")),
        ("opus-mt-en-ROMANCE", ("", "")),
        ("opus-mt-tc-big-en-ROMANCE", ("", "")),
        ("opus-mt-tc-bible-big-deu_eng_fra-gmw", ("", "")),
        ("bert-base-multilingual-cased", ("", "")),
        ("translate-en-uk-v1.0-hplt_opus", ("en", "uk")),
        ("mt-hitz-en-eu", ("en", "eu")),
        ("nllb-200-distilled-600M", ("", "")),
        ("m2m100_418M", ("", "")),
        ("mbart-large-50-many-to-many-mmt", ("", "")),
    ],
)
def test_a_pair_in_a_name(name, pair):
    assert find_pair(name) == pair
