"""Small office packages for tests, their pseudo-translation, and mutants."""

import io
import zipfile

import pytest
from real_files import FILES

from docmt.core.errors import DocmtError
from docmt.formats.units import Code, Unit

W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
A = "http://schemas.openxmlformats.org/drawingml/2006/main"
P = "http://schemas.openxmlformats.org/presentationml/2006/main"
S = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
R = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
MC = "http://schemas.openxmlformats.org/markup-compatibility/2006"
C = "http://schemas.openxmlformats.org/drawingml/2006/chart"
WP = "http://schemas.openxmlformats.org/drawingml/2006/wordprocessingDrawing"
PIC = "http://schemas.openxmlformats.org/drawingml/2006/picture"
M = "http://schemas.openxmlformats.org/officeDocument/2006/math"
DC = "http://purl.org/dc/elements/1.1/"
DIAGRAM = "http://schemas.openxmlformats.org/drawingml/2006/diagram"
OFFICE = "application/vnd.openxmlformats-officedocument."
CHART = OFFICE + "drawingml.chart+xml"
DATA, DRAWN = OFFICE + "drawingml.diagramData+xml", "application/vnd.ms-office.drawingml.diagramDrawing+xml"
CORE = "application/vnd.openxmlformats-package.core-properties+xml"
LETTERS = str.maketrans("aeiouT", "áéíóúŤ")


def pack_parts(parts):
    """Return a package. parts: (content type, text) by name; an empty content type for relationships."""
    types = "".join(f'<Override PartName="/{name}" ContentType="{kind}"/>' for name, (kind, _) in parts.items() if kind)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("[Content_Types].xml", f"<Types>{types}</Types>")
        for name, (_, text) in parts.items():
            file.writestr(name, text)
    return buffer.getvalue()


def relate(*targets):
    """Return a relationships part. targets: (type, target), with ids rId1, rId2, ..."""
    rows = "".join(
        f'<Relationship Id="rId{number}" Type="{R}/{kind}" Target="{target}"/>'
        for number, (kind, target) in enumerate(targets, 1)
    )
    return "", f"<Relationships>{rows}</Relationships>"


def read_part(data, name):
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        assert file.testzip() is None
        return file.read(name).decode()


def pseudo(unit):
    """Return the unit with accents, in brackets, with characters that XML escapes."""
    codes = tuple(  # those before the text stay there, as a tab after a bracket would be a space, too
        Code(each.offset + (each.offset > 0), each.kind, each.id, each.content, each.can_copy, each.is_space)
        for each in unit.codes
    )
    return Unit("[" + unit.text.translate(LETTERS) + '<&">]', codes, unit.id)


def pseudo_texts(file):
    return [pseudo(unit).text for unit in file.units]


def check_round_trip(read, data):
    """Check that equal units give equal bytes, and that pseudo-translated units are read again. Return the package."""
    file = read(data)
    assert file.write(file.units) == data
    new = file.write([pseudo(unit) for unit in file.units], "fr")
    assert [unit.text for unit in read(new).units] == pseudo_texts(file)
    return new


def list_files(suffix, *folders):
    files = sorted(path for folder in folders for path in (FILES / folder).glob(f"*{suffix}"))
    skip = pytest.mark.skip(reason="shared/data/files is not here")
    return [pytest.param(path, id=path.name) for path in files] or [pytest.param(None, marks=skip)]


def mutate(data, name, random):
    """Return a mutant: of the bytes of the package, or of one of its parts."""
    if random.random() < 0.3:
        return _damage(data, random)
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        members = {each: file.read(each) for each in file.namelist()}
    members[name] = _damage(members[name], random)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        for each, content in members.items():
            file.writestr(each, content)
    return buffer.getvalue()


def _damage(data, random):
    start = random.randrange(len(data))
    end = min(len(data), start + random.randrange(1, 40))
    kind = random.randrange(4)
    if kind == 0:
        return data[:start] + bytes([random.randrange(256)]) + data[start + 1 :]
    if kind == 1:
        return data[:start] + data[end:]
    if kind == 2:
        return data[:end] + data[start:]
    words = data.split(b"<")  # elements that change places
    first, second = random.randrange(len(words)), random.randrange(len(words))
    words[first], words[second] = words[second], words[first]
    return b"<".join(words)


def check_mutants(read, data, names, random, count):
    """Check that mutants are read and written, or refused with an error of docmt. Return how many were read."""
    number = 0
    for _ in range(count):
        mutant = mutate(data, random.choice(names), random)
        try:
            file = read(mutant)
        except DocmtError:
            continue
        number += 1
        file.write(file.units)
        file.write([pseudo(unit) for unit in file.units], "ar")
    return number
