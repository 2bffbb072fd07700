"""From a trained model to translations: beam search in the frame, scoring, documents of any length."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
