"""docmt candidates MODEL --store STORE"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from docmt.cli.parsing import Parser, make_parser, parse
from docmt.core.settings import check_number
from docmt.data import PreparedStore

EXAMPLES = ("docmt candidates runs/group --store stores/mine",)
_LEAST_SHOWN = 8  # candidates for each source token, in the table of what they cover


def parser() -> Parser:
    """The options of the command."""
    made = make_parser(
        "candidates",
        "Counts which target tokens go with each source token in the training split of a prepared store, and writes "
        "these candidates into the model directory. With --search.candidates N a translation looks at N of them for "
        "each source token, instead of the whole vocabulary, which is less exact, and faster where that is large. "
        "Prints how many of the tokens of the dev split are candidates.",
        "MODEL --store STORE [options]",
        examples=EXAMPLES,
        common=("store", "per_token", "overwrite"),
    )
    made.add_argument("model", type=Path, metavar="MODEL", help="model or run directory")
    made.add_argument(
        "--store", type=Path, required=True, metavar="STORE", help="prepared store that it was trained on"
    )
    made.add_argument("--overwrite", type=bool, default=False, help="replace the candidates if there are some already")
    made.add_argument("--per_token", type=int, default=64, help="most candidates for each source token")
    made.add_argument("--frequent", type=int, default=256, help="most frequent target tokens, always candidates")
    made.add_argument(
        "--sentences", type=int, default=1_000_000, help="pairs of sentences to count at most, evenly spread"
    )
    return made


def run(arguments: Sequence[str]) -> int:
    """Writes candidates, and prints what they cover."""
    options = parse(parser(), arguments)
    check_number("--per_token", options.per_token, (1, 10_000))
    check_number("--frequent", options.frequent, (1, 100_000))
    check_number("--sentences", options.sentences, (1, 10**9))
    store = PreparedStore.open(options.store)
    # torch takes a while to load
    from docmt.checkpoint.model_directory import load_model_config
    from docmt.decoding.candidates import candidates_file, coverage, make_candidates, rows_of

    table = make_candidates(
        store,
        options.model,
        per_token=options.per_token,
        frequent=options.frequent,
        sentences=options.sentences,
        overwrite=options.overwrite,
    )
    print(f"{candidates_file(options.model)} has up to {options.per_token} candidates for each source token")
    if "dev" not in store.splits:
        return 0
    split, model = store.split("dev"), load_model_config(options.model)
    rows, row = rows_of(split, model), "a sentence" if model.chosen.order == "sentences" else "an instance"
    print(f"--search.candidates  candidates of {row} (of {table.size:,})  tokens of dev among them")
    for count in dict.fromkeys([*_shown(options.per_token), options.per_token]):
        found = coverage(split, rows, table, count)
        print(f"{count:19}  {found.candidates:27,.0f}  {found.tokens:24.2%}")
    return 0


def _shown(most: int) -> list[int]:
    """Numbers of candidates below the most, each twice the one before."""
    return [count for count in (_LEAST_SHOWN << n for n in range(12)) if count < most]
