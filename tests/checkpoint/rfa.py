"""Models and rows of the RFA fixtures, converted, and laid out as docmt lays out windows."""

import json

import numpy as np
import torch
from folders import Variants

from docmt.checkpoint import convert_rfa
from docmt.checkpoint.rfa import _NAMES, _our_rows
from docmt.checkpoint.weights import renamed
from docmt.data import Instances, SentenceTokens, collate
from docmt.text import SpecialTokens

FIXTURES = Variants("rfa_tiny")
SEPARATOR, PADDING, END = 4, 1, 2
VARIANTS = FIXTURES.names
LINEAR = [name for name in VARIANTS if name != "softmax"]
ROWS = 40
SPECIALS = SpecialTokens(ROWS + 2)
OURS = torch.arange(ROWS)
OURS[[0, SEPARATOR]] = OURS[[SEPARATOR, 0]].clone()
"""[40] our id of each of theirs (and the other way round): the separator and `<s>` change places."""


def read_json(*path):
    return json.loads(FIXTURES.needed(*path).read_text())


def given(variant):
    """What converts a variant: its checkpoint and the options."""
    return {
        "checkpoint": FIXTURES.path / read_json(variant, "args.json")["weights"],
        "source_dictionary": FIXTURES.path / "dict.src.txt",
        "target_dictionary": FIXTURES.path / "dict.tgt.txt",
        "arguments": FIXTURES.path / variant / "args.json",
    }


def convert(variant, directory):
    """The variant as a model directory of its name."""
    return convert_rfa(output=directory / variant, **given(variant))


def our_name(name):
    """Where a weight of theirs stands in docmt's model."""
    return renamed(name, _NAMES)


def in_our_order(name, value):
    """A weight (or its gradient) of theirs as it stands in docmt's model."""
    return _our_rows(value) if "embed_tokens" in name else value


def sentences_of(row):
    """The sentences of a padded row, without its marks."""
    sentences = [[]]
    for token in row.tolist():
        if token == SEPARATOR:
            sentences.append([])
        elif token not in (PADDING, END):
            sentences[-1].append(token)
    return sentences


def batch_of(model, sources, targets):
    """Windows of sentences, each read as one instance."""
    ends = np.cumsum([len(window) for window in sources])
    first = ends - [len(window) for window in sources]
    instances = Instances(np.arange(len(ends)), first, first, first, ends, ends - first)
    words = SentenceTokens.of(sources), SentenceTokens.of(targets)
    return collate(*words, instances, range(len(ends)), SPECIALS, model.parts.frame)


def inputs(model, windows):
    """The test batch of windows of so many sentences, and what it is in theirs."""
    batch = np.load(FIXTURES.path / f"batch_L{windows}.npz")
    sources, targets = ([sentences_of(row) for row in batch[side]] for side in ("src_tokens", "target"))
    return batch_of(model, sources, targets), batch


def real(values, padded):
    """[B, L, n] without the places that are padding, end to end."""
    keep = np.asarray(padded) != PADDING
    return torch.from_numpy(np.asarray(values)[keep].astype(np.float64))
