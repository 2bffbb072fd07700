"""Settings for the whole suite."""

import gc
import os
import shutil
import sys
import zlib
from collections import defaultdict

import filelock
import hypothesis
import pytest

os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # as docmt train does, for what is forked from the tests
import torch

# To compile all tests takes each worker ten seconds: what is compiled is kept, whatever the environment says.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# Of what is imported and collected, nothing is ever garbage: no collection looks at it.
gc.disable()

# Models of the developer must not take part: a data home that does not exist.
os.environ["DOCMT_HOME"] = f"{os.devnull}/docmt"
# The tensors of tests are small: a second thread costs more than it brings, and starves other processes.
torch.set_num_threads(1)
# Only a crash of the whole machine, which no test makes, loses what is written and not synced: a kill does not.
os.fsync = lambda descriptor: None
# A busy machine is no fault of the code, and each run tries the same examples.
# `pytest --hypothesis-profile random` searches for new ones.
hypothesis.settings.register_profile("random", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.register_profile("fixed", hypothesis.settings.get_profile("random"), derandomize=True)
hypothesis.settings.load_profile("fixed")


LONGEST = ("training", "test_benchmarks.py", "test_soak.py")
"""Folders and files that begin first: a long test at the end would leave the other workers idle."""
EVERY = 5
"""Of the cases marked `rotated` one in so many is run: no divisor of products with two, three or four other values."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Let the quick tier run the first and the last case of a table, unless the test itself says which ones.

    Of the tests that drive a browser it runs those marked as `browser(quick=True)`.
    """
    tables = defaultdict(list)
    for item in items:
        if (browser := item.get_closest_marker("browser")) and not browser.kwargs.get("quick"):
            item.add_marker(pytest.mark.full)
        if item.path.parent.name != "tests":  # the tests of pages and imports are quick
            tables[item.path, getattr(item, "originalname", item.name)].append(item)
    for cases in tables.values():
        if not any(case.get_closest_marker("full") for case in cases):
            for case in cases[1:-1]:
                case.add_marker(pytest.mark.full)
    if not config.getoption("every_system") and not any("::" in argument for argument in config.args):
        left_out = {id(case) for cases in tables.values() for case in left_out_of(cases)}
        config.hook.pytest_deselected(items=[item for item in items if id(item) in left_out])
        items[:] = [item for item in items if id(item) not in left_out]
    items.sort(key=lambda item: not {item.path.name, item.path.parent.name}.intersection(LONGEST))


def pytest_collection_finish():
    """Begin to look for garbage."""
    gc.freeze()
    gc.enable()


def left_out_of(cases):
    """Return all but every fifth of the rotated cases of a test, which begin elsewhere for each test."""
    rotated = [case for case in cases if case.get_closest_marker("rotated")]
    first = zlib.crc32(cases[0].nodeid.partition("[")[0].encode())
    return [case for number, case in enumerate(rotated, first) if number % EVERY]


def pytest_addoption(parser):
    """`pytest tests/fuzz --fuzz 20` tries twenty times as much, `--every-system` each property with all systems."""
    parser.addoption("--every-system", action="store_true", help="run all cases that are rotated")
    parser.addoption("--fuzz", type=int, default=1, metavar="TIMES", help="cases of tests/fuzz, as a multiple")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport():
    """Escape lone surrogates (of file names that are not UTF-8) in captured output, which xdist cannot send."""
    report = yield
    report.sections = [(name, text.encode("utf-8", "backslashreplace").decode()) for name, text in report.sections]
    return report


@pytest.fixture(scope="session")
def copy_of_one(tmp_path_factory):
    """Return a function that makes a directory once for all workers, and gives each worker a copy of it."""
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent

    def copy(path, make):
        original = shared / "made once" / path.name
        with filelock.FileLock(shared / f"{path.name}.lock"):
            if not original.exists():
                make(shared / "unfinished" / path.name)
                original.parent.mkdir(exist_ok=True)
                (shared / "unfinished" / path.name).rename(original)
        shutil.copytree(original, path)

    return copy


@pytest.fixture
def home(tmp_path, monkeypatch):
    """An empty data home of pulled models."""
    monkeypatch.setenv("DOCMT_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def package(tmp_path, monkeypatch):
    """An empty folder in the place of the models in the package."""
    from docmt.checkpoint import model_names

    monkeypatch.setattr(model_names, "PACKAGE_MODELS", tmp_path / "package")
    return tmp_path / "package"


@pytest.fixture(autouse=True)
def loud():
    """Later tests must not be quiet because a command was."""
    from docmt.core.logging import set_quiet

    yield
    set_quiet(False)
