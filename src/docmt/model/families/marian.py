"""Marian (Junczys-Dowmunt et al. 2018), the toolkit of the OPUS-MT models."""

from dataclasses import replace

from docmt.model.families.bart import HUGGINGFACE
from docmt.model.families.family import Family

_SIZES = {"vocabulary_size": ("decoder_vocab_size",), "source_vocabulary_size": ("vocab_size",)}

MARIAN = Family(
    source="TARGET w </s>",
    target="<pad> w </s>",
    first_position=0,
    frequencies="vaswani",
    tables="either",
    head_bias=True,
    says_padding=False,
    unpredicted=(1, 2),
    huggingface=replace(
        HUGGINGFACE,
        types=("marian",),
        architecture="MarianMTModel",
        entries={**HUGGINGFACE.entries, **_SIZES},
        sizes={"normalization": "post", "embedding_normalization": False, "position_encoding": "sinusoidal"},
        usual={**HUGGINGFACE.usual, "vocab_size": 58101, "decoder_vocab_size": "vocab_size"},
        fixed={
            **HUGGINGFACE.fixed,
            "normalize_before": (False,),
            "normalize_embedding": (False,),
            "add_final_layer_norm": (False,),
            "static_position_embeddings": (True,),
        },
        tables={
            **HUGGINGFACE.tables,
            "source_tokens": ("model.encoder.embed_tokens",),
            "target_tokens": ("model.decoder.embed_tokens", "lm_head"),
        },
        no_weights=r"embed_positions\.weight$",
        facts={"normalize_before": False, "normalize_embedding": False, "static_position_embeddings": True},
        begins_with_pad=True,
        first_position=0,
    ),
)
