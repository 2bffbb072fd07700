"""Folders of fixtures: numbers that published codes computed.

DOCMT_FIXTURES names a folder with `gtransformer_tiny`, `context_tiny` and so on. The default is the full set beside
the clone if it exists, and otherwise the small part under tests/data.
"""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


class Variants:
    """A folder of fixtures with one subfolder for each variant (a model), and common files."""

    def __init__(self, name):
        full = ROOT.parent / "shared" / "fixtures" / name
        chosen = os.environ.get("DOCMT_FIXTURES")
        self.path = Path(chosen) / name if chosen else full if full.is_dir() else ROOT / "tests" / "data" / name
        self.names = tuple(sorted(path.parent.name for path in self.path.glob("*/args.json")))

    def needed(self, variant, file):
        """Return a file of a variant, or skip the test if it is missing."""
        path = self.path / variant / file
        if not path.is_file():
            pytest.skip(f"{variant} has no {file} in {self.path}")
        return path

    def find_or_skip(self, variant, file):
        """Return a file of the variant, or else the common one. Skip the test if both are missing."""
        variant_file = self.path / variant / file
        path = variant_file if variant_file.is_file() else self.path / file
        if not path.is_file():
            pytest.skip(f"neither {variant} nor {self.path} has {file}")
        return path
