"""BART (Lewis et al. 2020), and what the families have in common that were made of it."""

from docmt.model.families.family import Family, HuggingFace

SIDES = ("encoder", "decoder")

ACTIVATIONS: dict[str, object] = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "silu": "silu",
    "swish": "silu",
}


def of_both(entry: str) -> tuple[str, ...]:
    """The entry of the encoder and that of the decoder."""
    return tuple(f"{side}_{entry}" for side in SIDES)


HUGGINGFACE = HuggingFace(
    types=("bart",),
    architecture="BartForConditionalGeneration",
    entries={
        "vocabulary_size": ("vocab_size",),
        "width": ("d_model",),
        "feed_forward": of_both("ffn_dim"),
        "heads": of_both("attention_heads"),
        "encoder_layers": ("encoder_layers",),
        "decoder_layers": ("decoder_layers",),
        "activation": ("activation_function",),
        "max_positions": ("max_position_embeddings",),
        "scale_embeddings": ("scale_embedding",),
        "dropout": ("dropout",),
        "attention_dropout": ("attention_dropout",),
    },
    sizes={"normalization": "post", "embedding_normalization": True, "position_encoding": "learned"},
    values={"activation_function": ACTIVATIONS},
    usual={
        "encoder_layers": 12,
        "decoder_layers": 12,
        "encoder_ffn_dim": 4096,
        "decoder_ffn_dim": 4096,
        "encoder_attention_heads": 16,
        "decoder_attention_heads": 16,
        "vocab_size": 50265,
        "d_model": 1024,
        "activation_function": "gelu",
        "max_position_embeddings": 1024,
        "scale_embedding": False,
        "dropout": 0.1,
        "attention_dropout": 0.0,
    },
    names=(
        (r"^model\.", ""),
        (r"self_attn_layer_norm", "attention_residual.norm"),
        (r"encoder_attn_layer_norm", "cross_residual.norm"),
        (r"final_layer_norm", "feed_forward_residual.norm"),
        (r"self_attn", "attention.local"),
        (r"encoder_attn", "cross.local"),
        (r"\.([qkv])_proj", r".\1"),
        (r"\.q\.", ".query."),
        (r"\.k\.", ".key."),
        (r"\.v\.", ".value."),
        (r"out_proj", "output"),
        (r"\.fc1\.", ".feed_forward.inner."),
        (r"\.fc2\.", ".feed_forward.outer."),
        (r"^(encoder|decoder)\.layers\.", r"\1."),
        (r"^(encoder|decoder)\.layer_norm", r"\1_norm"),
        (r"^encoder\.layernorm_embedding", "source_norm"),
        (r"^decoder\.layernorm_embedding", "target_norm"),
        (r"^encoder\.embed_positions\.weight", "source_positions.table.weight"),
        (r"^decoder\.embed_positions\.weight", "target_positions.table.weight"),
        (r"^final_logits_bias", "head_bias.vector"),
    ),
    written=(
        (r"^(encoder|decoder)\.(\d+)\.", r"model.\1.layers.\2."),
        (r"\.attention_residual\.norm", ".self_attn_layer_norm"),
        (r"\.cross_residual\.norm", ".encoder_attn_layer_norm"),
        (r"\.feed_forward_residual\.norm", ".final_layer_norm"),
        (r"\.attention\.local", ".self_attn"),
        (r"\.cross\.local", ".encoder_attn"),
        (r"\.query\.", ".q_proj."),
        (r"\.key\.", ".k_proj."),
        (r"\.value\.", ".v_proj."),
        (r"\.output\.", ".out_proj."),
        (r"\.feed_forward\.inner\.", ".fc1."),
        (r"\.feed_forward\.outer\.", ".fc2."),
        (r"^(encoder|decoder)_norm", r"model.\1.layer_norm"),
        (r"^source_norm", "model.encoder.layernorm_embedding"),
        (r"^target_norm", "model.decoder.layernorm_embedding"),
        (r"^source_positions\.table", "model.encoder.embed_positions"),
        (r"^target_positions\.table", "model.decoder.embed_positions"),
        (r"^head_bias\.vector", "final_logits_bias"),
    ),
    tables={
        "tokens": ("model.shared", "model.encoder.embed_tokens", "model.decoder.embed_tokens", "lm_head"),
    },
    fixed={"is_decoder": (False,)},
    facts={"normalize_before": False, "normalize_embedding": True, "add_final_layer_norm": False},
    first_position=2,
)

BART = Family(
    target="</s> <s> w </s>",
    head_bias=True,
    unpredicted=(0, 2),
    huggingface=HUGGINGFACE,
)
