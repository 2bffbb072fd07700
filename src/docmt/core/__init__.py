"""Errors, options, files, progress and logging, for all packages. Nothing here knows of translation."""
