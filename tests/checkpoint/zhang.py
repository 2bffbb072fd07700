"""Tiny models of the published code of Zhang et al. (2018), converted, and what that code computed for them."""

import json

import numpy as np
import pytest
from fixture_folders import Variants
from safetensors.torch import load_file, save_file

from docmt.checkpoint import convert_thumt
from docmt.data import SentenceTokens, collate, collate_source, cut_instances
from docmt.text import SpecialTokens

__all__ = ["SentenceTokens", "collate_source", "cut_instances"]

FOLDER = Variants("context_tiny")
FIXTURES, VARIANTS = FOLDER.path, FOLDER.names
needed, find_or_skip = FOLDER.needed, FOLDER.find_or_skip


def arguments(variant):
    return json.loads((FIXTURES / variant / "args.json").read_text())


def read_json(variant, file):
    return json.loads(needed(variant, file).read_text())


def weights(variant):
    """The variables of a variant: those of all, with its own over them, as far as it uses them."""
    tensors = {}
    for path in (FIXTURES / "weights_common.safetensors", FIXTURES / variant / "weights.safetensors"):
        if path.is_file():
            tensors |= load_file(path)
    names = arguments(variant)["variables"]
    if missing := [name for name in names if name not in tensors]:
        pytest.skip(f"{variant} has no weights for {missing[0]} in {FIXTURES}")
    return {name: tensors[name].clone() for name in names}


def window(variant):
    return arguments(variant).get("window") or 2


def convert(variant, directory):
    """The variant's model, by way of the command's own function."""
    values = arguments(variant)
    checkpoint, described = directory / f"{variant}.safetensors", directory / f"{variant}.json"
    save_file(weights(variant), checkpoint)
    described.write_text(json.dumps(values))
    sizes = values.get("source_vocabulary_size"), values.get("target_vocabulary_size")
    paths = []
    for side, size in zip("st", sizes, strict=True):
        paths.append(directory / f"{variant}.{side}.txt")
        words = [f"{side}{number:02d}" for number in range(3, size)]
        paths[-1].write_text("".join(f"{symbol}\n" for symbol in ("<pad>", "<eos>", "<unk>", *words)))
    return convert_thumt(
        checkpoint,
        directory / variant,
        source_vocabulary=paths[0],
        target_vocabulary=paths[1],
        arguments=described,
        context_sentences=window(variant),
    )


class Rows:
    """The stored batch, in the order of documents and sentences."""

    def __init__(self, variant):
        self.batch = dict(np.load(find_or_skip(variant, f"batch_w{window(variant)}.npz")))
        self.order = np.lexsort((self.batch["sentence"], self.batch["document"]))

    def documents(self, side):
        """Word ids of ours, one list a document; theirs are one lower."""
        documents = {}
        for row in self.order:
            words = self.batch[side][row, : self.batch[f"{side}_length"][row] - 1]
            documents.setdefault(int(self.batch["document"][row]), []).append([int(word) + 1 for word in words])
        return list(documents.values())

    def real(self, values, side):
        """The entries of a stored output [B, length, ...] that belong to real tokens, rows one after the other."""
        return np.concatenate([values[row, : self.batch[f"{side}_length"][row]] for row in self.order])

    def read(self, model):
        """The batch as ours, each document an instance."""
        source, target = (
            SentenceTokens.from_documents(self.documents("source")),
            SentenceTokens.from_documents(self.documents("target")),
        )
        offsets = np.cumsum([0, *map(len, self.documents("source"))])
        instances = cut_instances(source.lengths, target.lengths, offsets, model.system.context_spec(), limit=10**6)
        specials = SpecialTokens(model.config.vocabulary_size)
        return collate(source, target, instances, range(len(instances)), specials, model.boundary_tokens)
