"""The network: spans, scopes, attention and its contexts, layers, and the systems composed of them."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
