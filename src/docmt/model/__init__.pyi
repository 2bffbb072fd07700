from .attention import attend as attend
from .config import ModelConfig as ModelConfig
from .spans import Packed as Packed
from .spans import Reading as Reading
from .spans import Spans as Spans
from .spans import pack as pack
from .transformer import TranslationModel as TranslationModel
