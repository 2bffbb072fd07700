from .attention import attend as attend
from .config import ModelConfig as ModelConfig
from .packed import Packed as Packed
from .packed import pack as pack
from .reading import Reading as Reading
from .spans import Spans as Spans
from .transformer import TranslationModel as TranslationModel
