"""A grammar that writes parallel documents in which translation depends on earlier sentences."""

from docmt.synthetic.corpus import ContrastiveItem, contrastive_items, read_pronouns, write_corpus
from docmt.synthetic.grammar import Pronoun, SyntheticDocument, generate
from docmt.synthetic.scoring import PronounScore, pronoun_accuracy

__all__ = [
    "ContrastiveItem",
    "Pronoun",
    "PronounScore",
    "SyntheticDocument",
    "contrastive_items",
    "generate",
    "pronoun_accuracy",
    "read_pronouns",
    "write_corpus",
]
