"""File formats: files as units of text with codes of markup, and back with other words.

`docmt.formats.registry` lists the formats. Each is one module with a function `read`.
"""
