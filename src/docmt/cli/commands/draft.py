"""docmt draft MODEL --store STORE"""

from __future__ import annotations

import logging
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from docmt.cli.parsing import SEARCH_TITLE, Parser, add_model_options, add_settings, make_parser, parse
from docmt.core.errors import INTERRUPTED, DocmtError
from docmt.core.settings import check_number
from docmt.data import PreparedStore
from docmt.data.parts import MOST_PARTS
from docmt.decoding import SearchConfig
from docmt.decoding.config import USUAL_DRAFT_BEAM

_log = logging.getLogger(__name__)

EXAMPLES = (
    "docmt draft runs/sentence --store stores/mine",
    "docmt draft runs/sentence --store stores/mine --jackknife 5",
)
COMMON = ("store", "jackknife", "search.beam", "search.batch_tokens", "device", "precision", "overwrite")


def parser() -> Parser:
    """The options of the command."""
    made = make_parser(
        "draft",
        "Translates the source side of a prepared store once, for systems that read first translations (drafts). The "
        "model goes along: models trained on the store carry a copy of it. A call that was interrupted goes on when "
        "it is given again.",
        "MODEL --store STORE [options]",
        examples=EXAMPLES,
        common=COMMON,
    )
    made.add_argument("model", type=Path, metavar="MODEL", help="model or run directory of a system that reads none")
    made.add_argument("--store", type=Path, required=True, metavar="STORE", help="prepared store to add the drafts to")
    made.add_argument("--overwrite", type=bool, default=False, help="replace the drafts if there are some already")
    made.add_argument(
        "--jackknife",
        type=int,
        default=0,
        help="train so many models, each without one part of the training documents, which it drafts; MODEL, a run "
        "directory whose recipe they have, drafts the other splits; 0: MODEL drafts all",
    )
    made.add_argument(
        "--runs",
        type=Path,
        metavar="DIRECTORY",
        help="where these models are trained (default: beside MODEL, in MODEL-jackknife); finished ones are used",
    )
    add_settings(made, SearchConfig, "search", SEARCH_TITLE, skip={"n_best"})
    made.set_defaults({"search.beam": USUAL_DRAFT_BEAM})
    add_model_options(made)
    return made


def run(arguments: Sequence[str]) -> int:
    """Adds drafts to a store."""
    options = parse(parser(), arguments)
    if options.jackknife:
        check_number("--jackknife", options.jackknife, (2, MOST_PARTS))
    elif options.runs is not None:
        raise DocmtError("--runs has no effect without --jackknife: leave it out")
    store = PreparedStore.open(options.store)
    from docmt.decoding.draft_store import check_fits, check_undrafted, draft_store  # torch takes a while to load

    check_undrafted(store, options.overwrite)
    check_fits(options.model, store, options.search)
    parts = _parts(options, store) if options.jackknife else []
    if parts is None:
        _log.warning("give the same command again to go on")
        return INTERRUPTED
    try:
        draft_store(
            store,
            options.model,
            options.search,
            parts=parts,
            device=options.device,
            precision=options.precision,
            overwrite=options.overwrite,
        )
    except KeyboardInterrupt:
        _log.warning("give the same command again to go on")
        raise
    sentences = sum(split.sentences for split in store.statistics.splits.values())
    print(f"{sentences:,} sentences of {', '.join(store.splits)} are drafted")
    recipe, start = options.model / "recipe.yaml", ["--initialize_from", str(options.model)]
    words = [*([str(recipe)] if recipe.exists() else []), "--store", str(options.store), "--run", "RUN"]
    # The recipe of the run has the sizes that a model must have to start from it.
    _log.info(f"try: docmt train {shlex.join([*words, '--system', 'multihop', *(start if recipe.exists() else [])])}")
    return 0


def _parts(options: Any, store: PreparedStore) -> list[Path] | None:
    """The models of the parts, trained where they are not yet; None if that was interrupted."""
    from docmt.training.jackknife import part_configs, train_parts

    device = options.device if options.device in ("cpu", "cuda") else None
    configs = part_configs(options.model, store, options.jackknife, options.runs, device)
    return [config.run for config in configs] if train_parts(configs, _log.info) else None
