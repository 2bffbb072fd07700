"""LibreOffice opens the files that docmt writes: each shared document with all words changed and made longer."""

import importlib.util
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from real_files import FILES, NEEDS_FILES

from docmt.core.errors import DocmtError
from docmt.documents.input_formats import FORMATS, find_format
from docmt.formats.units import Unit, read_units

SOFFICE = shutil.which("soffice")
SUFFIXES = ("docx", "pptx", "xlsx", "odt", "odp", "ods")
WRITER = ("docx", "odt")
SECONDS = 110
"""Limit of one call of LibreOffice, which converts all files of a format."""
WORD = re.compile(r"[^\W\d_]+")
ACCENTS = str.maketrans("aeiouyAEIOUY", "áéíóúýÁÉÍÓÚÝ")

pytestmark = [pytest.mark.full, pytest.mark.skipif(SOFFICE is None, reason="LibreOffice is not installed"), NEEDS_FILES]


def lengthen(unit: Unit) -> Unit:
    """Return the unit with accents on its words, each a third longer. Codes stay before their characters."""
    parts: list[str] = []
    places: list[int] = []  # of each character
    length = position = 0
    for match in [*WORD.finditer(unit.text), None]:
        start, end = match.span() if match else (len(unit.text),) * 2
        pieces = [unit.text[position:start]]
        if match:
            pieces.append(match[0].translate(ACCENTS) + "ö" * -(-len(match[0]) // 3))
        places += range(length, length + start - position)
        places += range(length + start - position, length + end - position)
        position = end
        parts += pieces
        length += sum(map(len, pieces))
    places.append(length)
    return Unit("".join(parts), tuple(replace(code, offset=places[code.offset]) for code in unit.codes), unit.id)


def convert(folder: Path, names: Sequence[str], target: str) -> Path:
    """Convert files of a folder in one call. Return the folder of the results."""
    assert SOFFICE is not None
    output = folder / f"out-{target[:3]}"
    command = [SOFFICE, f"-env:UserInstallation={(folder / 'profile').as_uri()}", "--headless", "--norestore"]
    command += ["--convert-to", target, "--outdir", str(output), *(str(folder / name) for name in names)]
    subprocess.run(command, timeout=SECONDS, capture_output=True, check=False)
    return output


def find_unconverted(output: Path, names: Sequence[str]) -> list[str]:
    results = {name: output / f"{Path(name).stem}.pdf" for name in names}
    return [name for name, path in results.items() if not path.exists() or path.read_bytes()[:5] != b"%PDF-"]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_written_files_open(suffix: str, tmp_path: Path) -> None:
    paths = sorted((FILES / suffix).glob(f"*.{suffix}"))
    file_format = find_format(f"x.{suffix}")
    assert file_format is not None
    if importlib.util.find_spec(f"docmt.formats.{FORMATS[file_format.name].module}") is None:
        pytest.skip(f"docmt does not read {suffix} yet")
    if not paths:
        pytest.skip(f"there are no shared {suffix} files")
    texts: dict[str, list[str]] = {}
    for path in paths:
        try:
            file = read_units(file_format, path.read_bytes(), path.name)
        except DocmtError:  # encrypted
            continue
        units = [lengthen(unit) for unit in file.units]
        (tmp_path / path.name).write_bytes(file.write(units, "cs"))
        texts[path.name] = [unit.text for unit in units]
    assert len(texts) >= 0.9 * len(paths)
    failed = find_unconverted(convert(tmp_path, list(texts), "pdf"), list(texts))
    originals = tmp_path / "originals"
    originals.mkdir()
    for name in failed:
        shutil.copy(FILES / suffix / name, originals / name)
    broken = find_unconverted(convert(originals, failed, "pdf"), failed) if failed else []
    assert set(failed) == set(broken), "LibreOffice opens these files as they were, and not as they were written"
    assert len(broken) <= len(paths) / 4
    if suffix in WRITER:
        check_texts(tmp_path, {name: each for name, each in texts.items() if each and name not in failed})


def check_texts(folder: Path, texts: dict[str, list[str]]) -> None:
    """Check that LibreOffice shows new words. The plain text that it writes has no frames, headers and hidden text."""
    output = convert(folder, list(texts), "txt:Text (encoded):UTF8")
    silent = []
    for name, units in texts.items():
        shown = (output / f"{Path(name).stem}.txt").read_text(encoding="utf-8-sig")
        if not any(word in shown for unit in units for word in WORD.findall(unit)):
            silent.append(name)
    assert len(silent) <= len(texts) / 5, silent
