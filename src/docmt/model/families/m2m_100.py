"""M2M100 (Fan et al. 2020) and the dense models of NLLB-200 (NLLB Team 2022)."""

from dataclasses import replace

from docmt.model.families.bart import HUGGINGFACE
from docmt.model.families.family import Family

M2M_100 = Family(
    source="SOURCE w </s>",
    target="</s> TARGET w </s>",
    unpredicted=(0, 2),
    huggingface=replace(
        HUGGINGFACE,
        types=("m2m_100",),
        architecture="M2M100ForConditionalGeneration",
        sizes={"normalization": "pre", "embedding_normalization": False, "position_encoding": "sinusoidal"},
        usual={
            **HUGGINGFACE.usual,
            "vocab_size": 128112,
            "activation_function": "relu",
            "scale_embedding": True,
            "attention_dropout": 0.1,
        },
        facts={},
        pad=1,
        any_length=True,
        no_weights=r"embed_positions\.weights$",
    ),
)
