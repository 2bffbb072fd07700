"""The published code of Wu et al. (2022), which is built on fairseq.

A matrix of embeddings for each side, that of the target for the output as well, and sentences of a window joined by one
mark, here `<s>`. The code has no `<eod>` and no `<mask>`: the softmax has no rows for them.
"""

from docmt.model.families.family import Family

RFA = Family(source="w </s>", target="<s> w", joined=True, tables="two", unpredicted=(0, 2), order="windows")
