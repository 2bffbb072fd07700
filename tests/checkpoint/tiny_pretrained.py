"""Tiny random models of every family that `docmt convert huggingface` reads, made with transformers' own classes."""

import shutil

import hub
import torch

from docmt.checkpoint import convert_huggingface

VOCABULARY = 61
SIZES = {
    "d_model": 16,
    "encoder_layers": 3,  # their caches want no fewer than in the decoder
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 24,
    "max_position_embeddings": 40,
    "vocab_size": VOCABULARY,
}
T5_SIZES = {
    "d_model": 16,
    "d_kv": 6,
    "d_ff": 24,
    "num_layers": 3,
    "num_decoder_layers": 2,
    "num_heads": 4,
    "vocab_size": VOCABULARY,
    "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 12,
    "initializer_factor": 0.5,  # at 1 logits are so large that float32 does not reach 1e-5
    "decoder_start_token_id": 0,
}
SOURCE, TARGET = 57, 58  # their ids of languages
MARIAN = {"pad_token_id": 60, "decoder_start_token_id": 60, "eos_token_id": 0, "forced_eos_token_id": None}
LATER = {"forced_eos_token_id": None}
VARIANTS = {
    "bart": ("Bart", {**SIZES, **LATER, "forced_bos_token_id": 0}),
    "bart, scaled": ("Bart", {**SIZES, **LATER, "forced_bos_token_id": 0, "scale_embedding": True}),
    "mbart": ("MBart", {**SIZES, **LATER, "scale_embedding": True, "decoder_start_token_id": TARGET}),
    "mbart50": (
        "MBart",
        {
            **SIZES,
            **LATER,
            "decoder_start_token_id": 2,
            "forced_bos_token_id": TARGET,
            "tokenizer_class": "MBart50Tokenizer",
        },
    ),
    "m2m_100": ("M2M100", {**SIZES, "forced_bos_token_id": TARGET, "activation_function": "relu"}),
    "marian": ("Marian", {**SIZES, **MARIAN, "activation_function": "swish", "scale_embedding": True}),
    "marian, apart": (
        "Marian",
        {
            **SIZES,
            **MARIAN,
            "vocab_size": 70,
            "decoder_vocab_size": VOCABULARY,
            "share_encoder_decoder_embeddings": False,
            "pad_token_id": 60,
        },
    ),
    "t5": ("T5", T5_SIZES),
    "t5, version 1.1": ("T5", {**T5_SIZES, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}),
    "mt5": ("MT5", {**T5_SIZES, "feed_forward_proj": "gated-gelu"}),
    "t5, gated silu": ("T5", {**T5_SIZES, "feed_forward_proj": "gated-silu"}),
    "madlad": (
        "T5",
        {
            **T5_SIZES,
            "pad_token_id": 1,
            "eos_token_id": 2,
            "feed_forward_proj": "gated-gelu",
            "tie_word_embeddings": False,
        },
    ),
}


# Noise of weights, of tables, how much larger the row of </s> is, its bias, and the seed: found by trying, so that
# translations are of several lengths. (Random models like to repeat a word for ever.)
RANDOM = {
    "bart": (1.0, 0.6, 2, 1.5, 2),
    "bart, scaled": (0.3, 0.3, 3, 0, 2),
    "mbart": (2.0, 0.3, 1, 3, 2),
    "mbart50": (4.0, 1.5, 1, 3, 1),
    "m2m_100": (4.0, 0.15, 2, 1.5, 1),
    "marian": (0.3, 0.6, 3, 3, 2),
    "marian, apart": (0.3, 0.6, 3, 3, 2),
    "t5": (4.0, 0.3, 3, 3, 1),
    "t5, version 1.1": (4.0, 0.6, 1, 1.5, 2),
    "mt5": (4.0, 0.6, 1, 1.5, 2),
    "t5, gated silu": (1.0, 0.6, 1, 3, 2),
    "madlad": (4.0, 0.6, 3, 1.5, 2),
}


def build(variant, random=False, **config_entries):
    """Build transformers' model of a variant with changed weights. random: weights of `RANDOM`, for
    translations that end. config_entries: of its config."""
    import transformers

    torch.manual_seed(1)
    kind, options = VARIANTS[variant]
    options = {**options, **config_entries}
    first = options.pop("forced_bos_token_id", None)  # a setting of translation, not of the model
    names = {"T5": "T5ForConditionalGeneration", "MT5": "MT5ForConditionalGeneration", "Marian": "MarianMTModel"}
    config = getattr(transformers, f"{kind}Config")(**options)
    model = getattr(transformers, names.get(kind, f"{kind}ForConditionalGeneration"))(config)
    model.generation_config.forced_bos_token_id = first
    model.generation_config.pad_token_id = framed(variant, [])[2]
    if random:
        _scatter(model, variant)
        return model.eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(0.3 * torch.randn_like(parameter))
        if hasattr(model, "final_logits_bias"):
            model.final_logits_bias.normal_()
    return model.eval()


@torch.no_grad()
def _scatter(model, variant):
    noise, spread, larger, bias, seed = RANDOM[variant]
    eos = framed(variant, [])[3]
    torch.manual_seed(seed)
    for name, weights in model.named_parameters():
        if not weights.requires_grad:
            continue
        if any(table in name for table in ("shared", "embed_tokens", "lm_head")):
            weights.normal_(std=spread)
            weights[eos] *= larger
        elif "relative" in name or "embed_positions" in name:
            weights.normal_()
        elif weights.dim() > 1:
            weights.normal_(std=noise)
        else:
            weights.normal_(1.0 if "norm" in name and "weight" in name else 0.0, 0.3)
    if hasattr(model, "final_logits_bias"):
        model.final_logits_bias.normal_(std=0.3)
        model.final_logits_bias[0, eos] = bias


def rows_of(model, side):
    """For each of docmt's ids of a side the row that transformers has for it, or -1."""
    config = model.config
    count = config.vocab_size
    if side == "target" and config.model_type == "marian":
        count = config.decoder_vocab_size
    begins = {"marian": [-1, config.pad_token_id, 0, 1], "t5": [-1, 0, 1, 2], "mt5": [-1, 0, 1, 2]}
    first = begins.get(config.model_type, [0, 1, 2, 3])
    if config.model_type == "t5" and config.pad_token_id == 1:  # MADLAD
        first = [-1, 1, 2, 0]
    return [*first, *(row for row in range(count) if row not in first), -1, -1]


def framed(variant, words):
    """A source sentence, and the decoder input for the same words, as transformers' tokenizers mark them (its ids)."""
    family = variant.partition(",")[0]
    unk = 0  # of MADLAD
    bos, pad, eos = {"marian": (None, 60, 0), "t5": (None, 0, 1), "mt5": (None, 0, 1)}.get(family, (0, 1, 2))
    source = {
        "bart": [bos, *words, eos],
        "mbart": [*words, eos, SOURCE],
        "mbart50": [SOURCE, *words, eos],
        "m2m_100": [SOURCE, *words, eos],
    }.get(family, [*words, eos])
    opens = {"bart": [eos, bos], "mbart": [TARGET], "mbart50": [eos, TARGET], "m2m_100": [eos, TARGET]}
    opens["madlad"] = [unk]
    return source, [*opens.get(family, [pad]), *words], pad, eos


DE = {"source_language": "de_DE"}
PAIRS = {
    "bart": (hub.bart_json, {}),
    "bart, scaled": (hub.bart_json, {}),
    "mbart": (hub.mbart_spm, {**DE, "target_language": "en_XX"}),
    "mbart50": (hub.mbart50_json, {**DE, "target_language": "en_XX"}),
    "m2m_100": (hub.m2m100, {"source_language": "de", "target_language": "en"}),
    "marian": (hub.marian, {"source_language": "en", "target_language": "fra"}),
    "marian, apart": (lambda folder: hub.marian(folder, separate=True), {"target_language": "fra"}),
    "t5": (hub.t5_json, {"prefix": "translate this:"}),
    "t5, version 1.1": (hub.t5_spm, {}),
    "mt5": (hub.t5_json, {}),
    "t5, gated silu": (hub.t5_spm, {}),
    "madlad": (hub.madlad, {"target_language": "de"}),
}
assert PAIRS.keys() == VARIANTS.keys()


def convert_pretrained(folder, variant, make, languages, bias=True):
    """A directory of transformers with a tokenizer, and what it is converted to."""
    hub_directory = make(folder)
    sizes = {"vocab_size": hub_directory.rows}
    if "marian" in variant:
        pad = hub_directory.config["pad_token_id"]
        sizes |= {"pad_token_id": pad, "decoder_start_token_id": pad, "decoder_vocab_size": hub_directory.rows}
        if hub_directory.tokenizer.separate_vocabs:
            pad = hub_directory.tokenizer.target_encoder["<pad>"]
            sizes["decoder_start_token_id"] = pad  # of as many rows: the source's has to have one there, too
    ids = {code: hub_directory.tokenizer.convert_tokens_to_ids(code) for code in languages.values()}
    first = [ids[code] for name, code in languages.items() if name == "target_language"]
    if variant == "m2m_100" and make is hub.m2m100:
        first = [hub_directory.tokenizer.convert_tokens_to_ids("__en__")]
    if variant == "mbart":
        sizes["decoder_start_token_id"] = first[0]
    if variant in ("mbart50", "m2m_100"):
        sizes["forced_bos_token_id"] = first[0]
    model = build(variant, random=True, **sizes)
    if "marian" in variant:
        model.generation_config.pad_token_id = pad
    if not bias:
        model.final_logits_bias.zero_()
    directory = folder / f"{variant} {make.__name__}"
    shutil.copytree(hub_directory.path, directory, dirs_exist_ok=True)
    model.save_pretrained(directory)
    convert_huggingface(directory, folder / f"{directory.name} docmt", **languages)
    return model, folder / f"{directory.name} docmt", hub_directory


def save_marian(folder):
    """A transformers directory with a tokenizer and a tiny Marian model in safetensors, and the state of the model."""
    import transformers

    directory = hub.marian(folder)
    pad = directory.rows - 1
    options = {**SIZES, **MARIAN, "vocab_size": directory.rows, "pad_token_id": pad, "decoder_start_token_id": pad}
    torch.manual_seed(5)
    model = transformers.MarianMTModel(transformers.MarianConfig(**options))
    model.save_pretrained(directory.path)
    return directory.path, model.state_dict()
