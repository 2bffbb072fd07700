"""The house rules that no linter knows: imports go downwards only, and files stay small and free of their workplace."""

import ast
import functools
import graphlib
import re
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "docmt"
FILES = sorted(SOURCE.rglob("*.py"))
LONGEST_FILE = 600

# A module imports from rooms of a lower rank or from its own room. Rooms of equal rank do not know each other.
RANKS = {
    "core": 0,
    "documents": 1,
    "formats": 2,
    "text": 2,
    "checking": 3,
    "terms": 3,
    "model": 3,
    "data": 4,
    "checkpoint": 4,
    "decoding": 6,
    "engines": 6.5,  # have the methods of a translator
    "analysis": 7,  # reads the attention of translations
    "evaluation": 7,  # reads the results of decoding
    "training": 8,  # validation decodes, evaluates and measures entropy
    "experiments": 9,
    "__init__": 10,
    "serve": 11,
    "bulk": 11,
    "cli": 12,
    "__main__": 13,
}
FORBIDDEN = {
    "core": {"torch", "lightning", "lightning_fabric"},
    "checking": {"torch", "lightning", "lightning_fabric"},
    "documents": {"torch", "lightning", "lightning_fabric"},
    "formats": {"torch", "lightning", "lightning_fabric"},
    "terms": {"torch", "lightning", "lightning_fabric"},
    "text": {"torch", "lightning", "lightning_fabric"},
    "model": {"json", "yaml", "pathlib", "tokenizers", "safetensors"},
}
# The model room may look down on nothing but this, whatever its rank allows.
DOCMT_ALLOWED = {"model": {"model", "core"}}

WORKPLACE = re.compile(r"/work/|shared/SPEC|(?<![\w.:/])/(?:home|root|Users|mnt|tmp|opt|usr|var|etc|data)/")


parse = functools.cache(ast.parse)


def room_of(module: str) -> str:
    """The room of a dotted module name: docmt.text.tokenizer -> text, docmt -> __init__."""
    return [*module.split("."), "__init__"][1]


def module_of(path: Path, source: Path = SOURCE) -> str:
    """The dotted name of a file under src/docmt; a package is named as its __init__ module."""
    return ".".join(["docmt", *path.relative_to(source).with_suffix("").parts])


def imports(code: str, module: str) -> list[tuple[int, str]]:
    """(line, absolute dotted name) of every import in the code, wherever it stands; `module` resolves relative ones.

    `from a import b` counts as a.b where a is docmt itself (b is a room or a name in docmt/__init__), else as a.
    """
    found = []
    for node in ast.walk(parse(code)):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = module.split(".")[: -node.level] if node.level else []
            origin = ".".join(base + ([node.module] if node.module else []))
            if origin == "docmt":
                rooms = [alias.name if alias.name in RANKS else "__init__" for alias in node.names]
                found += [(node.lineno, f"docmt.{room}") for room in rooms]
            else:
                found.append((node.lineno, origin))
    return found


def violations(code: str, module: str) -> list[str]:
    """What is wrong with the imports of a module, one sentence each, with the line."""
    room = room_of(module)
    if room not in RANKS:
        return [f"{module}: the room {room} has no rank; add it to RANKS in tests/test_import_layers.py"]
    wrong = []
    for line, name in imports(code, module):
        package = name.split(".")[0]
        if package in FORBIDDEN.get(room, ()):
            wrong.append(f"{module}:{line}: {room} must not import {package}")
        if package != "docmt":
            continue
        other = room_of(name)
        if other not in RANKS:
            wrong.append(f"{module}:{line}: the room {other} has no rank; add it to RANKS")
        elif other != room and RANKS[other] >= RANKS[room]:
            wrong.append(f"{module}:{line}: {room} must not import {other}, which is not below it")
        elif other not in DOCMT_ALLOWED.get(room, RANKS):
            wrong.append(f"{module}:{line}: {room} must not import {other}")
    return wrong


def test_imports_go_downwards_only():
    assert SOURCE / "core" / "errors.py" in FILES
    assert [wrong for path in FILES for wrong in violations(path.read_text(encoding="utf-8"), module_of(path))] == []


@pytest.mark.parametrize(
    ("module", "code", "message"),
    [
        ("docmt.documents.corpus_files", "from docmt import data", "must not import data"),
        ("docmt.documents.__init__", "from ..decoding import beam", "must not import decoding"),
        ("docmt.documents.corpus_files", "from docmt import __version__", "must not import __init__"),
        ("docmt.text.bpe", "def f():\n    import torch.nn as nn", "docmt.text.bpe:2: text must not import torch"),
        ("docmt.model.model_config", "from docmt.documents.corpus_files import x", "model must not import documents"),
        ("docmt.cli.app", "import docmt.parlour.chairs", "the room parlour has no rank; add it to RANKS"),
        ("docmt.documents.corpus_files", "from .document import Document\nfrom . import document", ""),
        ("docmt.training.validation", "import torch\nfrom docmt.analysis import measure_entropy", ""),
        ("docmt.cli.app", "from docmt import __version__, training", ""),
    ],
)
def test_the_checker_sees_imports_that_go_upwards(module, code, message):
    found = violations(code, module)
    assert len(found) == bool(message)
    assert message in "".join(found)


def import_graph(codes):
    """The modules of the package that each module imports, in functions and for type hints, too."""
    graph = {}
    for module, code in codes.items():
        graph[module] = targets = set()
        for node in ast.walk(parse(code)):
            if isinstance(node, ast.Import):
                targets.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                base = module.split(".")[: -node.level] if node.level else []
                origin = ".".join(base + ([node.module] if node.module else []))
                names = {f"{origin}.{alias.name}" for alias in node.names}
                targets.update(names & codes.keys() or {origin})
        targets &= codes.keys()
    return graph


def find_circle(graph):
    """A circle of modules, from one back to it; empty if there is none."""
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return error.args[1]
    return []


def test_no_files_import_each_other_in_a_circle():
    modules = {module_of(path).removesuffix(".__init__"): path for path in FILES}
    assert find_circle(import_graph({name: path.read_text(encoding="utf-8") for name, path in modules.items()})) == []


def test_the_checker_sees_circles():
    codes = {"p.a": "if x:\n    from p.b import B", "p.b": "def f():\n    from . import c", "p.c": "import p.a"}
    assert sorted(set(find_circle(import_graph(codes)))) == ["p.a", "p.b", "p.c"]
    assert find_circle(import_graph(codes | {"p.c": "import ast"})) == []


def test_files_are_short_and_name_no_machine():
    named = []
    for path in FILES:
        lines = path.read_text(encoding="utf-8").splitlines()
        assert len(lines) <= LONGEST_FILE, f"{path} has {len(lines)} lines; split it by concept"
        named += [f"{path}:{number}: {line.strip()}" for number, line in enumerate(lines, 1) if WORKPLACE.search(line)]
    assert named == []
    assert all(map(WORKPLACE.search, ['"/work/main"', "see ../shared/SPEC.md", 'Path("/home/me/x")', "in /tmp/x"]))
    assert not any(
        map(WORKPLACE.search, ["a/data/b", "https://example.org/usr/x", "source/target", "./tmp/x", "n / d"])
    )


SYSTEMS = SOURCE / "model" / "systems"
SYSTEM_FILES = sorted(SYSTEMS.glob("*.py"))
LONGEST_SYSTEM = 140
LONGEST_REPETITION = 5


def system_names():
    """Names that systems have in settings, and names of their classes."""
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in SYSTEM_FILES]
    classes = {node.name for tree in trees for node in tree.body if isinstance(node, ast.ClassDef)}
    return classes - {"ContextSpec"}


def questions_about_systems(code, module, classes):
    """Places where code outside of the systems asks which system a model is, instead of asking the system."""
    found = []
    tree = parse(code)
    imported = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module]
    # What comes from another room is something else of the same name: a document of text.
    classes = classes - {a.name for node in imported if room_of(node.module) != "model" for a in node.names}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr == "framed":
            found.append(f"{module}:{node.lineno}: mentions .framed")
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            names_it = any(isinstance(side, ast.Attribute) and side.attr == "system" for side in sides)
            parts = [part for side in sides for part in ast.walk(side)]
            if names_it and any(isinstance(part, ast.Constant) and isinstance(part.value, str) for part in parts):
                found.append(f"{module}:{node.lineno}: compares .system with a string")
        if isinstance(node, ast.Match) and isinstance(node.subject, ast.Attribute) and node.subject.attr == "system":
            found.append(f"{module}:{node.lineno}: matches .system")
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in ("isinstance", "issubclass")
        ):
            kinds = {
                part.attr if isinstance(part, ast.Attribute) else getattr(part, "id", "")
                for part in ast.walk(node.args[1])
            }
            if asked := sorted((kinds & classes) - {"System"}):
                found.append(f"{module}:{node.lineno}: asks whether something is a {asked[0]}")
    return found


def test_nothing_but_the_systems_asks_which_system_it_is():
    names = system_names()
    others = [path for path in FILES if path.parent != SYSTEMS]
    questions = [questions_about_systems(path.read_text(encoding="utf-8"), module_of(path), names) for path in others]
    assert [question for each in questions for question in each] == []
    assert {"System", "WholeDocument", "Group", "Concat", "Context", "MultiHop", "Hierarchical"} <= names


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ('if model.config.system == "group":\n    pass', "m:1: compares .system with a string"),
        ('x = 1\ny = "document" != config.system', "m:2: compares .system with a string"),
        ('x = config.system in ("group", "document")', "m:1: compares .system with a string"),
        ('match config.system:\n    case "group":\n        pass', "m:1: matches .system"),
        ("if config.framed:\n    pass", "m:1: mentions .framed"),
        ("isinstance(model.system, Group)", "m:1: asks whether something is a Group"),
        ("isinstance(x, (int, systems.Context))", "m:1: asks whether something is a Context"),
        (
            "from docmt.model.systems import WholeDocument\nisinstance(x, WholeDocument)",
            "m:2: asks whether something is a WholeDocument",
        ),
    ],
)
def test_the_checker_sees_questions_about_systems(code, message):
    assert questions_about_systems(code, "m", system_names()) == [message]


@pytest.mark.parametrize(
    "code",
    [
        'x = name == "group"',
        'x = model.system.rules == "frame"',
        "isinstance(x, System)",
        "from docmt.documents import Document\nisinstance(x, Document)",
    ],
)
def test_the_checker_allows_other_questions(code):
    assert questions_about_systems(code, "m", system_names()) == []


@pytest.mark.parametrize("path", SYSTEM_FILES, ids=module_of)
def test_a_system_is_short(path):
    lines = path.read_text(encoding="utf-8").splitlines()
    assert len(lines) <= LONGEST_SYSTEM, f"{path} has {len(lines)} lines; what it shares belongs into the builder"


def runs_of_lines(code):
    """All runs of more than `LONGEST_REPETITION` lines that follow each other, blank ones and imports left out."""
    lines = [line.strip() for line in code.splitlines() if line.strip() and not line.strip().startswith("from ")]
    size = LONGEST_REPETITION + 1
    return {tuple(lines[i : i + size]) for i in range(len(lines) - size + 1)}


def test_systems_do_not_repeat_each_other():
    runs = {path.name: runs_of_lines(path.read_text(encoding="utf-8")) for path in SYSTEM_FILES}
    for name, own in runs.items():
        for other, theirs in runs.items():
            assert name >= other or not own & theirs, f"{name} and {other} share {next(iter(own & theirs))}"


def test_the_checker_sees_repetitions():
    first, second = "a\nb\n\nc\nd\ne\nf\ng", "x\nb\nc\nd\n\ne\nf\ng\ny"
    assert runs_of_lines(first) & runs_of_lines(second) == {tuple("bcdefg")}
    assert not runs_of_lines("a\nb\nc\nd\ne") | runs_of_lines("")
