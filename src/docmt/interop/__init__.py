"""Other people's checkpoints as docmt model directories."""

from docmt.interop.fairseq import convert_gtransformer

__all__ = ["convert_gtransformer"]
