"""mBART (Liu et al. 2020) of 25 languages, and of 50 (Tang et al. 2020), which marks sentences in another way."""

from dataclasses import replace

from docmt.model.families.bart import HUGGINGFACE
from docmt.model.families.family import Family

_MBART = replace(
    HUGGINGFACE,
    types=("mbart",),
    architecture="MBartForConditionalGeneration",
    sizes={**HUGGINGFACE.sizes, "normalization": "pre"},
    facts={"normalize_before": True, "normalize_embedding": True, "add_final_layer_norm": True},
)

MBART = Family(
    source="w </s> SOURCE",
    target="TARGET w </s>",
    head_bias=True,
    unpredicted=(0, 2),
    huggingface=_MBART,
)

MBART50 = replace(
    MBART,
    source="SOURCE w </s>",
    target="</s> TARGET w </s>",
    huggingface=replace(_MBART, tokenizers=("MBart50Tokenizer", "MBart50TokenizerFast")),
)
