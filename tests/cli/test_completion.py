"""docmt completion: what the shells are told."""

import shutil
import subprocess

import pytest
from commands import call, fails

from docmt.cli.app import COMMANDS


@pytest.fixture(scope="module")
def scripts():
    found = {}
    for shell in ("bash", "zsh", "fish"):
        outcome = call("completion", shell)
        assert (outcome.status, outcome.err) == (0, "")
        found[shell] = outcome.out
    return found


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["docmt", "tran"], ["translate"]),
        (["docmt", ""], [*COMMANDS, "--help", "--version"]),
        (["docmt", "translate", "--bea"], ["--beam"]),
        (["docmt", "translate", "m", "--search.bea"], ["--search.beam"]),
        (["docmt", "train", "--system", "g"], ["group"]),
        (["docmt", "train", "--model.system", "co"], ["concat", "context"]),
        (["docmt", "train", "--sto"], ["--store", "--stop.max-steps"]),
        (["docmt", "prepare", "--overwrite", ""], ["true", "false"]),
        (["docmt", "average", "--quantization", "fl"], ["float32", "float16"]),
        (["docmt", "completion", "fi"], []),  # files, which bash itself knows
        (["docmt", "translate", "model/", "rep"], []),
    ],
)
def test_bash(words, expected, scripts):
    script = (
        f'{scripts["bash"]}\nCOMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _docmt; printf \'%s\\n\' "${{COMPREPLY[@]}}"'
    )
    process = subprocess.run(["bash", "-c", script, "bash", *words], capture_output=True, text=True, check=True)
    found = process.stdout.split()
    assert found == expected or (words[-1] == "--sto" and set(expected) <= set(found))


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells(shell, scripts):
    text = scripts[shell]
    for command in COMMANDS:
        assert command in text
    for option in ("beam", "search.beam", "max-steps", "store", "quiet"):
        assert f"{'--' if shell == 'zsh' else '-l '}{option}" in text
    assert text.startswith("#compdef docmt\n" if shell == "zsh" else "complete -c docmt ")
    if shutil.which(shell):
        assert subprocess.run([shell, "-n"], input=text, text=True, capture_output=True).stderr == ""


def test_other_words():
    fails("completion", "tcsh", message=r"SHELL is 'tcsh': choose one of bash, zsh, fish|shell is 'tcsh'")
