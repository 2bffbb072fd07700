"""docmt pull OWNER/NAME

Download a pretrained translation model from the Hugging Face hub and convert it. Then every command takes its name or
its language pair in the place of a model directory. It is written to the data home: DOCMT_HOME, or else docmt in the
user's data directory. `docmt models --available` lists models.

usage:
    OWNER/NAME [--revision REVISION] [-o DIRECTORY] [options]

examples:
    docmt pull Helsinki-NLP/opus-mt-en-de
    docmt pull facebook/nllb-200-distilled-600M --source-language en --target-language de
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from docmt.cli.options import Parser
from docmt.core.errors import printable
from docmt.core.settings import option

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class PullOptions:
    """The options of the command."""

    model: str = option(positional=True, metavar="OWNER/NAME")
    """repository on the hub"""
    revision: str = option("", metavar="REVISION")
    """branch, tag or commit (default: main)"""
    output: Path | None = option(None, flags=("-o",), metavar="DIRECTORY")
    """new model directory (default: in the data home)"""
    source_language: str = option("", metavar="CODE")
    """source language, if the model has several"""
    target_language: str = option("", metavar="CODE")
    """target language, if the model has several"""
    prefix: str = option("", metavar="TEXT")
    """T5: text before each sentence, such as 'translate English to German:'"""
    keep_vocabulary: tuple[Path, Path] | None = option(None, metavar="SOURCE TARGET")
    """keep only the vocabulary of these files, for a smaller model"""


def parser() -> Parser[PullOptions]:
    """Return the parser of the command."""
    return Parser("pull", PullOptions, __doc__)


def run(arguments: Sequence[str]) -> int:
    """Download and convert a model."""
    options = parser().parse(arguments)
    # imported here because torch loads slowly
    from docmt.checkpoint.hub import choose_directory, find_pair, is_pulled, open_repository, pull_model
    from docmt.checkpoint.model_names import describe_installed, is_non_commercial

    model = open_repository(options.model, options.revision)
    languages = options.source_language, options.target_language
    directory = options.output or choose_directory(model, *languages)
    pair = " to ".join(chosen or named for chosen, named in zip(languages, find_pair(model.name), strict=True))
    licence = f"licence {model.licence}" if model.licence else "no licence stated"
    _log.info(f"{model.hub_id}: {pair}{', ' * (len(pair) > 4)}{licence}, {model.size / 1e6:,.0f} MB")
    if is_non_commercial(model.licence):
        _log.warning(f"the licence of {model.hub_id}, {model.licence}, forbids commercial use")
    if options.keep_vocabulary is None and not options.prefix and is_pulled(model, directory):
        print(printable(f"{directory}: is there already, in this revision"))
        return 0
    pull_model(
        model,
        directory,
        source_language=options.source_language,
        target_language=options.target_language,
        prefix=options.prefix,
        keep_vocabulary=options.keep_vocabulary or (),
    )
    pulled = describe_installed(directory)
    print(printable(f"{directory}: system {pulled.system}, {pulled.parameters / 1e6:.1f} million parameters"))
    name = directory if options.output else pulled.pair or pulled.name
    use = "train --store STORE --run RUN --initialize-from {}" if pulled.is_encoder else "translate {} FILE"
    _log.info(f"try: docmt {use.format(name)}")
    return 0
