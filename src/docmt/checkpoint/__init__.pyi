from .ctranslate2_export import export_ctranslate2 as export_ctranslate2
from .fairseq import convert_gtransformer as convert_gtransformer
from .hf_import import convert_huggingface as convert_huggingface
from .model_names import InstalledModel as InstalledModel
from .model_names import list_models as list_models
from .rfa import convert_rfa as convert_rfa
from .thumt import convert_thumt as convert_thumt
