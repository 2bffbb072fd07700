"""The cases of a fuzz test, counted for the summary, and a tiny model, store and run to do harm to."""

import random
import shutil
from collections import Counter

import pytest
from benchmarks.synthetic.synthetic_corpus import write_corpus
from commands import TINY, call
from harness import TEXT, Child, limits

KIND = "fuzz cases of "
SECONDS = 30
"""The most that a case may take; the usual one takes a tenth of a second."""
MEMORY = 4 * 2**30
"""Bytes that a case may take beyond what is taken before it."""


class Case(random.Random):
    """The random numbers of a case."""

    counts = True
    """False where nothing was tried in the end, such as a kill that came too late"""


@pytest.fixture
def cases(request, record_property):
    """`for chance in cases(10)`: ten cases (times --fuzz), each with random numbers of its own, timed and counted.

    The numbers of a case depend on the test and the number of the case alone, so that a failure comes back.
    """

    def draw(count, kind, seconds=SECONDS):
        counted = 0
        for number in range(count * request.config.getoption("--fuzz")):
            with limits(seconds, MEMORY):
                case = Case(f"{request.node.name} {kind} {number}")
                yield case
            counted += case.counts
        record_property(KIND + kind, counted)

    return draw


@pytest.fixture(autouse=True)
def no_children():
    """Processes of a test that has failed do not outlive it."""
    yield
    for child in list(Child.left):
        child.kill()


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter):
    """Says how many cases of which kind were tried, by all processes together."""
    counts, seconds = Counter(), 0.0
    for reports in terminalreporter.stats.values():
        for report in reports:
            own = [(name, count) for name, count in getattr(report, "user_properties", []) if name.startswith(KIND)]
            if own and report.when == "call":
                seconds += report.duration
                counts.update({name.removeprefix(KIND): count for name, count in own})
    if counts:
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in sorted(counts.items()))
        terminalreporter.write_line(f"fuzz: {counts.total():,} cases in {seconds:.0f} s: {kinds}")


@pytest.fixture(scope="session")
def corpus(tmp_path_factory):
    """A folder with a few documents in English and German."""
    folder = tmp_path_factory.mktemp("fuzz") / "corpus"
    write_corpus(folder, train=40, dev=4, test=4, seed=1)
    return folder


@pytest.fixture(scope="session")
def prepare(corpus):
    """The command that makes the store, without its place."""
    sides = [argument for name in ("train", "dev", "test") for argument in (f"--{name}", *sides_of(corpus, name))]
    return ["prepare", *sides, "--vocabulary-size=320", "--source-language=en", "--target-language=de"]


def sides_of(corpus, name):
    """The two files of a split."""
    return corpus / f"{name}.en", corpus / f"{name}.de"


@pytest.fixture(scope="session")
def store(corpus, prepare):
    """A prepared store."""
    path = corpus.parent / "store"
    outcome = call(*prepare, "--store", path)
    assert outcome.status == 0, outcome.err
    return path


@pytest.fixture(scope="session")
def train(store):
    """The command of a training of a second, without its place."""
    tiny = [argument for argument in TINY if not argument.startswith("--validation")]
    often = ["--validation.every=4", "--checkpoints.every=3", "--log-every=2", "--stop.max-steps=8"]
    return ["train", "--store", store, *tiny, *often, "--model.dropout=0"]


@pytest.fixture(scope="session")
def run(corpus, train):
    """A finished run."""
    path = corpus.parent / "run"
    outcome = call(*train, "--run", path)
    assert outcome.status == 0, outcome.err
    return path


@pytest.fixture
def source(tmp_path):
    """A text of a few documents."""
    path = tmp_path / "a.txt"
    path.write_text(TEXT * 20)
    return path


@pytest.fixture
def copy(tmp_path):
    """A function that gives a copy of a directory, made anew for every call, to do harm to."""

    def copied(path):
        place = tmp_path / f"copy of {path.name}"
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(path, place)
        return place

    return copied


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport():
    """Names that are not UTF-8 stand in what is captured, and workers can send nothing but UTF-8."""
    report = yield
    report.sections = [(name, text.encode("utf-8", "backslashreplace").decode()) for name, text in report.sections]
    return report
