"""What the published G-Transformer code computed for tiny models, and those models converted.

`tests/data/gtransformer_tiny` holds a small part of it (numbers only); where the whole of it is on this machine,
that is used instead.
"""

import json
from pathlib import Path

import numpy as np

from docmt.interop import convert_gtransformer

PART = Path(__file__).parents[1] / "data" / "gtransformer_tiny"
WHOLE = Path(__file__).parents[3] / "shared" / "fixtures" / "gtransformer_tiny"
FIXTURES = WHOLE if WHOLE.is_dir() else PART
VARIANTS = tuple(sorted(path.parent.name for path in FIXTURES.glob("*/weights.safetensors")))
BOS, PAD, EOS, EOD = 0, 1, 2, 57


def convert(variant, directory, **options):
    """The variant's model, by way of the command's own function."""
    rows = [line.split("\t") for line in (FIXTURES / "vocab.tsv").read_text().splitlines()]
    dictionary = directory / "dict.en.txt"
    # As fairseq writes it: without special tokens, languages and padding.
    words = [symbol for _, symbol in rows[4:-3] if not symbol.startswith("madeup")]
    dictionary.write_text("".join(f"{symbol} 1\n" for symbol in words))
    return convert_gtransformer(FIXTURES / variant / "weights.safetensors", dictionary, directory / variant, **options)


def arguments(variant):
    return json.loads((FIXTURES / variant / "args.json").read_text())["args"]


def batch(kind):
    return np.load(FIXTURES / f"batch_{kind}.npz")


def sentences(row):
    """A row of a padded batch as sentences with their marks; what stands before the first is a sentence of its own."""
    found = []
    for token in row.tolist():
        if token == BOS or (token != PAD and not found):
            found.append([])
        if token != PAD and (token != EOD or not found[-1]):
            found[-1].append(token)
    return found
