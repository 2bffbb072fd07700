"""Checksums of files, so that a bit which a disk or a copy has changed is noticed before anybody computes with it.

They are CRC-32, which finds every burst of up to 32 changed bits and misses other damage once in 4 billion times; it is
read faster than any hash (6 times SHA-256, docs/log.md). It does not keep out a forger, who could write a new one.

The description beside the files (config.json of a model, state.json of a checkpoint, tokenizer_config.json) has an
entry "crc32": name of the file -> checksum. Files of earlier versions have none, and are taken as they are.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from docmt.core.errors import DocmtError
from docmt.core.files import cannot_read, check_regular, read_json

ENTRY = "crc32"
_BLOCK_BYTES = 1 << 20


def checksum(path: Path) -> str:
    """The CRC-32 of a file, in eight hexadecimal digits. Raises OSError if it cannot be read."""
    found = 0
    block = bytearray(_BLOCK_BYTES)
    view = memoryview(block)
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(block):
            found = zlib.crc32(view[:count], found)
    return f"{found:08x}"


def checksum_of(values: Any) -> str:
    """The CRC-32 of what JSON can hold, whatever the order of names."""
    return f"{zlib.crc32(json.dumps(values, sort_keys=True).encode()):08x}"


def checksums(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """The checksums of the files of these names, to be written into a description."""
    return {name: checksum(folder / name) for name in names}


def recorded(values: Mapping[str, Any], description: Path) -> dict[str, str]:
    """The checksums in a description that was read; none where it has no such entry. Raises DocmtError for others."""
    found = values.get(ENTRY, {})
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise DocmtError(f'{description} has an entry "{ENTRY}" that holds no checksums: copy it again, or remove it')
    return found


def check_beside(path: Path, *descriptions: str) -> None:
    """Compares a file with the checksum in one of the descriptions that may stand beside it.

    Raises DocmtError if it is another, or if a description is damaged.
    """
    beside = [path.with_name(name) for name in descriptions]
    wanted = {file: recorded(read_json(file), file).get(path.name) for file in beside if file.exists()}
    found = checksum_of_file(path) if any(wanted.values()) else ""
    for description, one in wanted.items():
        if one is not None and one != found:
            raise changed(path, description)


def matches(path: Path, wanted: str) -> bool:
    """Whether a file has this checksum. Raises DocmtError if it cannot be read."""
    return checksum_of_file(path) == wanted


def checksum_of_file(path: Path) -> str:
    """The same as `checksum`, for reading. Raises DocmtError if the file cannot be read."""
    check_regular(path)
    try:
        return checksum(path)
    except (OSError, ValueError) as error:  # ValueError: a name with a null byte in it
        raise cannot_read(path, error, advice="copy the directory again, complete") from error


def changed(path: Path, description: Path) -> DocmtError:
    """The DocmtError for a file that is not what was written."""
    return DocmtError(
        f"{path} is damaged (it is not what its checksum in {description.name} says): copy it again from where it "
        f'came; if it was changed on purpose, remove "{ENTRY}" from {description.name}'
    )
