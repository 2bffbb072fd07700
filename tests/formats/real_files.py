"""Real files of other projects, which are beside the clone or in the folder that DOCMT_SHARED names."""

import os
from pathlib import Path

import pytest

FILES = Path(os.environ.get("DOCMT_SHARED") or Path(__file__).parents[3] / "shared") / "data" / "files"
NEEDS_FILES = pytest.mark.skipif(not FILES.is_dir(), reason="the real files are not on this machine")


def find_files(*folders):
    """The files of these folders in order."""
    return sorted(path for folder in folders for path in (FILES / folder).glob("*"))
