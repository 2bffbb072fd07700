"""docmt: document-level machine translation.

import docmt

translator = docmt.Translator("model")
translation = translator.translate(docmt.Document.read("report.txt"))
translation.document.write("bericht.txt")
"""

from importlib.metadata import version

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__version__ = version("docmt")
