"""What a person can see in a translation without a reference: `docmt check`."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
