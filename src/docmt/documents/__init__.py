"""Documents: sentences and the text between them, plain text files, and parallel corpora."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
