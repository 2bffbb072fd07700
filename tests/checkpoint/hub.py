"""Directories of tokenizers, laid out as on Hugging Face's hub or by transformers, with transformers' own classes."""

import io
import json
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import sentencepiece
from benchmarks.synthetic.grammar import stream_documents
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

DOCUMENTS = [document.document for document in islice(stream_documents(Random(1)), 60)]
SOURCE = [sentence for document in DOCUMENTS for sentence in document.source]
TARGET = [sentence for document in DOCUMENTS for sentence in document.target]
ODD = [
    "Die Straße kostet 1.234,56 € – „viel“!",
    "naïve café, e\u0301te\u0301 and Ａｎ ½ ﬁne…",
    "你好，世界。 Das ist gut.",
    "😀 sagt 👩‍👩‍👧 nichts 🇩🇪",
    "the<unknowable>&amp; [MASK] @@ ##",
    "हिन्दी العربية ไทย",
    "x" * 300,
]
SPACED = ["  the clock ", "the  clock   is", " ", "a\u00a0b\u2009c\u200bd\tthe", "clock. \u3000"]
MARKED = ["</s>", "<s> the clock </s>", "<unk><pad>", "the <mask> is", "de_DE __de__ >>fra<< <2de> <extra_id_0>"]
MBART_LANGUAGES = ["ar_AR", "cs_CZ", "de_DE", "en_XX"]
NLLB_LANGUAGES = ["ace_Arab", "deu_Latn", "eng_Latn", "zul_Latn"]


@dataclass
class Hub:
    """A directory, what its config.json says, how many embeddings the model has, transformers' tokenizer for it."""

    path: Path
    config: dict[str, Any]
    rows: int
    tokenizer: Any
    decoder_strips: bool = True
    """whether the directory has a SentencePiece model that their class does not run itself: it keeps outer blanks"""

    def encode(self, sentence, side):
        text = {"text_target" if side == "target" and "marian" in self.path.name else "text": sentence}
        return self.tokenizer(**text, add_special_tokens=False)["input_ids"]

    def decode(self, rows):
        text = self.tokenizer.decode(rows, skip_special_tokens=True)
        return text.strip() if self.decoder_strips else text


@cache
def spm(kind="unigram", text="both", size=300, normalization="identity", symbols=(), **ids):
    """A SentencePiece model; `ids`: pad_id and so on."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter({"both": SOURCE + TARGET, "source": SOURCE, "target": TARGET}[text]),
        model_writer=model,
        model_type=kind,
        vocab_size=size,
        character_coverage=1.0,
        normalization_rule_name=normalization,
        user_defined_symbols=list(symbols),
        minloglevel=3,
        **ids,
    )
    return model.getvalue()


def pieces(model):
    library = sentencepiece.SentencePieceProcessor()
    library.LoadFromSerializedProto(model)
    return [(library.id_to_piece(number), library.get_score(number)) for number in range(library.get_piece_size())]


def write(path, **files):
    """Files by their names, with "_" for the dot before the ending: bytes as they are, the rest as JSON."""
    path.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        (path / ".".join(name.rsplit("_", 1))).write_bytes(data)
    return path


def marian(folder, separate=False):
    from transformers import MarianTokenizer

    models = {side: spm(text=side, normalization="nmt_nfkc") for side in ("source", "target")}
    texts = {side: [text for text, _ in pieces(model)[3:]] for side, model in models.items()}
    specials = ["</s>", "<unk>"]
    if separate:
        vocabulary = _numbered([*specials, *texts["source"], ">>fra<<", "<pad>"])
        other = {"target_vocab_json": _numbered([*specials, *texts["target"], "ß", "<pad>"])}
    else:
        vocabulary, other = _numbered([*specials, *texts["source"], *texts["target"], ">>fra<<", "<pad>"]), {}
    path = write(
        folder / f"marian-{separate}",
        source_spm=models["source"],
        target_spm=models["target"],
        vocab_json=vocabulary,
        tokenizer_config_json={"separate_vocabs": separate},
        **other,
    )
    pad = len(vocabulary) - 1
    config = {"model_type": "marian", "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": pad}
    return Hub(path, config, len(vocabulary), MarianTokenizer.from_pretrained(path), decoder_strips=False)


def m2m100(folder, kind="bpe"):
    from transformers import M2M100Tokenizer

    model = spm(kind, normalization="nmt_nfkc")
    vocabulary = _numbered(["<s>", "<pad>", "</s>", "<unk>", *(text for text, _ in pieces(model)[3:])])
    path = write(folder / f"m2m-{kind}", sentencepiece_bpe_model=model, vocab_json=vocabulary)
    (path / "sentencepiece_bpe.model").rename(path / "sentencepiece.bpe.model")
    tokenizer = M2M100Tokenizer.from_pretrained(path)
    return Hub(path, {"model_type": "m2m_100"}, len(vocabulary) + 108, tokenizer, decoder_strips=False)


def m2m100_unigram(folder):
    return m2m100(folder, "unigram")


def mbart_json(folder):
    from transformers import MBartTokenizer

    return _saved(folder / "mbart-json", _mbart(MBartTokenizer), "mbart")


def mbart_spm(folder):
    from transformers import MBartTokenizer

    codes = {"additional_special_tokens": MBART_LANGUAGES}
    path = write(folder / "mbart-spm", model=spm(), special_tokens_map_json=codes)
    (path / "model").rename(path / "sentencepiece.bpe.model")
    begin = [(text, 0.0) for text in ("<s>", "<pad>", "</s>", "<unk>")]
    end = [(text, 0.0) for text in (*MBART_LANGUAGES, "<mask>")]
    tokenizer = MBartTokenizer(vocab=[*begin, *pieces(spm())[3:], *end])
    return Hub(path, {"model_type": "mbart"}, len(begin) + len(pieces(spm())) - 3 + len(end), tokenizer)


def mbart50_json(folder):
    from transformers import MBart50Tokenizer

    return _saved(folder / "mbart50-json", MBart50Tokenizer(vocab=pieces(spm())), "mbart")


def nllb_json(folder):
    return _saved(folder / "nllb-json", _nllb(), "m2m_100")


def nllb_spm(folder):
    added = dict(enumerate([*NLLB_LANGUAGES, "<mask>"], len(pieces(spm("bpe"))) + 1))
    decoder = {str(row): {"content": text, "special": True} for row, text in added.items()}
    path = write(folder / "nllb-spm", model=spm("bpe"), tokenizer_config_json={"added_tokens_decoder": decoder})
    (path / "model").rename(path / "sentencepiece.bpe.model")
    return Hub(path, {"model_type": "m2m_100"}, max(added) + 3, _nllb())


def bart_json(folder):
    return _saved(folder / "bart-json", _bart(folder), "bart")


def t5_json(folder):
    from transformers import T5Tokenizer

    return _saved(folder / "t5-json", T5Tokenizer(vocab=_t5_pieces(), extra_ids=10), "t5")


def t5_spm(folder):
    from transformers import T5Tokenizer

    tokenizer = T5Tokenizer(vocab=_t5_pieces(), extra_ids=10)
    path = write(folder / "t5-spm", spiece_model=_t5_model(), tokenizer_config_json={"extra_ids": 10})
    return Hub(path, {"model_type": "t5"}, len(tokenizer) + 28, tokenizer)


def madlad(folder):
    """Its ids begin with <unk>, <s>, </s>; as no tokenizer of transformers was tried on one, its model itself."""
    model = spm(symbols=("<2de>", "<2fr>"), size=320)
    path = write(folder / "madlad", spiece_model=model, tokenizer_config_json={"extra_ids": 0, "pad_token": "<s>"})
    return Hub(path, {"model_type": "t5"}, len(pieces(model)) + 4, PieceModel(model))


class PieceModel:
    """The interface of transformers' tokenizers for a SentencePiece model."""

    def __init__(self, model):
        self.library = sentencepiece.SentencePieceProcessor()
        self.library.LoadFromSerializedProto(model)

    def __call__(self, text, add_special_tokens):
        assert not add_special_tokens
        return {"input_ids": self.library.encode(text)}

    def decode(self, rows, skip_special_tokens):
        assert skip_special_tokens
        return self.library.decode([row for row in rows if 2 < row < self.library.get_piece_size()])

    def convert_tokens_to_ids(self, text):
        return self.library.piece_to_id(text)


def bert_json(folder):
    from transformers import BertTokenizer

    path = _wordpiece(folder / "bert-vocabulary")
    return _saved(folder / "bert-json", BertTokenizer.from_pretrained(path), "bert")


def bert_cased(folder):
    """Cased, with a tokenizer.json alone: not a word on special tokens."""
    from transformers import BertTokenizer

    settings = {"do_lower_case": False, "strip_accents": True}
    words = write(_wordpiece(folder / "bert-words"), tokenizer_config_json=settings)
    tokenizer, path = BertTokenizer.from_pretrained(words), folder / "bert-cased"
    tokenizer.save_pretrained(path)
    for file in path.glob("*token*_*.json"):
        file.unlink()
    return Hub(path, {"model_type": "bert", "pad_token_id": 0}, len(tokenizer), tokenizer, decoder_strips=False)


def roberta_json(folder):
    from transformers import RobertaTokenizer

    path = _bart(folder / "of-bart").name_or_path
    return _saved(folder / "roberta-json", RobertaTokenizer.from_pretrained(path), "roberta")


def xlm_roberta_json(folder):
    from transformers import XLMRobertaTokenizer

    begin = [(text, 0.0) for text in ("<s>", "<pad>", "</s>", "<unk>")]
    tokenizer = XLMRobertaTokenizer(vocab=[*begin, *pieces(spm())[3:], ("<mask>", 0.0)])
    return _saved(folder / "xlm-roberta-json", tokenizer, "xlm-roberta")


FAMILIES = [
    marian,
    m2m100,
    m2m100_unigram,
    mbart_json,
    mbart_spm,
    mbart50_json,
    nllb_json,
    nllb_spm,
    bart_json,
    t5_json,
    t5_spm,
    bert_json,
    bert_cased,
    roberta_json,
    xlm_roberta_json,
]
SPECIALS = {"bert": ("[CLS]", "[PAD]", "[SEP]", "[UNK]")}


def _numbered(texts):
    return {text: number for number, text in enumerate(dict.fromkeys(texts))}


def _saved(path, tokenizer, model_type):
    """Save a tokenizer with transformers, and return its directory."""
    tokenizer.save_pretrained(path)
    return Hub(path, {"model_type": model_type}, len(tokenizer) + 2, tokenizer, decoder_strips=False)


def _mbart(kind):
    from transformers.models.mbart.tokenization_mbart import FAIRSEQ_LANGUAGE_CODES

    begin = [(text, 0.0) for text in ("<s>", "<pad>", "</s>", "<unk>")]
    end = [(text, 0.0) for text in (*FAIRSEQ_LANGUAGE_CODES, "<mask>")]
    return kind(vocab=[*begin, *pieces(spm())[3:], *end])


def _nllb():
    from transformers import NllbTokenizer
    from transformers.tokenization_utils_base import generate_merges

    texts = ["<s>", "<pad>", "</s>", "<unk>", *(text for text, _ in pieces(spm("bpe"))[3:])]
    vocabulary = _numbered(texts)
    codes = _numbered([*texts, *NLLB_LANGUAGES, "<mask>"])
    return NllbTokenizer(vocab=codes, merges=generate_merges(vocabulary), extra_special_tokens=NLLB_LANGUAGES)


def _bart(folder):
    from transformers import BartTokenizer

    library = Tokenizer(models.BPE())
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=500,
        special_tokens=["<s>", "<pad>", "</s>", "<unk>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    library.train_from_iterator(SOURCE + TARGET, trainer)
    path = folder / "bart"
    path.mkdir(parents=True, exist_ok=True)
    library.model.save(str(path))
    vocabulary = json.loads((path / "vocab.json").read_text())
    write(path, vocab_json={**vocabulary, "<mask>": len(vocabulary)})
    return BartTokenizer.from_pretrained(path)


def _wordpiece(path):
    """A vocab.txt, in which capitals and accents have no pieces for all words."""
    library = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    marks = ["[PAD]", "[unused1]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = trainers.WordPieceTrainer(vocab_size=400, special_tokens=marks, show_progress=False)
    library.train_from_iterator([*SOURCE, *TARGET, *(text.lower() for text in SOURCE)], trainer)
    pieces = sorted(library.get_vocab().items(), key=lambda item: item[1])
    return write(path, vocab_txt="".join(f"{piece}\n" for piece, _ in pieces).encode())


def _t5_model():
    return spm(pad_id=0, eos_id=1, unk_id=2, bos_id=-1)


def _t5_pieces():
    return [*pieces(_t5_model()), *((f"<extra_id_{number}>", 0.0) for number in reversed(range(10)))]
