"""What `pip install docmt` gives: recipes, experiments, test sets and word lists work without a clone."""

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from docmt.experiments import list_experiments

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The wheel and the source archive, as hatchling builds them."""
    reason = "hatchling, which builds the package, is not installed"
    wheels, archives = (pytest.importorskip(f"hatchling.builders.{kind}", reason=reason) for kind in ("wheel", "sdist"))
    folder = str(tmp_path_factory.mktemp("built"))
    builders = (wheels.WheelBuilder(str(ROOT)), archives.SdistBuilder(str(ROOT)))
    return [Path(next(builder.build(directory=folder, versions=["standard"]))) for builder in builders]


def test_the_wheel_has_what_commands_read(built, tmp_path):
    with zipfile.ZipFile(built[0]) as wheel:
        names = set(wheel.namelist())
        wheel.extractall(tmp_path / "site")
    recipes = {f"docmt/{path.relative_to(ROOT).as_posix()}" for path in ROOT.glob("recipes/**/*.yaml")}
    assert len(recipes) > 50 and recipes <= names
    assert "docmt/evaluation/test_sets/phenomena.en-de.jsonl.gz" in names
    assert {"docmt/checking/languages.yaml", "docmt/cli/demo.docx"} <= names
    page = {path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src/docmt/serve/page").iterdir()}
    assert len(page) > 5 and page <= names
    assert not [name for name in names if name.startswith(("docs/", "tests/", ".ci/"))]
    (tmp_path / "empty").mkdir()
    program = """
import sys, docmt
from docmt.cli.app import main
from docmt.evaluation import read_suite
assert docmt.__file__.startswith(sys.argv[1]), docmt.__file__
assert len(read_suite("phenomena").items) == 288
sys.exit(main(["reproduce", "--list"]))
"""
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    command = [sys.executable, "-c", program, str(tmp_path / "site")]
    done = subprocess.run(command, env=environment, cwd=tmp_path / "empty", capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert {line.split()[0] for line in done.stdout.splitlines()} == set(list_experiments())


def test_the_source_archive_builds_the_wheel_and_is_small(built):
    with tarfile.open(built[1]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {
        "pyproject.toml",
        "README.md",
        "LICENSE",
        "src/docmt/__init__.py",
        "recipes/experiments/table2.yaml",
    } <= names
    assert not [name for name in names if name.startswith((".ci", "tests"))]
    models = sum(path.stat().st_size for path in (ROOT / "src/docmt/models").rglob("*") if path.is_file())
    assert built[1].stat().st_size < 2_000_000 + models <= 24_000_000  # two models, 12 and 10 MB


def test_models_of_the_package_are_in_wheel_and_source_archive(tmp_path):
    from hatchling.builders.sdist import SdistBuilder
    from hatchling.builders.wheel import WheelBuilder

    clone = tmp_path / "clone"
    for name in ("pyproject.toml", "README.md", "LICENSE", ".gitignore"):
        clone.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, clone / name)
    for name in ("src", "recipes"):
        shutil.copytree(ROOT / name, clone / name, ignore=shutil.ignore_patterns("__pycache__"))
    files = [clone / "src/docmt/models/xx-yy" / name for name in ("config.json", "model.safetensors", "README.md")]
    files[0].parent.mkdir(parents=True)
    for file in files:
        file.write_text("{}")
    wheel, archive = (
        next(builder(str(clone)).build(directory=str(tmp_path / "built"), versions=["standard"]))
        for builder in (WheelBuilder, SdistBuilder)
    )
    with zipfile.ZipFile(wheel) as opened:
        assert {f"docmt/models/xx-yy/{file.name}" for file in files} <= set(opened.namelist())
    with tarfile.open(archive) as opened:
        names = {name.partition("/")[2] for name in opened.getnames()}
    assert {f"src/docmt/models/xx-yy/{file.name}" for file in files} <= names


def test_an_editable_installation_reads_the_clone(built, tmp_path):
    """Recipes that are forced into the wheel once led hatchling to the wrong folder."""
    from hatchling.builders.wheel import WheelBuilder

    path = next(WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["editable"]))
    with zipfile.ZipFile(path) as wheel:
        wheel.extractall(tmp_path / "site")
        [link] = [name for name in wheel.namelist() if name.endswith(".pth")]
        assert wheel.read(link).decode().split() == [str(ROOT / "src")]
    program = """
import sys
sys.path[:0] = sys.argv[1:]
from docmt.experiments.experiment_files import recipes_folder
print(recipes_folder())
"""
    command = [sys.executable, "-c", program, str(tmp_path / "site"), str(ROOT / "src")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, f"{ROOT / 'recipes'}\n"), done.stderr
