"""The families of checkpoints: what is data in which they differ."""

from docmt.model.families.family import START_ID, Family, HuggingFace
from docmt.model.families.huggingface import BART, BERT, M2M_100, MADLAD, MARIAN, MBART, MBART50, ROBERTA, T5

DOCMT = Family(goes_on=True)
"""Models of docmt's own, in the conventions of Bao et al. (2021)."""

THUMT = Family(
    source="w </s>",
    target="<s> w",
    norm_epsilon=1e-6,
    first_position=0,
    tables="two",
    head="own",
    unpredicted=(1, 2),
    zero=START_ID,  # decoder input begins with <s>, whose row is the zero vector that THUMT puts there
    source_bias=True,
    order="sentences",
)
"""THUMT, the toolkit of Zhang et al. (2018).

Three matrices (source, target, softmax), a learned vector on every source embedding, positions from 0, a zero vector
instead of a start mark, and sentences `w .. </s>` without `<s>`. Ids are docmt's; `<s>`, `<eod>` and `<mask>`, which
THUMT does not have, have no row in the softmax.
"""

RFA = Family(source="w </s>", target="<s> w", joined=True, tables="two", unpredicted=(0, 2), order="windows")
"""The published code of Wu et al. (2022), which is built on fairseq.

A matrix of embeddings for each side, that of the target for the output as well, and sentences of a window joined by one
mark, here `<s>`. The code has no `<eod>` and no `<mask>`: the softmax has no rows for them.
"""

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
