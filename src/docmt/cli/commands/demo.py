"""docmt demo

Train a sentence model and a G-Transformer on a synthetic corpus, and compare their translations. With --quick,
translate a short text at once with the English-French models of the package.
"""

from __future__ import annotations

import json
import multiprocessing
import shutil
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rich.console import Console
from rich.table import Table
from rich.text import Text

from docmt import data, decoding, evaluation, training
from docmt.cli.app import keep_freed_memory
from docmt.cli.options import Parser
from docmt.core.errors import DocmtError
from docmt.core.files import make_directory, read_json, write_text
from docmt.core.progress import plain_progress, progress_prefix
from docmt.core.settings import MANY, check_fields, field_range, flatten, nest, ranged, read_yaml
from docmt.decoding import SearchConfig
from docmt.documents import Document
from docmt.experiments.experiment_files import recipes_folder
from docmt.synthetic import SyntheticDocument, read_pronouns, score_pronouns, write_corpus
from docmt.training import TrainConfig

if TYPE_CHECKING:
    from docmt.decoding import Translation

SYSTEMS: tuple[Literal["sentence", "group"], ...] = ("sentence", "group")
RESULTS = "results.json"
QUICK_MODEL = "en-fr"
QUICK_BASELINE = "en-fr-sentence"
QUICK_TEXT = """\
I have read the proposal. It is very good, and I hope that it will be adopted.
We discussed your questions yesterday. They are important. They will be on the agenda tomorrow.
"""


@dataclass(frozen=True)
class DemoConfig:
    """Size of the demonstration. The defaults take about four minutes on two cores."""

    output: Path = Path("docmt-demo")
    """new directory for corpus, models and results; also continues an interrupted demo"""
    quick: bool = False
    """translate a short text with the models in the package, in seconds, and train nothing"""
    documents: int = ranged(8000, 1, 1_000_000)
    """number of synthetic training documents"""
    steps: int = ranged(800, 1, MANY)
    """updates of each model"""
    seed: int = ranged(1, *field_range(TrainConfig, "seed"))
    """random seed of the corpus and the training"""

    def __post_init__(self) -> None:
        check_fields(self, "")


def parser() -> Parser[DemoConfig]:
    """Return the parser of the command."""
    return Parser("demo", DemoConfig, __doc__, title="the demonstration")


def run(arguments: Sequence[str]) -> int:
    """Write the corpus, train both models, translate test documents, and show the difference."""
    config = parser().parse(arguments)
    if config.quick:
        return _translate_quickly(Console())
    _recipe(config, SYSTEMS[0])  # raises for invalid settings before anything is written
    started = time.monotonic()
    console = Console()
    _start_or_resume(config, console)
    try:
        _make_models(config, console)
        _compare(config, console)
    except KeyboardInterrupt:
        _say(console, "interrupted; run the same command again to continue")
        raise
    _say(console, f"{time.monotonic() - started:.0f} seconds; models and {RESULTS} are in {config.output}")
    _say(console, f"try: docmt translate {config.output / 'group'} YOUR_FILE.txt")
    return 0


def _translate_quickly(console: Console) -> int:
    """Translate a short text with the model of the package and show both sides.

    Raises DocmtError if there is no such model.
    """
    from docmt.checkpoint.model_names import (  # imported here because torch loads slowly
        find_named_model,
        find_package_model,
    )

    started = time.monotonic()
    if (path := find_package_model(QUICK_MODEL) or find_named_model(QUICK_MODEL)) is None:
        raise DocmtError(
            f"this docmt has no model {QUICK_MODEL} in its package: get one with `docmt pull "
            f"Helsinki-NLP/opus-mt-{QUICK_MODEL}`, or leave out --quick to train two models in minutes"
        )
    columns = {f"French, by {path.name}": path}
    if (baseline := find_package_model(QUICK_BASELINE)) is not None:
        columns = {"French, each sentence alone": baseline} | columns
    document = Document.from_text(QUICK_TEXT)
    translations = [decoding.Translator(model).translate(document) for model in columns.values()]
    table = Table("English", *columns, show_lines=True)
    for sentences in zip(*(translation.sentences for translation in translations), strict=True):
        table.add_row(Text(sentences[0].source), *(Text(sentence.target) for sentence in sentences))
    console.print(table)
    _say(console, f"{time.monotonic() - started:.0f} seconds")
    _say(console, f"try: docmt translate {QUICK_MODEL} YOUR_FILE.docx -o TRANSLATION.docx")
    return 0


def _compare(config: DemoConfig, console: Console) -> None:
    """Translate test documents with both models and show the results."""
    results: dict[str, dict[str, float]] = {}
    translations: dict[str, list[Translation]] = {}
    tests = read_pronouns(config.output / "corpus" / "test.pronouns.jsonl")
    for system in SYSTEMS:
        translator = decoding.Translator(config.output / system, search=SearchConfig(beam=4))
        sources = [Document.from_sentences(test.document.source, id=test.document.id) for test in tests]
        translations[system] = translator.translate_all(sources)
        results[system] = _scores(tests, translations[system])
    _show_document(console, tests, translations)
    _show_table(console, results, f"{len(tests)} unseen documents")
    write_text(config.output / RESULTS, json.dumps(results, indent=2) + "\n")


def _start_or_resume(config: DemoConfig, console: Console) -> None:
    """Record the size of the demonstration. Raises DocmtError for a finished or different one in the directory."""
    record = config.output / "demo.json"
    size = {"documents": config.documents, "steps": config.steps, "seed": config.seed}
    if config.output.exists() and any(config.output.iterdir()):
        if not record.is_file() or (config.output / RESULTS).exists():
            raise DocmtError(f"{config.output} already exists: remove it, or choose another --output")
        if (stored := read_json(record)) != size:
            stored_size = ", ".join(f"{name} {value}" for name, value in stored.items())
            raise DocmtError(
                f"{config.output} has a demo of another size ({stored_size}): remove it, or choose another --output"
            )
        _say(console, f"continuing the demonstration in {config.output}")
        return
    make_directory(config.output)
    write_text(record, json.dumps(size) + "\n")


def _make_models(config: DemoConfig, console: Console) -> None:
    """Create the corpus, the store and the models that do not exist yet."""
    if not (config.output / "store").exists():
        try:
            _say(
                console, f"writing {config.documents} English-German documents; the German word for 'it' needs context"
            )
            write_corpus(config.output / "corpus", train=config.documents, dev=100, test=100, seed=config.seed)
            _prepare(config)
        except BaseException:
            shutil.rmtree(config.output, ignore_errors=True)  # takes only a few seconds to create again
            raise
    _say(console, f"training a sentence model and a G-Transformer (group) together, {config.steps} updates each")
    _train_side_by_side(config)


def _prepare(config: DemoConfig) -> None:
    corpus = config.output / "corpus"
    data.prepare(
        data.PrepareConfig(
            store=config.output / "store",
            train=[corpus / "train.en", corpus / "train.de"],
            dev=[corpus / "dev.en", corpus / "dev.de"],
            source_language="en",
            target_language="de",
            vocabulary_size=2000,
        )
    )


def _train_side_by_side(config: DemoConfig) -> None:
    """Train each model in a process with one thread. Their tensors are too small for more threads."""
    import torch

    torch.set_num_threads(1)
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(len(SYSTEMS), mp_context=spawn) as pool:
        runs = [pool.submit(_train, config, system) for system in SYSTEMS]
        if any(run.result() for run in runs):
            raise KeyboardInterrupt


def _train(config: DemoConfig, system: Literal["sentence", "group"]) -> bool:
    """Train or resume one model in a separate process. Return whether it was interrupted."""
    import torch

    from docmt.training.run_directory import RunDirectory

    torch.set_num_threads(1)
    keep_freed_memory()
    recipe = _recipe(config, system)
    run = RunDirectory(recipe.run)
    with progress_prefix(system), plain_progress():  # two processes share the terminal
        return not run.model.exists() and training.train(recipe, resume=run.recipe.exists()).interrupted


def _recipe(config: DemoConfig, system: Literal["sentence", "group"]) -> TrainConfig:
    """Return the configuration of a system. The configurations differ only in the system."""
    values = flatten(read_yaml(recipes_folder() / "demo.yaml"))
    values |= {"store": config.output / "store", "run": config.output / system, "model.system": system}
    values |= {"stop.max_steps": config.steps, "seed": config.seed}
    return TrainConfig.from_dict(nest(values, "the recipe"))


def _scores(tests: Sequence[SyntheticDocument], translations: Sequence[Translation]) -> dict[str, float]:
    hypotheses = [translation.document.sentences for translation in translations]
    scores = evaluation.evaluate_documents(hypotheses, [test.document.target for test in tests])
    assert scores.s_bleu is not None  # both systems give one target sentence per source sentence
    return {
        "s_bleu": round(scores.s_bleu.score, 2),
        "d_bleu": round(scores.d_bleu.score, 2),
        "pronoun_accuracy": round(100 * score_pronouns(tests, hypotheses), 2),
    }


def _show_document(
    console: Console, tests: Sequence[SyntheticDocument], translations: dict[str, list[Translation]]
) -> None:
    """Print the test document with the most pronouns, and mark right and wrong pronouns."""
    number = max(range(len(tests)), key=lambda i: len(tests[i].pronouns))
    test = tests[number]
    table = Table(title="an unseen document (pronouns: \\[right], >wrong<)", show_lines=True)
    for heading in ("English", *SYSTEMS):
        table.add_column(heading)
    for row, source in enumerate(test.document.source):
        cells: list[Text] = [Text(source)]
        for system in SYSTEMS:
            cells.append(_mark_pronouns(translations[system][number].document.sentences[row], test, row))
        table.add_row(*cells)
    console.print(table)


def _mark_pronouns(sentence: str, test: SyntheticDocument, row: int) -> Text:
    """Return a sentence with right pronouns in green brackets and wrong ones in red angle brackets."""
    pronouns = [pronoun for pronoun in test.pronouns if pronoun.sentence == row]
    text = Text()
    for position, word in enumerate(sentence.split(" ")):
        text.append(" " if position else "")
        bare = word.strip(".,;:!?").casefold()
        matches = [p for p in pronouns if bare in {candidate.casefold() for candidate in p.candidates}]
        if not matches:
            text.append(word)
        elif bare == matches[0].form.casefold():
            text.append(f"[{word}]", style="bold green")
        else:
            text.append(f">{word}<", style="bold red")
    return text


def _show_table(console: Console, results: dict[str, dict[str, float]], title: str) -> None:
    table = Table(title=title)
    for heading in ("system", "s-BLEU", "d-BLEU", "pronouns right"):
        table.add_column(heading, justify="left" if heading == "system" else "right")
    for system, scores in results.items():
        table.add_row(
            system, f"{scores['s_bleu']:.1f}", f"{scores['d_bleu']:.1f}", f"{scores['pronoun_accuracy']:.1f} %"
        )
    console.print(table)


def _say(console: Console, text: Any) -> None:
    console.print(f"docmt demo: {text}", highlight=False)
