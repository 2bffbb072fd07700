from .fairseq import convert_gtransformer as convert_gtransformer
from .thumt import convert_thumt as convert_thumt
