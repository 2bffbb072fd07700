"""Engines: servers that translate in place of a model, each described by a profile."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
