"""docmt demo

Translate a document of the package, two pages of Word, with the English-French model of the package. Both sides are
shown, and what the model translates otherwise without the sentences before. With --training, train a sentence model and
a G-Transformer on a synthetic corpus in minutes, and compare their translations.

usage:
    [options]

examples:
    docmt demo
    docmt demo --training
"""

from __future__ import annotations

import json
import multiprocessing
import shutil
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from difflib import SequenceMatcher
from importlib import resources
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
from docmt.core.plain_text import write_bytes
from docmt.core.progress import plain_progress, progress_prefix
from docmt.core.settings import MANY, Needs, check_fields, field_range, flatten, nest, ranged, read_yaml
from docmt.decoding import SearchConfig
from docmt.documents import Document
from docmt.experiments.experiment_files import recipes_folder
from docmt.synthetic import SyntheticDocument, read_pronouns, score_pronouns, write_corpus
from docmt.training import TrainConfig

if TYPE_CHECKING:
    from docmt.decoding import Translation

SYSTEMS: tuple[Literal["sentence", "group"], ...] = ("sentence", "group")
RESULTS = "results.json"
MODEL = "en-fr"
DOCUMENT = "demo.docx"


@dataclass(frozen=True)
class DemoConfig:
    """Size of the demonstration. The defaults of the training take about four minutes on two cores."""

    output: Path | None = None
    """directory to write to; a training in it is continued (default: docmt-demo, or docmt-demo-training)"""
    training: bool = False
    """train two small models on a synthetic corpus, and compare them"""
    documents: int = ranged(8000, 1, 1_000_000)
    """number of synthetic training documents"""
    steps: int = ranged(800, 1, MANY)
    """updates of each model"""
    seed: int = ranged(1, *field_range(TrainConfig, "seed"))
    """random seed of the corpus and the training"""

    option_rules = (Needs("documents", "training"), Needs("steps", "training"), Needs("seed", "training"))

    def __post_init__(self) -> None:
        check_fields(self, "")

    @property
    def folder(self) -> Path:
        """The directory to write to."""
        return self.output or Path("docmt-demo-training" if self.training else "docmt-demo")


def parser() -> Parser[DemoConfig]:
    """Return the parser of the command."""
    return Parser("demo", DemoConfig, __doc__, title="the demonstration")


def run(arguments: Sequence[str]) -> int:
    """Translate the document of the package, or train two models; show what context gives."""
    config, started, console = parser().parse(arguments), time.monotonic(), Console()
    if not config.training:
        written = _translate_document(config, console)
        _say(console, f"{time.monotonic() - started:.0f} seconds; the translated file is {written}")
        _say(console, f"try: docmt translate {MODEL} YOUR_FILE.docx -o TRANSLATION.docx")
        return 0
    _recipe(config, SYSTEMS[0])  # raises for invalid settings before anything is written
    _start_or_resume(config, console)
    try:
        _make_models(config, console)
        _compare(config, console)
    except KeyboardInterrupt:
        _say(console, "interrupted; run the same command again to continue")
        raise
    _say(console, f"{time.monotonic() - started:.0f} seconds; models and {RESULTS} are in {config.folder}")
    _say(console, f"try: docmt translate {config.folder / 'group'} YOUR_FILE.txt")
    return 0


def _translate_document(config: DemoConfig, console: Console) -> Path:
    """Translate the document of the package and show both sides. Return the path of the translation.

    Raises DocmtError if the package has no model.
    """
    # imported here because torch loads slowly
    from docmt.checkpoint.model_names import find_named_model, find_package_model

    if (model := find_package_model(MODEL) or find_named_model(MODEL)) is None:
        raise DocmtError(
            f"this docmt has no model {MODEL} in its package: get one with `docmt pull Helsinki-NLP/opus-mt-{MODEL}`, "
            "or add --training to train two models in minutes"
        )
    source, target = config.folder / "directive.docx", config.folder / "directive.fr.docx"
    make_directory(config.folder)
    write_bytes(source, resources.files("docmt.cli").joinpath(DOCUMENT).read_bytes())
    _say(console, f"translating {source} with the model {MODEL}, which reads the sentences before")
    translator = decoding.Translator(model)
    translations = translator.translate_file(source, target)
    sentences = [sentence for translation in translations for sentence in translation.sentences]
    alone = translator.translate_all([Document.from_sentences([sentence.source]) for sentence in sentences])
    table = Table("English", "French ([bold green]\\[changed by context][/])", "without context")
    for sentence, other in zip(sentences, alone, strict=True):
        table.add_row(Text(sentence.source), *_mark_changes(sentence.target, other.sentences[0].target))
    console.print(table)
    return target


def _mark_changes(target: str, other: str) -> tuple[Text, Text]:
    """Return two translations of a sentence, with the words that differ in brackets; the other is empty if equal."""
    words, other_words = target.split(), other.split()
    blocks = SequenceMatcher(None, words, other_words, autojunk=False).get_matching_blocks()
    equal = {block.a + i for block in blocks for i in range(block.size)}
    equal_in_other = {block.b + i for block in blocks for i in range(block.size)}
    marked, other_marked = Text(), Text()
    for number, word in enumerate(words):
        marked.append(*((f"{word} ",) if number in equal else (f"[{word}] ", "bold green")))
    for number, word in enumerate(other_words if other != target else ()):
        other_marked.append(*((f"{word} ",) if number in equal_in_other else (f">{word}< ", "bold red")))
    return marked, other_marked


def _compare(config: DemoConfig, console: Console) -> None:
    """Translate test documents with both models and show the results."""
    tests = read_pronouns(config.folder / "corpus" / "test.pronouns.jsonl")
    sources = [Document.from_sentences(test.document.source, id=test.document.id) for test in tests]
    table = Table("system", "s-BLEU", "d-BLEU", "pronouns right (%)", title=f"{len(tests)} unseen documents")
    results = {}
    for system in SYSTEMS:
        translator = decoding.Translator(config.folder / system, search=SearchConfig(beam=4))
        scores = results[system] = _scores(tests, translator.translate_all(sources))
        table.add_row(system, *(f"{score:.1f}" for score in scores.values()))
    console.print(table)
    write_text(config.folder / RESULTS, json.dumps(results, indent=2) + "\n")


def _start_or_resume(config: DemoConfig, console: Console) -> None:
    """Record the size of the demonstration. Raises DocmtError for a finished or different one in the directory."""
    record = config.folder / "demo.json"
    size = {"documents": config.documents, "steps": config.steps, "seed": config.seed}
    if config.folder.exists() and any(config.folder.iterdir()):
        if not record.is_file() or (config.folder / RESULTS).exists():
            raise DocmtError(f"{config.folder} already exists: remove it, or choose another --output")
        if (stored := read_json(record)) != size:
            stored_size = ", ".join(f"{name} {value}" for name, value in stored.items())
            raise DocmtError(
                f"{config.folder} has a demo of another size ({stored_size}): remove it, or choose another --output"
            )
        _say(console, f"continuing the demonstration in {config.folder}")
        return
    make_directory(config.folder)
    write_text(record, json.dumps(size) + "\n")


def _make_models(config: DemoConfig, console: Console) -> None:
    """Create the corpus, the store and the models that do not exist yet."""
    if not (config.folder / "store").exists():
        try:
            _say(
                console, f"writing {config.documents} English-German documents; the German word for 'it' needs context"
            )
            write_corpus(config.folder / "corpus", train=config.documents, dev=100, test=100, seed=config.seed)
            _prepare(config)
        except BaseException:
            shutil.rmtree(config.folder, ignore_errors=True)  # takes only a few seconds to create again
            raise
    _say(console, f"training a sentence model and a G-Transformer (group) together, {config.steps} updates each")
    _train_side_by_side(config)


def _prepare(config: DemoConfig) -> None:
    corpus = config.folder / "corpus"
    data.prepare(
        data.PrepareConfig(
            store=config.folder / "store",
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
    values |= {"store": config.folder / "store", "run": config.folder / system, "model.system": system}
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


def _say(console: Console, text: Any) -> None:
    console.print(f"docmt demo: {text}", highlight=False)
