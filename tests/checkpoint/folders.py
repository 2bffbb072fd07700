"""Where the numbers are that other people's codes computed.

DOCMT_FIXTURES names a folder with `gtransformer_tiny`, `context_tiny` and so on; without it the whole of them is used
where it lies beside the clone, else the small part under tests/data.
"""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


class Variants:
    """The folder of some fixtures: one of its own for each variant (a model), and files that all share."""

    def __init__(self, name):
        whole = ROOT.parent / "shared" / "fixtures" / name
        given = os.environ.get("DOCMT_FIXTURES")
        self.path = Path(given) / name if given else whole if whole.is_dir() else ROOT / "tests" / "data" / name
        self.names = tuple(sorted(path.parent.name for path in self.path.glob("*/args.json")))

    def needed(self, variant, file):
        """A file of a variant; the test is skipped where it is missing."""
        path = self.path / variant / file
        if not path.is_file():
            pytest.skip(f"{variant} has no {file} in {self.path}")
        return path

    def own_or_common(self, variant, file):
        """A file of the variant if it has one of its own, else that of all."""
        own = self.path / variant / file
        path = own if own.is_file() else self.path / file
        if not path.is_file():
            pytest.skip(f"neither {variant} nor {self.path} has {file}")
        return path
