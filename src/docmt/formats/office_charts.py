"""Charts of documents and presentations (ECMA-376 part 1, section 21.2): titles, categories and names of series.

A chart repeats texts of a workbook that its package holds. They are translated in both, so that a chart whose data are
edited keeps its labels.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from docmt.core.errors import DocmtError
from docmt.formats.office_packages import CHART, OfficeFile
from docmt.formats.registry import ReadConfig
from docmt.formats.units import Unit
from docmt.formats.workbooks import IDENTIFIER, read
from docmt.formats.zip_package import ZipPackage

_VALUE, _NUMBERS = f"{{{CHART}}}v", f"{{{CHART}}}numCache"


class ChartedFile(OfficeFile):
    """A package that was read, with the workbooks of its charts."""

    def __init__(self, data: bytes, path: str, suffix: str) -> None:
        """Open a package: see `OfficeFile`."""
        super().__init__(data, path, suffix)
        self._labels: dict[str, list[int]] = {}
        """units of the labels of a chart, by the name of its workbook"""

    def read_charts(self, names: Iterable[str]) -> None:
        """Add the titles of charts, then their labels, each label once."""
        for name in names:
            self.read_drawings([name])
            part = self.open_part(name)
            indices: list[int] = []
            for value in part.file.root.iter(_VALUE):
                if not (value.has_ancestor(_NUMBERS) or IDENTIFIER.fullmatch(value.text().strip())):
                    index = self.add_element_text(part, value, indices)
                    indices += [] if index is None else [index]
            for _, kind, target in self.read_relationships(name):
                if kind == "package":
                    self._labels.setdefault(target, []).extend(indices)

    def write(self, units: Sequence[Unit], language: str = "") -> bytes:
        """Return the package with other units: see `OfficeFile`."""
        contents = {}
        for name, indices in self._labels.items():
            labels = {self.units[each].text: units[each] for each in indices if units[each] != self.units[each]}
            if labels:
                contents[name] = _relabel(self.package, name, labels)
        return ZipPackage(super().write(units, language), self.path).replace(contents)


def _relabel(package: ZipPackage, name: str, labels: Mapping[str, Unit]) -> bytes:
    """Return a workbook with new texts, by the old ones. One that cannot be read stays: the chart has its labels."""
    data = package.read(name)
    try:
        file = read(data, name, ReadConfig())
    except DocmtError:
        return data
    return file.write([labels.get(unit.text, unit) for unit in file.units])
