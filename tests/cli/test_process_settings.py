"""What the command sets for its whole process."""

import os
import subprocess
import sys

import pytest

SCRIPT = """
import os, sys
from docmt.cli import app
app._run_and_report_errors = lambda arguments: print("torch" in sys.modules, *map(os.environ.get, NAMES)) or 0
app.main(COMMAND)
"""
NAMES = ["LRU_CACHE_CAPACITY", "ONEDNN_PRIMITIVE_CACHE_CAPACITY", "OMP_WAIT_POLICY"]


@pytest.mark.parametrize(
    ("command", "environment", "expected"),
    [
        ("models", {}, "192 192 PASSIVE"),
        ("score", {NAMES[0]: "7"}, "7 192 PASSIVE"),
        ("train", {}, "None None PASSIVE"),
        ("translate", {NAMES[2]: "active"}, "192 192 active"),
    ],
)
def test_products_are_limited_and_threads_sleep_before_torch_is_loaded(command, environment, expected):
    inherited = {name: value for name, value in os.environ.items() if name not in NAMES}
    script = f"NAMES, COMMAND = {NAMES}, ['{command}']\n{SCRIPT}"
    variables = {**inherited, **environment}
    result = subprocess.run(
        [sys.executable, "-c", script], env=variables, capture_output=True, text=True, check=True, timeout=120
    )
    assert result.stdout == f"False {expected}\n"
