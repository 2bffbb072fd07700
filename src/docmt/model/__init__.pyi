from .kernels import attend as attend
from .model_config import ModelConfig as ModelConfig
from .spans import ModelInput as ModelInput
from .spans import Packed as Packed
from .spans import Spans as Spans
from .spans import pack as pack
from .transformer import TranslationModel as TranslationModel
