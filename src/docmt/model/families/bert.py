"""Encoders of pretrained language models, under decoders of docmt's own: BERT (Devlin et al. 2019) and RoBERTa (Liu et
al. 2019), XLM-R (Conneau et al. 2020).

There is no such translation model to convert, but an encoder to start a training from (Bao et al. 2021, Table 2). Their
embeddings of token types are those of one type here, a constant, and part of the positions.
"""

from dataclasses import replace

from docmt.model.families.family import Encoder, Family, HuggingFace

_SIZES = {
    "normalization": "post",
    "activation": "gelu",
    "scale_embeddings": False,
    "embedding_normalization": True,
    "position_encoding": "learned",
}
_HUGGINGFACE = HuggingFace(
    types=("bert",),
    architecture="BertModel",
    entries={
        "source_vocabulary_size": ("vocab_size",),
        "encoder_width": ("hidden_size",),
        "encoder_feed_forward": ("intermediate_size",),
        "encoder_heads": ("num_attention_heads",),
        "encoder_layers": ("num_hidden_layers",),
        "max_positions": ("max_position_embeddings",),
    },
    usual={
        "vocab_size": 30522,
        "hidden_size": 768,
        "intermediate_size": 3072,
        "num_attention_heads": 12,
        "num_hidden_layers": 12,
        "max_position_embeddings": 512,
        "layer_norm_eps": 1e-12,
        "pad_token_id": 0,
    },
    fixed={
        "hidden_act": ("gelu",),
        "layer_norm_eps": (1e-12,),
        "position_embedding_type": ("absolute",),
        "is_decoder": (False,),
        "add_cross_attention": (False,),
    },
    names=(
        (r"^(bert|roberta)\.", ""),
        (r"^embeddings\.word_embeddings", "source_tokens"),
        (r"^embeddings\.position_embeddings", "source_positions.table"),
        (r"^embeddings\.token_type_embeddings", "types"),
        (r"^embeddings\.LayerNorm", "source_norm"),
        (r"^encoder\.layer\.", "encoder."),
        (r"attention\.self", "attention.local"),
        (r"attention\.output\.dense", "attention.local.output"),
        (r"attention\.output\.LayerNorm", "attention_residual.norm"),
        (r"intermediate\.dense", "feed_forward.inner"),
        (r"(\d)\.output\.LayerNorm", r"\1.feed_forward_residual.norm"),
        (r"(\d)\.output\.dense", r"\1.feed_forward.outer"),
        (r"\.gamma$", ".weight"),
        (r"\.beta$", ".bias"),
    ),
    # What is trained on top of the encoder, by many names.
    no_weights=r"^(?!((bert|roberta)\.)?(embeddings|encoder)\.)|position_ids$",
)

BERT = Family(goes_on=True, tables="two", encoder=Encoder(_SIZES, norm_epsilon=1e-12), huggingface=_HUGGINGFACE)

ROBERTA = replace(
    BERT,
    encoder=Encoder(_SIZES, norm_epsilon=1e-5),
    huggingface=replace(
        _HUGGINGFACE,
        types=("roberta", "xlm-roberta"),
        usual={**_HUGGINGFACE.usual, "vocab_size": 50265, "pad_token_id": 1},
        fixed={**_HUGGINGFACE.fixed, "layer_norm_eps": (1e-5,), "pad_token_id": (1,)},
        first_position=2,
    ),
)
