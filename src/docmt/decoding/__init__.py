"""From a trained model to translations: beam search in the frame, scoring, documents of any length."""

from docmt.decoding.config import SearchConfig
from docmt.decoding.pieces import score_documents, translate_documents, translate_ids
from docmt.decoding.search import Hypothesis, search
from docmt.decoding.translator import TranslatedSentence, Translation, Translator

__all__ = [
    "Hypothesis",
    "SearchConfig",
    "TranslatedSentence",
    "Translation",
    "Translator",
    "score_documents",
    "search",
    "translate_documents",
    "translate_ids",
]
