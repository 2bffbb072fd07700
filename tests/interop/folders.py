"""Where the numbers are that other people's codes computed.

DOCMT_FIXTURES names a folder with `gtransformer_tiny`, `context_tiny` and so on; without it the whole of them is used
where it lies beside the clone, else the small part under tests/data.
"""

import os
from pathlib import Path

ROOT = Path(__file__).parents[2]


def fixtures(name):
    """The folder of these fixtures."""
    if given := os.environ.get("DOCMT_FIXTURES"):
        return Path(given) / name
    whole = ROOT.parent / "shared" / "fixtures" / name
    return whole if whole.is_dir() else ROOT / "tests" / "data" / name


def variants(name, file):
    """The variant folders that have this file."""
    return sorted(path.parent.name for path in fixtures(name).glob(f"*/{file}"))
