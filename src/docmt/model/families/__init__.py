"""The families of checkpoints."""

from docmt.model.families.conventions import START_ID, Family, HuggingFace
from docmt.model.families.huggingface import BART, BERT, M2M_100, MADLAD, MARIAN, MBART, MBART50, ROBERTA, T5

DOCMT = Family(predicts_boundary=True)
"""Models trained by docmt, in the conventions of Bao et al. (2021)."""

THUMT = Family(
    source="w </s>",
    target="<s> w",
    norm_epsilon=1e-6,
    first_position=0,
    tables="two",
    head="untied",
    ids_without_logits=(1, 2),
    zero_row=START_ID,  # decoder input starts with <s>, a zero vector in THUMT
    source_bias=True,
    system_order="sentences",
)
"""THUMT, the toolkit of Zhang et al. (2018).

Three matrices (source, target, softmax), a learned vector added to every source embedding, positions from 0, a zero
vector instead of a start token, and sentences `w .. </s>` without `<s>`. Ids are those of docmt. `<s>`, `<eod>` and
`<mask>`, which THUMT lacks, have no row in the softmax.
"""

RFA = Family(
    source="w </s>", target="<s> w", joined=True, tables="two", ids_without_logits=(0, 2), system_order="windows"
)
"""The published code of Wu et al. (2022), which is built on fairseq.

One embedding matrix per side. The target matrix is also the output matrix. A single `<s>` separates the sentences of a
window. The code has no `<eod>` and no `<mask>`, so the softmax has no rows for them.
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
