"""docmt prepare RECIPE.yaml, or docmt prepare --store DIR --train SOURCE TARGET ...

Learn a tokenizer from parallel documents, and write them as a store of token ids for docmt train. JSONL has one object
a line, {"id": "a", "source": ["One.", "Two."], "target": ["Eins.", "Zwei."]}, or {"document": "a", "source": "One.",
"target": "Eins."} for each sentence.

usage:
    --store DIRECTORY --train SOURCE TARGET ... [options]
    RECIPE.yaml [options]

examples:
    docmt prepare --store stores/mine --train train.en train.de --dev dev.en dev.de --source-language en
        --target-language de

common:
    store train dev test source_language target_language tokenizer source_tokenizer vocabulary_size overwrite
"""

from __future__ import annotations

import logging
import shlex
from pathlib import Path

from docmt import data
from docmt.cli.model_arguments import resolve_model_names
from docmt.core.errors import printable
from docmt.data import PrepareConfig as PrepareOptions
from docmt.data.preparation import LEARNED_KINDS

_log = logging.getLogger(__name__)


def run(settings: PrepareOptions) -> int:
    """Write a prepared store and print its statistics."""
    names = ["source_tokenizer", *(["tokenizer"] if settings.tokenizer not in LEARNED_KINDS else [])]
    settings = resolve_model_names(settings, *names)
    store = data.prepare(settings)
    print(printable(data.format_statistics(store.statistics), allowed="\n"))
    tokenizers = (settings.source_tokenizer, settings.ready_tokenizer)
    pretrained = next((path for path in tokenizers if _is_model(path)), None)
    model = "sentence --preset base"
    if settings.drafts or pretrained is not None:
        start = "MODEL" if pretrained is None else shlex.quote(str(pretrained))
        model = f"{'multihop' if settings.drafts else 'group'} --initialize-from {start}"
    _log.info(f"try: docmt train --store {shlex.quote(str(store.directory))} --run RUN --system {model}")
    if settings.drafts and pretrained is None:
        _log.info("MODEL: the sentence model that wrote the drafts, which needs the tokenizer of this store")
    return 0


def _is_model(path: Path | None) -> bool:
    """Return whether the directory of a tokenizer has a model that training can start from."""
    return path is not None and any((folder / "model.safetensors").is_file() for folder in (path, path / "model"))
