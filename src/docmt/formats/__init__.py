"""File formats: files as units of text with codes of markup, and back with other words.

`docmt.documents.input_formats` lists the formats with the functions that read them.
"""
