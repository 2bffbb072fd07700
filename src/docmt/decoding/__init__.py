"""Decoding: from a trained model to translations, by beam search, of documents of any length; and scoring."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
