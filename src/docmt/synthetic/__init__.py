"""A grammar that writes parallel documents in which translation depends on earlier sentences."""

from docmt.synthetic.corpus import (
    ContrastiveItem,
    PhenomenonItem,
    PronounScore,
    contrastive_items,
    phenomenon_items,
    pronoun_accuracy,
    read_pronouns,
    write_corpus,
    write_phenomena,
)
from docmt.synthetic.grammar import Pronoun, SyntheticDocument, generate
from docmt.synthetic.phenomena import PHENOMENA, MarkedDocument, Phenomenon, generate_phenomena

__all__ = [
    "PHENOMENA",
    "ContrastiveItem",
    "MarkedDocument",
    "Phenomenon",
    "PhenomenonItem",
    "Pronoun",
    "PronounScore",
    "SyntheticDocument",
    "contrastive_items",
    "generate",
    "generate_phenomena",
    "phenomenon_items",
    "pronoun_accuracy",
    "read_pronouns",
    "write_corpus",
    "write_phenomena",
]
