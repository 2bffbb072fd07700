"""What the published G-Transformer code computed for tiny models, and those models converted (see `folders`)."""

import json

import numpy as np
import pytest
from folders import Variants

from docmt.checkpoint import convert_gtransformer

FOLDER = Variants("gtransformer_tiny")
FIXTURES, VARIANTS = FOLDER.path, FOLDER.names
needed, own_or_common = FOLDER.needed, FOLDER.own_or_common
KINDS = ("eval", "train", "train_noise")
BOS, PAD, EOS = 0, 1, 2


def symbols(variant):
    """The vocabulary in the order of its ids."""
    return [line.split("\t")[1] for line in own_or_common(variant, "vocab.tsv").read_text().splitlines()]


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
    found = [kind for kind in KINDS if (FIXTURES / variant / file.format(kind)).is_file()]
    if not found:
        pytest.skip(f"{variant} has no {file.format('KIND')} in {FIXTURES}")
    return found


def batch(variant, kind):
    return np.load(own_or_common(variant, f"batch_{kind}.npz"))


def sentences(row, end):
    """A row of a padded batch as sentences with their marks; what stands before the first is a sentence of its own."""
    found = []
    for token in row.tolist():
        if token == BOS or (token != PAD and not found):
            found.append([])
        if token != PAD and (token != end or not found[-1]):
            found[-1].append(token)
    return found
