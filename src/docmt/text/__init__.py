"""Strings to token ids and back."""

from docmt.text.bpe import BpeTokenizer
from docmt.text.dictionary import DictionaryTokenizer
from docmt.text.sentencepiece_tokenizer import SentencePieceTokenizer
from docmt.text.tokenizer import SpecialTokens, Tokenizer, load_tokenizer, train_tokenizer

__all__ = [
    "BpeTokenizer",
    "DictionaryTokenizer",
    "SentencePieceTokenizer",
    "SpecialTokens",
    "Tokenizer",
    "load_tokenizer",
    "train_tokenizer",
]
