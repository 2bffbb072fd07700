"""THUMT, the toolkit of Zhang et al. (2018).

Three matrices (source, target, softmax), a learned vector on every source embedding, positions from 0, a zero vector
instead of a start mark, and sentences `w .. </s>` without `<s>`. Ids are docmt's; `<s>`, `<eod>` and `<mask>`, which
THUMT does not have, have no row in the softmax.
"""

from docmt.model.families.family import START_ID, Family

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
