from .grammar import SyntheticDocument as SyntheticDocument
from .synthetic_corpus import write_corpus as write_corpus
