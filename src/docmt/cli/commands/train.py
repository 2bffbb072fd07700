"""docmt prepare and docmt train: from documents to a store of token ids, and from a store to a model."""

from __future__ import annotations

import logging
import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from docmt import data, training
from docmt.cli.model_arguments import resolve_model_names
from docmt.cli.options import Parser
from docmt.core.errors import INTERRUPTED, USAGE_ERROR, DocmtError, printable
from docmt.core.settings import option
from docmt.data import PrepareConfig
from docmt.data.preparation import LEARNED_KINDS
from docmt.training import TrainConfig

_log = logging.getLogger(__name__)


class PrepareOptions(PrepareConfig):
    """docmt prepare RECIPE.yaml, or docmt prepare --store DIR --train SOURCE TARGET ...

    Learn a tokenizer from parallel documents, and write them as a store of token ids for docmt train. JSONL has one
    object a line, {"id": "a", "source": ["One.", "Two."], "target": ["Eins.", "Zwei."]}, or {"document": "a", "source":
    "One.", "target": "Eins."} for each sentence.

    usage:
        --store DIRECTORY --train SOURCE TARGET ... [options]
        RECIPE.yaml [options]

    examples:
        docmt prepare --store stores/mine --train train.en train.de --dev dev.en dev.de --source-language en
            --target-language de

    common:
        store train dev test source_language target_language tokenizer source_tokenizer vocabulary_size overwrite
    """


def run_prepare(options: PrepareOptions) -> int:
    """Write a prepared store and print its statistics."""
    names = ["source_tokenizer", *(["tokenizer"] if options.tokenizer not in LEARNED_KINDS else [])]
    options = resolve_model_names(options, *names)
    store = data.prepare(options)
    print(printable(data.format_statistics(store.statistics), allowed="\n"))
    tokenizers = (options.source_tokenizer, options.ready_tokenizer)
    pretrained = next((path for path in tokenizers if _is_model(path)), None)
    model = "sentence --preset base"
    if options.drafts or pretrained is not None:
        start = "MODEL" if pretrained is None else shlex.quote(str(pretrained))
        model = f"{'multihop' if options.drafts else 'group'} --initialize-from {start}"
    _log.info(f"try: docmt train --store {shlex.quote(str(store.directory))} --run RUN --system {model}")
    if options.drafts and pretrained is None:
        _log.info("MODEL: the sentence model that wrote the drafts, which needs the tokenizer of this store")
    return 0


def _is_model(path: Path | None) -> bool:
    """Return whether the directory of a tokenizer has a model that training can start from."""
    return path is not None and any((folder / "model.safetensors").is_file() for folder in (path, path / "model"))


@dataclass(frozen=True)
class TrainOptions:
    """docmt train RECIPE.yaml [--FIELD VALUE ...], and docmt train --resume RUN

    Train a model on a prepared store (see docmt prepare). After an interruption, --resume continues from the last
    checkpoint.

    usage:
        RECIPE.yaml [options]
        --store STORE --run DIRECTORY [options]
        --resume RUN [--max-steps N ...]

    examples:
        docmt train --store stores/mine --run runs/group --system group --preset base --patience 10
        docmt train --store stores/mine --run runs/context --system context --initialize-from runs/sentence --freeze
            pretrained
        docmt train --resume runs/group

    common:
        store run resume model.system model.preset batches.batch_tokens optimizer.learning_rate stop.max_steps
            stop.patience initialize_from
    """

    resume: Path | None = option(None, metavar="RUN")
    """run directory to resume, with its recipe; only stop limits and a few settings may change"""


def make_train_parser() -> Parser[TrainConfig]:
    """Return the parser of docmt train: the settings of a run, and what is none."""
    parser = Parser("train", TrainConfig, TrainOptions.__doc__, title="the run")
    parser.add_settings(TrainOptions, "", "options")
    return parser


def run_train(arguments: Sequence[str]) -> int:
    """Train a model in a run directory, or resume an interrupted run."""
    # Before PyTorch is imported: it adds its own calls to the one sentence on a lost process.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    parser, recipes = make_train_parser(), []
    explicit, _ = parser.read(arguments)
    if (run := explicit.get("resume")) is not None:
        recipes = [_find_stored_recipe(Path(run), explicit.get("run"))]
        arguments = [*arguments, *([] if "run" in explicit else [f"--run={run}"])]
    config = parser.parse(arguments, recipes)
    config = resolve_model_names(config, "initialize_from", "initialize_reverse_from", "drafter")
    try:
        result = training.train(config, resume="resume" in explicit, explicit=explicit)
    except training.LostProcessError as error:
        _log.error(str(error))
        os._exit(USAGE_ERROR)  # exit without cleanup, see LostProcessError
    if result.interrupted:
        if result.is_main_process:
            run = shlex.quote(str(result.run))
            _log.warning(f"to continue: docmt train --resume {run}")
            _log.warning(f"the current model can be used: docmt translate {run} FILE")
        return INTERRUPTED
    if result.is_main_process:
        print(printable(f"{result.reason}; the model is in {result.model}"))
    return 0


def _find_stored_recipe(run: Path, other: str | None) -> Path:
    """Return the recipe of a run to resume. other: value of --run, if set.

    Raises DocmtError if there is no recipe, and if --run is another directory.
    """
    recipe = run / "recipe.yaml"
    if other is not None and Path(other) != run:
        raise DocmtError(f"--resume is {run} but --run is {other}: to resume a run, use --resume only")
    from docmt.training.run_directory import read_recipe

    read_recipe(recipe, run)
    return recipe
