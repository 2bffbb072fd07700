"""The consistency report of `docmt check`: faults of a translation that need no reference and no model."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
