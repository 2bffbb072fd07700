"""Training: objective, schedule, the loop, and runs that can be killed and resumed at any time."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
