"""T5 (Raffel et al. 2020), its version 1.1, mT5 (Xue et al. 2021) and MADLAD-400 (Kudugunta et al. 2023)."""

from dataclasses import replace

from docmt.model.families.family import Family, HuggingFace

_ACTIVATIONS: dict[str, object] = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "silu": "silu",
    "gated-relu": "gated_relu",
    "gated-gelu": "gated_gelu_tanh",  # as the library reads it
    "gated-gelu_new": "gated_gelu_tanh",
    "gated-silu": "gated_silu",
}

_HUGGINGFACE = HuggingFace(
    types=("t5", "mt5"),
    architecture="T5ForConditionalGeneration",
    entries={
        "vocabulary_size": ("vocab_size",),
        "width": ("d_model",),
        "head_width": ("d_kv",),
        "feed_forward": ("d_ff",),
        "heads": ("num_heads",),
        "encoder_layers": ("num_layers",),
        "decoder_layers": ("num_decoder_layers",),
        "activation": ("feed_forward_proj",),
        "relative_buckets": ("relative_attention_num_buckets",),
        "relative_distance": ("relative_attention_max_distance",),
        "dropout": ("dropout_rate",),
    },
    sizes={
        "normalization": "pre",
        "embedding_normalization": False,
        "position_encoding": "relative",
        "scale_embeddings": False,
    },
    values={"feed_forward_proj": _ACTIVATIONS},
    usual={
        "vocab_size": 32128,
        "d_model": 512,
        "d_kv": 64,
        "d_ff": 2048,
        "num_heads": 8,
        "num_layers": 6,
        "num_decoder_layers": "num_layers",
        "feed_forward_proj": "relu",
        "relative_attention_num_buckets": 32,
        "relative_attention_max_distance": 128,
        "dropout_rate": 0.1,
        "layer_norm_epsilon": 1e-6,
    },
    fixed={"layer_norm_epsilon": (1e-6,)},
    names=(
        (r"\.block\.(\d+)\.layer\.0\.layer_norm", r".\1.attention_residual.norm"),
        (r"\.block\.(\d+)\.layer\.0\.SelfAttention\.relative_attention_bias", "_distances.table"),
        (r"\.block\.(\d+)\.layer\.0\.SelfAttention", r".\1.attention.local"),
        (r"\.block\.(\d+)\.layer\.1\.EncDecAttention", r".\1.cross.local"),
        (r"^decoder\.block\.(\d+)\.layer\.1\.layer_norm", r"decoder.\1.cross_residual.norm"),
        (r"\.block\.(\d+)\.layer\.\d\.layer_norm", r".\1.feed_forward_residual.norm"),
        (r"\.block\.(\d+)\.layer\.\d\.DenseReluDense", r".\1.feed_forward"),
        (r"\.q\.weight", ".query.weight"),
        (r"\.k\.weight", ".key.weight"),
        (r"\.v\.weight", ".value.weight"),
        (r"\.o\.weight", ".output.weight"),
        (r"\.(wi|wi_0)\.weight", ".inner.weight"),
        (r"\.wi_1\.weight", ".factor.weight"),
        (r"\.wo\.weight", ".outer.weight"),
        (r"final_layer_norm", "norm"),
        (r"^(encoder|decoder)\.norm", r"\1_norm"),
        (r"^lm_head", "softmax"),
    ),
    written=(
        (r"^(encoder|decoder)_distances\.table", r"\1.0.attention.local.relative_attention_bias"),
        (r"^(encoder|decoder)\.(\d+)\.", r"\1.block.\2."),
        (r"\.attention_residual\.norm", ".layer.0.layer_norm"),
        (r"\.attention\.local", ".layer.0.SelfAttention"),
        (r"\.cross_residual\.norm", ".layer.1.layer_norm"),
        (r"\.cross\.local", ".layer.1.EncDecAttention"),
        (r"^(encoder.*)\.feed_forward", r"\1.layer.1.feed_forward"),
        (r"^(decoder.*)\.feed_forward", r"\1.layer.2.feed_forward"),
        (r"\.feed_forward_residual\.norm", ".layer_norm"),
        (r"\.feed_forward\.", ".DenseReluDense."),
        (r"\.query\.", ".q."),
        (r"\.key\.", ".k."),
        (r"\.value\.", ".v."),
        (r"\.output\.", ".o."),
        (r"\.inner\.", ".wi."),
        (r"\.factor\.", ".wi_1."),
        (r"\.outer\.", ".wo."),
        (r"^(encoder|decoder)_norm", r"\1.final_layer_norm"),
    ),
    gated=((r"\.wi\.", ".wi_0."),),
    any_length=True,
    pad_begins=True,
    scaled_types=("t5",),
    tables={"tokens": ("shared", "encoder.embed_tokens", "decoder.embed_tokens", "lm_head")},
)

T5 = Family(
    source="TARGET w </s>",
    target="<pad> w </s>",
    norm="rms",
    norm_epsilon=1e-6,
    biases=False,
    scaled=False,
    unpredicted=(1, 2),
    zero=None,
    huggingface=_HUGGINGFACE,
)

MADLAD = replace(T5, target="<unk> w </s>", huggingface=replace(_HUGGINGFACE, pad_begins=False))
