"""docmt: document-level machine translation.

import docmt

translator = docmt.Translator("model")
translation = translator.translate(docmt.Document.read("report.txt"))
translation.document.write("bericht.txt")
"""

import os
from importlib.metadata import version

import lazy_loader

# Read when torch is loaded. Threads that spin wait for others that another program has displaced (decision 39).
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__version__ = version("docmt")
