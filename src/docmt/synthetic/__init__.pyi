from .grammar import SyntheticDocument as SyntheticDocument
from .synthetic_corpus import read_pronouns as read_pronouns
from .synthetic_corpus import score_pronouns as score_pronouns
from .synthetic_corpus import write_corpus as write_corpus
