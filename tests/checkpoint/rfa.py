"""Models and rows of the RFA fixtures, converted, and laid out as docmt lays out windows."""

import json

import numpy as np
import torch
from fixture_folders import Variants

from docmt.checkpoint import convert_rfa
from docmt.checkpoint.rfa import _NAMES, _reorder_rows
from docmt.checkpoint.weights import apply_renames
from docmt.data import Instances, SentenceTokens, collate
from docmt.text import SpecialTokens

FIXTURES = Variants("rfa_tiny")
SEPARATOR, PADDING, END = 4, 1, 2
VARIANTS = FIXTURES.names
LINEAR = [name for name in VARIANTS if name != "softmax"]
ROWS = 40
SPECIALS = SpecialTokens(ROWS + 2)
DOCMT_IDS = torch.arange(ROWS)
DOCMT_IDS[[0, SEPARATOR]] = DOCMT_IDS[[SEPARATOR, 0]].clone()
"""[40] our id of each of theirs (and the other way round): the separator and `<s>` change places."""


def read_json(*path):
    return json.loads(FIXTURES.needed(*path).read_text())


def conversion_arguments(variant):
    """Return the arguments that convert a variant: its checkpoint and options."""
    return {
        "checkpoint": FIXTURES.path / read_json(variant, "args.json")["weights"],
        "source_dictionary": FIXTURES.path / "dict.src.txt",
        "target_dictionary": FIXTURES.path / "dict.tgt.txt",
        "arguments": FIXTURES.path / variant / "args.json",
    }


def convert(variant, directory):
    """The variant as a model directory of its name."""
    return convert_rfa(output=directory / variant, **conversion_arguments(variant))


def docmt_name(name):
    """Return docmt's name of a weight of their checkpoint."""
    return apply_renames(name, _NAMES)


def in_docmt_order(name, value):
    """Return a weight of their checkpoint (or its gradient) with rows in docmt's order."""
    return _reorder_rows(value) if "embed_tokens" in name else value


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
    words = SentenceTokens.from_documents(sources), SentenceTokens.from_documents(targets)
    return collate(*words, instances, range(len(ends)), SPECIALS, model.boundary_tokens)


def inputs(model, windows):
    """The test batch of windows of so many sentences, and what it is in theirs."""
    batch = np.load(FIXTURES.path / f"batch_L{windows}.npz")
    sources, targets = ([sentences_of(row) for row in batch[side]] for side in ("src_tokens", "target"))
    return batch_of(model, sources, targets), batch


def real(values, padded):
    """[B, L, n] without the places that are padding, end to end."""
    visible = np.asarray(padded) != PADDING
    return torch.from_numpy(np.asarray(values)[visible].astype(np.float64))
