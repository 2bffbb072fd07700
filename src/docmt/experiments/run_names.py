"""Names of run directories. An identifier at the end says what is trained, so that the same command finds its runs.

runs/multihop-seed1-0a1b2c3d has the variant, the seed, and the identifier. A directory with the same seed and
identifier counts whatever stands before them: the variant of another experiment, or the recipe, as in earlier versions.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from docmt.checkpoint.model_directory import find_model
from docmt.checkpoint.model_names import find_named_model
from docmt.checkpoint.weights import CONFIG_FILE
from docmt.core.errors import DocmtError
from docmt.core.files import read_json, stored_checksums
from docmt.core.settings import flatten, is_selected
from docmt.data import PreparedStore
from docmt.training import TrainConfig

RUNS_FOLDER = "runs"
START_SETTINGS = ("initialize_from", "initialize_reverse_from")
# Settings that do not change the model. Of the run that initialises it, only the identity counts, not the path.
IRRELEVANT_SETTINGS = ("store", "run", "device", "log_every", "tensorboard", "checkpoints.keep")
_LONGEST_TITLE = 80


class RunNames:
    """Directories of the runs of a plan, in an output directory that may have some already."""

    def __init__(self, output: Path) -> None:
        self._folder = output / RUNS_FOLDER
        folders = self._folder.iterdir() if self._folder.is_dir() else ()
        self._names = sorted(path.name for path in folders if path.is_dir())
        self._identities: dict[Path, str] = {}

    def find(
        self, config: TrainConfig, names: Mapping[str, Any], store: PreparedStore, recipe: str, title: str
    ) -> Path:
        """Return the directory of a run: one that is there or planned, or a new one.

        config: of the run. names: its settings of recipe, experiment and overrides; others are defaults and do not
        count, so that later versions may add options. recipe: name of its recipe. title: of a new directory.
        """
        ending = f"-seed{config.seed}-{self._hash(config, names, store)}"
        identity = f"{recipe}{ending}"  # in the hashes of all versions
        known = [name for name in self._names if name.endswith(ending)]
        if not known:
            title = re.sub(r"[^\w.]+", "-", title).strip("-.")[:_LONGEST_TITLE]
            known = [f"{title or recipe}{ending}"]
            self._names += known
        path = self._folder / (identity if identity in known else known[0])
        self._identities.setdefault(path, identity)
        return path

    def _hash(self, config: TrainConfig, names: Mapping[str, Any], store: PreparedStore) -> str:
        """Return eight hexadecimal digits that identify data, settings and starting models of a run."""
        values, defaults = flatten(config.to_dict()), flatten(TrainConfig(store=Path(), run=Path()).to_dict())
        drafts = config.model.system_options.context_spec().drafts
        facts = {
            "settings": {
                name: values[name]
                for name in sorted(names)
                if not is_selected(name, (*IRRELEVANT_SETTINGS, *START_SETTINGS))
                and values.get(name) != defaults.get(name)
            },
            "starts": [self._describe_start(getattr(config, setting)) for setting in START_SETTINGS],
            "data": {
                name: [
                    *(split.sentences, split.source_tokens, split.target_tokens),
                    *(checksum for file, checksum in split.crc32.items() if drafts or "draft" not in file),
                ]
                for name, split in store.statistics.splits.items()
            },
            "vocabulary": store.statistics.vocabulary_size,
        }
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:8]

    def _describe_start(self, start: Path | None) -> str:
        """Return a string that identifies a starting model. Runs of the output directory count by identity."""
        if start is None or start.parent == self._folder:
            return str(start and self._identities.get(start, start.name))
        with suppress(DocmtError):  # another model at the same path, or of the same name, makes another run
            path = find_model(locate_start(start)) / CONFIG_FILE
            return f"{start} {stored_checksums(read_json(path), path)}"
        return str(start)


def locate_start(start: Path) -> Path:
    """Return the path of a starting model that may be given by name."""
    return start if start.exists() else find_named_model(str(start)) or start
