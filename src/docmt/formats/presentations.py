"""Presentations (pptx, ECMA-376 part 1, section 19): slides in their order, each with its notes, charts and comments.

Layouts and masters stay, and so do fields such as slide numbers. Text that no longer fits is left to the viewer.
"""

from __future__ import annotations

from docmt.core.grouping import group_pairs
from docmt.formats.units import ReadConfig
from docmt.formats.workbooks import CHARTS, ChartedFile

_TYPE = "application/vnd.openxmlformats-officedocument.presentationml.{}.main+xml"
_MAIN_TYPES = tuple(_TYPE.format(name) for name in ("presentation", "slideshow", "template"))
_LAYOUT_TYPES = tuple(_TYPE.replace(".main", "").format(name) for name in ("slideMaster", "slideLayout"))


def read(data: bytes, path: str, config: ReadConfig) -> Presentation:
    """Return the units of a pptx file: slides in their order, notes, charts, SmartArt, comments, properties."""
    file = Presentation(data, path, "pptx")
    main = file.find_main(_MAIN_TYPES, "presentation", "presentation")
    targets = {id: part for id, _, part in file.read_relationships(main)}
    for element in file.open_part(main).file.root.iter("p:sldId"):
        slide = targets.get(element.attributes.get("r:id", ""))
        if slide and element.parent and element.parent.name == "p:sldIdLst" and slide not in file.parts:
            file.read_slide(slide)
            file.skip_inserted(slide)
    for name in file.find_parts(*_LAYOUT_TYPES):
        for shape in file.open_part(name).file.root.iter("p:sp"):
            if next(shape.iter("p:ph"), None) is None:
                file.skip("layouts and masters", " ".join(each.text() for each in shape.iter("a:p")))
    file.add_properties()
    return file


class Presentation(ChartedFile):
    """A pptx file that was read."""

    def read_slide(self, name: str) -> None:
        """Add the texts of a slide, then those of its parts."""
        self.read_shapes(self.open_part(name), "p:cNvPr")
        related = group_pairs((kind, part) for _, kind, part in self.read_relationships(name) if part not in self.parts)
        for part in related.get("notesSlide", []):
            self.read_shapes(self.open_part(part), "p:cNvPr")
        self.read_charts(part for kind in CHARTS for part in related.get(kind, []))
        self.read_diagrams([*related.get("diagramData", []), *related.get("diagramDrawing", [])])
        for part in related.get("comments", []):
            self.read_drawings([part])  # those of PowerPoint 365; before that, a comment was one text
            for element in self.parts[part].file.root.iter("p:text"):
                self.add_element_text(self.parts[part], element)
