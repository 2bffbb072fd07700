from .decoding import SearchConfig as SearchConfig
from .decoding import Translation as Translation
from .decoding import Translator as Translator
from .documents import Document as Document
from .errors import DocmtError as DocmtError
from .model_directory import load_model as load_model

__version__: str
