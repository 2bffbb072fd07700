"""From a trained model to translations: beam search in the frame, scoring, documents of any length."""

from docmt.decoding.config import SearchConfig
from docmt.decoding.document import DocumentHypothesis
from docmt.decoding.orders import translate_documents, translate_ids
from docmt.decoding.scoring import score_documents
from docmt.decoding.search import Hypothesis, search
from docmt.decoding.translator import TranslatedSentence, Translation, Translator

__all__ = [
    "DocumentHypothesis",
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
