"""The network: spans, sights, views, attention, layers, and the systems composed of them."""

from docmt.model.attention import attend
from docmt.model.config import ModelConfig
from docmt.model.packed import Packed, pack
from docmt.model.reading import Reading
from docmt.model.spans import Spans
from docmt.model.transformer import TranslationModel

__all__ = ["ModelConfig", "Packed", "Reading", "Spans", "TranslationModel", "attend", "pack"]
