"""docmt inspect MODEL, docmt inspect MODEL SOURCE [TARGET], and docmt inspect --curves RUN RUN ..."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from docmt.cli.corpora import check_outputs
from docmt.cli.parsing import SEARCH_TITLE, Parser, add_model_options, add_settings, changed, make_parser, parse
from docmt.cli.results import beside, tell_all
from docmt.core.errors import DocmtError, printable
from docmt.core.settings import check_number
from docmt.decoding import SearchConfig

USAGE = """MODEL [options]
MODEL SOURCE [TARGET] [options]
--curves RUN RUN ... [--figure FILE]"""
EXAMPLES = (
    "docmt inspect MODEL",
    "docmt inspect MODEL test.en test.de",
    "docmt inspect MODEL test.en test.de --document 3 --sentence 2 --figure looks.png",
    "docmt inspect --curves runs/group runs/concat --figure curves.png",
)


def parser() -> Parser:
    """The options of the command."""
    made = make_parser(
        "inspect",
        "Looks into a model. Of a model alone: what it is and how it was trained. With text: over how many tokens its "
        "attentions spread, by layer and head, how far back they look, and how far its gates let context in; with "
        "--document or --figure, of one document which sentences each sentence looks at. With --curves: how trainings "
        "went, side by side.",
        USAGE,
        examples=EXAMPLES,
        common=("document", "sentence", "figure", "json", "curves", "search.beam", "device"),
    )
    made.add_argument("model", type=str, nargs="?", metavar="MODEL", help="model or run directory")
    made.add_argument(
        "source",
        type=str,
        nargs="?",
        metavar="SOURCE",
        help="source sentences: one a line, an empty line between documents, or the `source` of JSONL",
    )
    made.add_argument(
        "target",
        type=str,
        nargs="?",
        metavar="TARGET",
        help="their translations in the same form, which the decoder reads; without it, its own (JSONL with both "
        "sides is named twice)",
    )
    made.add_argument("--document", type=str, metavar="ID", help="look at this document alone: its number, or its id")
    made.add_argument(
        "--figure",
        type=Path,
        metavar="FILE",
        help="picture (.png, .svg or .pdf) of one document, the first if --document names none, or of --curves; the "
        "numbers go to a file of the same name that ends in .json",
    )
    made.add_argument("--json", type=str, metavar="FILE", help="where all numbers go as JSON (- for only that)")
    made.add_argument(
        "--sentence",
        type=int,
        metavar="N",
        help="also what each token of this sentence looks at, in the picture (--figure) or the numbers (--document "
        "with --json)",
    )
    made.add_argument("--layer", type=int, metavar="N", help="in the picture this layer alone, from 1, not their mean")
    made.add_argument("--head", type=int, metavar="N", help="in the picture this head alone, from 1, not their mean")
    made.add_argument(
        "--relative",
        type=bool,
        default=False,
        help="in the picture weights beside even attention, which looks more at longer sentences: log2 of their ratio",
    )
    made.add_argument(
        "--curves", type=Path, nargs="+", default=[], metavar="RUN", help="run directories, or their metrics.jsonl"
    )
    add_settings(made, SearchConfig, "search", f"{SEARCH_TITLE}, without TARGET", skip={"n_best"})
    add_model_options(made)
    return made


def run(arguments: Sequence[str]) -> int:
    """Says what a model is, what it looks at, or how trainings went."""
    options = parse(parser(), arguments)
    _check(options)
    if options.curves:
        return _compare_runs(options)
    if options.source is None:
        return _describe(options)
    from docmt.cli.looking import look_into  # torch takes a while to load

    return look_into(options)


def _check(options: Any) -> None:
    """Raises DocmtError for options that do not go together and for outputs that cannot be written."""
    text = ("document", "sentence", "layer", "head")
    if options.curves and options.model:
        raise DocmtError("--curves and MODEL are both given: look at trainings, or at a model")
    if not options.curves and not options.model:
        raise DocmtError("MODEL is missing; name a model directory, or run directories with --curves")
    unused = [name for name in text if getattr(options, name) is not None] + ["relative"] * options.relative
    if not options.source:
        unused += ["figure"] if options.figure and not options.curves else []
        if unused:
            raise DocmtError(f"--{unused[0]} needs text to look at: docmt inspect MODEL SOURCE [TARGET]")
    for name in ("sentence", "layer", "head"):
        if getattr(options, name) is not None:
            check_number(f"--{name}", getattr(options, name), (1, 1_000_000))
            if options.figure is None and not (name == "sentence" and options.document and options.json):
                numbers = ", or --document with --json FILE" if name == "sentence" else ""
                raise DocmtError(f"--{name} is for the picture: add --figure FILE{numbers}, or leave it out")
    if options.relative and options.figure is None:
        raise DocmtError("--relative is for the picture: add --figure FILE, or leave it out")
    _check_unread(options)
    check_outputs(options.json)
    if options.figure is not None:
        from docmt.analysis.figures import format_of

        format_of(options.figure)
        check_outputs(str(beside(options.figure)))


def _check_unread(options: Any) -> None:
    """Raises DocmtError for options of computing where nothing is computed, and of a search where there is none."""
    places = ["device"] * (options.device != "auto") + ["precision"] * (options.precision != "float32")
    if not options.source and places:
        raise DocmtError(f"--{places[0]} has no meaning without text to look at, as nothing is computed: leave it out")
    searched = changed(options.search, SearchConfig(), "search")
    if options.target:  # which is read in passes of so many tokens, its drafts too
        searched = [name for name in searched if name != "search.batch_tokens"]
    if searched and (options.target or not options.source):
        why = "with TARGET, which is read and not translated" if options.target else "without text to translate"
        raise DocmtError(f"--{searched[0]} has no meaning {why}: leave it out")


def _describe(options: Any) -> int:
    """What a model is."""
    from docmt.analysis.model_facts import ModelFacts

    facts = ModelFacts.of(options.model)
    tell_all(options, facts.format(), facts.to_json())
    return 0


def _compare_runs(options: Any) -> int:
    """How several trainings went."""
    from docmt.analysis.figures import draw_curves, read_curves
    from docmt.analysis.model_facts import METRICS, best_of

    places = {path: path / METRICS if path.is_dir() else path for path in options.curves}
    short = [path.parent.name if path.name == METRICS else path.name for path in places]
    clear = len(set(short)) == len(short) and all(short)
    runs = dict(zip(short if clear else map(str, places), places.values(), strict=True))
    found = {name: read_curves(path) for name, path in runs.items()}
    if options.figure:
        draw_curves(runs, options.figure)
    width = max(map(len, found))
    lines = []
    for name, curves in found.items():
        facts = ", ".join(f"{key.replace('_', ' ')} {value:,.5g}" for key, value in best_of(curves).items())
        lines.append(f"{name:<{width}}  {facts or 'nothing yet'}")
    # A name that is no UTF-8 stands escaped in the file, as it does in the table and in the picture.
    numbers = {printable(name): {key: vars(curve) for key, curve in own.items()} for name, own in found.items()}
    tell_all(options, "\n".join(lines), {"runs": numbers})
    return 0
