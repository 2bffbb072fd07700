"""Strings to token ids and back."""

from docmt.text.bpe import BpeTokenizer
from docmt.text.dictionary import DictionaryTokenizer
from docmt.text.kinds import load_tokenizer, train_tokenizer
from docmt.text.moses_bpe import MosesBpeTokenizer
from docmt.text.sentencepiece_tokenizer import SentencePieceTokenizer
from docmt.text.tokenizer import Side, SpecialTokens, Tokenizer

__all__ = [
    "BpeTokenizer",
    "DictionaryTokenizer",
    "MosesBpeTokenizer",
    "SentencePieceTokenizer",
    "Side",
    "SpecialTokens",
    "Tokenizer",
    "load_tokenizer",
    "train_tokenizer",
]
