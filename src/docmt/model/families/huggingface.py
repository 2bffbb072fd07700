"""Families of pretrained models, in the directories of the library transformers."""

from dataclasses import replace

from docmt.model.families.conventions import Encoder, Family, HuggingFace

_ACTIVATIONS: dict[str, object] = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "silu": "silu",
    "swish": "silu",
}
_PROJECTIONS = ((r"\.q\.", ".query."), (r"\.k\.", ".key."), (r"\.v\.", ".value."))


_BART = HuggingFace(
    model_types=("bart",),
    architecture="BartForConditionalGeneration",
    entries={
        "vocabulary_size": ("vocab_size",),
        "width": ("d_model",),
        "feed_forward": ("encoder_ffn_dim", "decoder_ffn_dim"),
        "heads": ("encoder_attention_heads", "decoder_attention_heads"),
        "encoder_layers": ("encoder_layers",),
        "decoder_layers": ("decoder_layers",),
        "activation": ("activation_function",),
        "max_positions": ("max_position_embeddings",),
        "scale_embeddings": ("scale_embedding",),
        "dropout": ("dropout",),
        "attention_dropout": ("attention_dropout",),
    },
    fixed_sizes={"normalization": "post", "embedding_normalization": True, "position_encoding": "learned"},
    value_names={"activation_function": _ACTIVATIONS},
    defaults={
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
    weight_names=(
        (r"^model\.", ""),
        (r"self_attn_layer_norm", "attention_residual.norm"),
        (r"encoder_attn_layer_norm", "cross_residual.norm"),
        (r"final_layer_norm", "feed_forward_residual.norm"),
        (r"self_attn", "attention.local"),
        (r"encoder_attn", "cross.local"),
        (r"\.([qkv])_proj", r".\1"),
        *_PROJECTIONS,
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
    token_tables={"tokens": ("model.shared", "model.encoder.embed_tokens", "model.decoder.embed_tokens", "lm_head")},
    supported_values={"is_decoder": (False,)},
    first_position=2,
)

BART = Family(target="</s> <s> w </s>", head_bias=True, ids_without_logits=(0, 2), huggingface=_BART)
"""BART (Lewis et al. 2020)."""


_MBART = replace(
    _BART,
    model_types=("mbart",),
    architecture="MBartForConditionalGeneration",
    fixed_sizes={**_BART.fixed_sizes, "normalization": "pre"},
)

MBART = replace(BART, source="w </s> SOURCE", target="TARGET w </s>", huggingface=_MBART)
"""mBART (Liu et al. 2020) of 25 languages."""

MBART50 = replace(
    MBART,
    source="SOURCE w </s>",
    target="</s> TARGET w </s>",
    huggingface=replace(_MBART, tokenizers=("MBart50Tokenizer", "MBart50TokenizerFast")),
)
"""mBART of 50 languages (Tang et al. 2020), with other boundary tokens."""

M2M_100 = Family(
    source="SOURCE w </s>",
    target="</s> TARGET w </s>",
    ids_without_logits=(0, 2),
    huggingface=replace(
        _BART,
        model_types=("m2m_100",),
        architecture="M2M100ForConditionalGeneration",
        fixed_sizes={"normalization": "pre", "embedding_normalization": False, "position_encoding": "sinusoidal"},
        defaults={
            **_BART.defaults,
            "vocab_size": 128112,
            "activation_function": "relu",
            "scale_embedding": True,
            "attention_dropout": 0.1,
        },
        ignored_weights=r"embed_positions\.weights$",
    ),
)
"""M2M100 (Fan et al. 2020) and the dense models of NLLB-200 (NLLB Team 2022)."""

_MARIAN_TABLES = {"vocabulary_size": ("decoder_vocab_size",), "source_vocabulary_size": ("vocab_size",)}

MARIAN = Family(
    source="TARGET w </s>",
    target="<pad> w </s>",
    first_position=0,
    frequencies="vaswani",
    tables="either",
    head_bias=True,
    can_generate_padding=False,
    ids_without_logits=(1, 2),
    huggingface=replace(
        _BART,
        model_types=("marian",),
        architecture="MarianMTModel",
        entries={**_BART.entries, **_MARIAN_TABLES},
        fixed_sizes={"normalization": "post", "embedding_normalization": False, "position_encoding": "sinusoidal"},
        defaults={**_BART.defaults, "vocab_size": 58101, "decoder_vocab_size": "vocab_size"},
        supported_values={
            **_BART.supported_values,
            "normalize_before": (False,),
            "normalize_embedding": (False,),
            "add_final_layer_norm": (False,),
            "static_position_embeddings": (True,),
        },
        token_tables={
            **_BART.token_tables,
            "source_tokens": ("model.encoder.embed_tokens",),
            "target_tokens": ("model.decoder.embed_tokens", "lm_head"),
        },
        ignored_weights=r"embed_positions\.weight$",
        first_position=0,
    ),
)
"""Marian (Junczys-Dowmunt et al. 2018), the toolkit of the OPUS-MT models."""

_BERT_SIZES = {
    "normalization": "post",
    "activation": "gelu",
    "scale_embeddings": False,
    "embedding_normalization": True,
    "position_encoding": "learned",
}
_BERT = HuggingFace(
    model_types=("bert",),
    architecture="BertModel",
    entries={
        "source_vocabulary_size": ("vocab_size",),
        "encoder_width": ("hidden_size",),
        "encoder_feed_forward": ("intermediate_size",),
        "encoder_heads": ("num_attention_heads",),
        "encoder_layers": ("num_hidden_layers",),
        "max_positions": ("max_position_embeddings",),
    },
    defaults={
        "vocab_size": 30522,
        "hidden_size": 768,
        "intermediate_size": 3072,
        "num_attention_heads": 12,
        "num_hidden_layers": 12,
        "max_position_embeddings": 512,
        "layer_norm_eps": 1e-12,
        "pad_token_id": 0,
    },
    supported_values={
        "hidden_act": ("gelu",),
        "layer_norm_eps": (1e-12,),
        "position_embedding_type": ("absolute",),
        "is_decoder": (False,),
        "add_cross_attention": (False,),
    },
    weight_names=(
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
    # Modules on top of the encoder have many names.
    ignored_weights=r"^(?!((bert|roberta)\.)?(embeddings|encoder)\.)|position_ids$",
)

BERT = Family(predicts_boundary=True, tables="two", encoder=Encoder(_BERT_SIZES, norm_epsilon=1e-12), huggingface=_BERT)
"""BERT (Devlin et al. 2019): the encoder of a language model, with a docmt decoder.

It initializes the encoder in training (Bao et al. 2021, Table 2). There is no translation model to convert. The
embedding of token type 0 is constant, and is added to the positions.
"""

ROBERTA = replace(
    BERT,
    encoder=Encoder(_BERT_SIZES, norm_epsilon=1e-5),
    huggingface=replace(
        _BERT,
        model_types=("roberta", "xlm-roberta"),
        defaults={**_BERT.defaults, "vocab_size": 50265, "pad_token_id": 1},
        supported_values={**_BERT.supported_values, "layer_norm_eps": (1e-5,), "pad_token_id": (1,)},
        first_position=2,
    ),
)
"""RoBERTa (Liu et al. 2019) and XLM-R (Conneau et al. 2020)."""

_T5_ACTIVATIONS: dict[str, object] = {
    **_ACTIVATIONS,
    "gated-relu": "gated_relu",
    "gated-gelu": "gated_gelu_tanh",  # as the library reads it
    "gated-gelu_new": "gated_gelu_tanh",
    "gated-silu": "gated_silu",
}

_T5 = HuggingFace(
    model_types=("t5", "mt5"),
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
    fixed_sizes={
        "normalization": "pre",
        "embedding_normalization": False,
        "position_encoding": "relative",
        "scale_embeddings": False,
    },
    value_names={"feed_forward_proj": _T5_ACTIVATIONS},
    defaults={
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
    supported_values={"layer_norm_epsilon": (1e-6,)},
    weight_names=(
        (r"\.block\.(\d+)\.layer\.0\.layer_norm", r".\1.attention_residual.norm"),
        (r"\.block\.(\d+)\.layer\.0\.SelfAttention\.relative_attention_bias", "_distances.table"),
        (r"\.block\.(\d+)\.layer\.0\.SelfAttention", r".\1.attention.local"),
        (r"\.block\.(\d+)\.layer\.1\.EncDecAttention", r".\1.cross.local"),
        (r"^decoder\.block\.(\d+)\.layer\.1\.layer_norm", r"decoder.\1.cross_residual.norm"),
        (r"\.block\.(\d+)\.layer\.\d\.layer_norm", r".\1.feed_forward_residual.norm"),
        (r"\.block\.(\d+)\.layer\.\d\.DenseReluDense", r".\1.feed_forward"),
        *_PROJECTIONS,
        (r"\.o\.weight", ".output.weight"),
        (r"\.(wi|wi_0)\.weight", ".inner.weight"),
        (r"\.wi_1\.weight", ".factor.weight"),
        (r"\.wo\.weight", ".outer.weight"),
        (r"final_layer_norm", "norm"),
        (r"^(encoder|decoder)\.norm", r"\1_norm"),
        (r"^lm_head", "softmax"),
    ),
    starts_with_padding=True,
    scaled_types=("t5",),
    token_tables={"tokens": ("shared", "encoder.embed_tokens", "decoder.embed_tokens", "lm_head")},
)

T5 = Family(
    source="TARGET w </s>",
    target="<pad> w </s>",
    norm="rms",
    norm_epsilon=1e-6,
    biases=False,
    scaled=False,
    ids_without_logits=(1, 2),
    zero_row=None,
    huggingface=_T5,
)
"""T5 (Raffel et al. 2020), its version 1.1, and mT5 (Xue et al. 2021)."""

MADLAD = replace(T5, target="<unk> w </s>", huggingface=replace(_T5, starts_with_padding=False))
"""MADLAD-400 (Kudugunta et al. 2023)."""
