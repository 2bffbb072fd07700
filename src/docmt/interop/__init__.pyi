from .fairseq import convert_gtransformer as convert_gtransformer
from .rfa import convert_rfa as convert_rfa
from .thumt import convert_thumt as convert_thumt
