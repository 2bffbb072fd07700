"""Other people's checkpoints as docmt model directories."""

from docmt.interop.fairseq import convert_gtransformer
from docmt.interop.thumt import convert_thumt

__all__ = ["convert_gtransformer", "convert_thumt"]
