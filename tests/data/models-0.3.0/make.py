"""Write the model directories beside this file, and what they compute. Run it with docmt 0.3.0, as of 231a8c6."""

# ruff: noqa: I001 - these modules are those of another version

import io
import json
import sys
from dataclasses import asdict
from pathlib import Path

import sentencepiece
import torch
from docmt.model_directory import DRAFTING_FILE, save_model
from docmt.text.spm_pieces import SpmPieces

from docmt.data.drafts import DRAFTER_FOLDER
from docmt.decoding import SearchConfig, Translator
from docmt.documents import Document
from docmt.model import ModelConfig, ModelInput, TranslationModel, pack
from docmt.model.systems import Concat, Context, Hierarchical, MultiHop
from docmt.text import BpeTokenizer, DictionaryTokenizer, PretrainedTokenizer, SentencePieceTokenizer
from docmt.text.pretrained import Vocabulary

SIZES = {"width": 8, "feed_forward": 8, "heads": 2, "encoder_layers": 1, "decoder_layers": 1, "dropout": 0.0}
SOURCE = ["the lamp is here", "it is old", "they see the umbrella", "it is new"]
TARGET = ["die Lampe ist hier", "sie ist alt", "sie sehen den Schirm", "er ist neu"]
WORDS = sorted({word for sentence in SOURCE + TARGET for word in sentence.split()})
SYSTEMS = {
    "sentence": {"system": "sentence"},
    "document": {"system": "document"},
    "group": {"system": "group"},
    "concat": {"system": "concat", "concat": Concat(sentences=2)},
    "context": {"system": "context", "context": Context(sentences=2)},
    "multihop": {"system": "multihop", "multihop": MultiHop(sentences=2)},
    "hierarchical": {"system": "hierarchical", "hierarchical": Hierarchical(sentences=2, side="both")},
    "marian": {"system": "sentence", "family": "marian"},
}


def sentencepiece_model():
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter((SOURCE + TARGET) * 4),
        model_writer=model,
        vocab_size=36,
        normalization_rule_name="identity",
        minloglevel=3,
    )
    return model.getvalue()


def tokenizer_of(name):
    if name == "marian":
        data = sentencepiece_model()
        library = sentencepiece.SentencePieceProcessor()
        library.LoadFromSerializedProto(data)
        pieces = [library.id_to_piece(number) for number in range(3, library.get_piece_size())]
        symbols = (None, "<pad>", "</s>", "<unk>", *pieces, None, None)
        rows = (-1, len(pieces) + 2, 0, 1, *range(2, len(pieces) + 2), -1, -1)
        vocabulary = Vocabulary(symbols, frozenset(), rows)
        same = SpmPieces(data, vocabulary.words())
        both = {"source": vocabulary, "target": vocabulary}
        return PretrainedTokenizer(both, {"source": same, "target": same}, {})
    if name == "group":
        return BpeTokenizer.train(SOURCE + TARGET, 270)
    if name == "context":
        return SentencePieceTokenizer.train((SOURCE + TARGET) * 4, 290)
    return DictionaryTokenizer(WORDS)


def learn(model, source, target, drafts, labels):
    """A few updates, so that translations have several words."""
    labels[-1] = labels[-1] or model.config.vocabulary_size - 2
    optimizer = torch.optim.Adam([weights for weights in model.parameters() if weights.requires_grad], lr=0.02)
    for _ in range(60):
        packed = pack([source]), pack([target])
        inputs = ModelInput(packed[0], torch.arange(len(target)), packed[1], drafts=pack(drafts) if drafts else None)
        logits = model.project(model(inputs))
        loss = torch.nn.functional.cross_entropy(logits, torch.tensor(labels))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def main(folder):
    for seed, (name, system) in enumerate(SYSTEMS.items()):
        torch.manual_seed(seed)
        tokenizer = tokenizer_of(name)
        model = TranslationModel(ModelConfig(**SIZES, **system, vocabulary_size=tokenizer.vocabulary_size)).eval()
        drafter = folder / "sentence" if name == "multihop" else None
        card = {"title": name, "source_language": "en", "target_language": "de"}
        opens = 1 if name == "marian" else 0
        source = [[*([0] if not opens else []), *tokenizer.encode(text, "source"), 2] for text in SOURCE]
        target = [[opens, *tokenizer.encode(text, "target")] for text in TARGET]
        target = target if opens else [[*words, 2] for words in target]
        drafts = [source[::-1]] if drafter else []
        ends = [2] if opens else [0]
        learn(model, source, target, drafts, [token for ids in target for token in [*ids[1:], *ends]])
        save_model(folder / name, model, tokenizer, card, drafter)
        if drafter:
            search = {"search": asdict(SearchConfig(beam=4))}
            (folder / name / DRAFTER_FOLDER / DRAFTING_FILE).write_text(json.dumps(search) + "\n", encoding="utf-8")
        logits = model.logits([(source, target)], drafts)[0]
        words = range(0, logits.shape[1], max(logits.shape[1] // 30, 1))
        translation = Translator(folder / name, search=SearchConfig(beam=3)).translate(Document.from_sentences(SOURCE))
        score = Translator(folder / name).score(Document.from_sentences(SOURCE), Document.from_sentences(TARGET))
        expected = {
            "source": source,
            "target": target,
            "drafts": drafts,
            "words": list(words),
            "logits": [[round(float(row[word]), 5) for word in words] for row in logits],
            "translation": [[sentence.target, round(sentence.score, 4)] for sentence in translation.sentences],
            "score": [round(sentence.score, 4) for sentence in score.sentences],
        }
        (folder / f"{name}.json").write_text(json.dumps(expected) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
