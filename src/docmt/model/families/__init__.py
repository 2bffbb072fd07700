"""The families of checkpoints: what is data in which they differ, one short file each."""

from docmt.model.families.bart import BART
from docmt.model.families.bert import BERT, ROBERTA
from docmt.model.families.family import Family, HuggingFace
from docmt.model.families.m2m_100 import M2M_100
from docmt.model.families.marian import MARIAN
from docmt.model.families.mbart import MBART, MBART50
from docmt.model.families.rfa import RFA
from docmt.model.families.t5 import MADLAD, T5
from docmt.model.families.thumt import THUMT

DOCMT = Family(goes_on=True)
"""Models of docmt's own, in the conventions of Bao et al. (2021)."""

FAMILIES: dict[str, Family] = {
    "docmt": DOCMT,
    "thumt": THUMT,
    "rfa": RFA,
    "bart": BART,
    "mbart": MBART,
    "mbart50": MBART50,
    "m2m_100": M2M_100,
    "marian": MARIAN,
    "t5": T5,
    "madlad": MADLAD,
    "bert": BERT,
    "roberta": ROBERTA,
}

__all__ = ["FAMILIES", "Family", "HuggingFace"]
