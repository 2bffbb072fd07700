from .checkpoint.model_directory import load_model as load_model
from .core.errors import DocmtError as DocmtError
from .decoding import ContextConfig as ContextConfig
from .decoding import SearchConfig as SearchConfig
from .decoding import Translation as Translation
from .decoding import Translator as Translator
from .documents import Document as Document
from .terms import Glossary as Glossary

__version__: str
