"""Tiny models of the published G-Transformer code, converted, and what that code computed for them."""

import json

import numpy as np
import pytest
from fixture_folders import Variants

from docmt.checkpoint import convert_gtransformer

FOLDER = Variants("gtransformer_tiny")
FIXTURES, VARIANTS = FOLDER.path, FOLDER.names
needed, find_or_skip = FOLDER.needed, FOLDER.find_or_skip
KINDS = ("eval", "train", "train_noise")
BOS, PAD, EOS = 0, 1, 2


def symbols(variant):
    """The vocabulary in the order of its ids."""
    return [line.split("\t")[1] for line in find_or_skip(variant, "vocab.tsv").read_text().splitlines()]


def end_of_document(variant):
    """The id of the mark that ends a document: the symbol of the target language."""
    return symbols(variant).index(f"[{arguments(variant)['target_lang']}]")


def convert(variant, directory, **options):
    """The variant's model, by way of the command's own function."""
    languages = arguments(variant)["langs"].count(",") + 1
    dictionary = directory / "dict.en.txt"
    # As fairseq writes it: without special tokens, languages and <mask>, which comes last, and padding.
    words = [symbol for symbol in symbols(variant)[4 : -languages - 1] if not symbol.startswith("madeup")]
    dictionary.write_text("".join(f"{symbol} 1\n" for symbol in words))
    return convert_gtransformer(needed(variant, "weights.safetensors"), dictionary, directory / variant, **options)


def arguments(variant):
    return json.loads((FIXTURES / variant / "args.json").read_text())["args"]


def kinds(variant, file="out_{}.npz"):
    """The kinds of batches of which the variant has this file; the test is skipped where there are none."""
    available = [kind for kind in KINDS if (FIXTURES / variant / file.format(kind)).is_file()]
    if not available:
        pytest.skip(f"{variant} has no {file.format('KIND')} in {FIXTURES}")
    return available


def batch(variant, kind):
    return np.load(find_or_skip(variant, f"batch_{kind}.npz"))


def sentences(row, end):
    """A row of a padded batch as sentences with their marks; what stands before the first is a sentence of its own."""
    groups = []
    for token in row.tolist():
        if token == BOS or (token != PAD and not groups):
            groups.append([])
        if token != PAD and (token != end or not groups[-1]):
            groups[-1].append(token)
    return groups
