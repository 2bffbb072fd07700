"""COMET as `docmt evaluate --external.command` asks for it; see docs/evaluation.md.

To be run by the Python of an environment that has unbabel-comet (`pip install unbabel-comet`), which need not have
docmt: this file uses nothing of it, and imports COMET when it is run.

With context it is the document-level metric of Vernikos et al. (2022): sentences before stand before a sentence, with
the separator of the encoder between them, and its embedding is the mean over the sentence alone (DocCOMET).
"""

from __future__ import annotations

import argparse
import json
import sys
from importlib.metadata import version
from typing import Any

SIDES = ("src", "mt", "ref")


def joined(row: dict[str, Any], side: str, separator: str) -> str:
    """A sentence after its context."""
    return f" {separator} ".join([*row[f"{side}_context"], row[side]])


def samples(rows: list[dict[str, Any]], separator: str) -> list[dict[str, str]]:
    """What COMET is given for each sentence."""
    return [{side: joined(row, side, separator) for side in SIDES} for row in rows]


def longest(tokenize: Any, given: list[dict[str, str]]) -> list[int]:
    """The subwords of the longest text of each sample, with the marks around it."""
    lengths = {text: 0 for sample in given for text in sample.values()}
    texts = list(lengths)
    for start in range(0, len(texts), 1000):
        some = texts[start : start + 1000]
        for text, ids in zip(some, tokenize(some)["input_ids"], strict=True):
            lengths[text] = len(ids)
    return [max(lengths[text] for text in sample.values()) for sample in given]


def main() -> int:
    """Reads sentences from standard input, scores them, and prints the answer."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="Unbabel/wmt22-comet-da", help="name on the Hugging Face Hub, or .ckpt file")
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--gpus", type=int, default=0)
    options = parser.parse_args()
    rows = [json.loads(line) for line in sys.stdin.buffer.read().decode("utf-8").split("\n") if line]
    from comet import download_model, load_from_checkpoint

    path = options.model if options.model.endswith(".ckpt") else download_model(options.model)
    model = load_from_checkpoint(path)
    model.eval()
    if any(row["src_context"] for row in rows):
        model.enable_context()
        if not model.use_context:
            print(f"{options.model} has no context: it does not pool by the mean", file=sys.stderr)
            return 1
    tokenizer = model.encoder.tokenizer
    given = samples(rows, tokenizer.sep_token)
    scores = model.predict(given, batch_size=options.batch_size, gpus=options.gpus).scores
    answer = {
        "name": "COMET",
        "signature": f"model:{options.model}|version:{version('unbabel-comet')}",
        "scores": [float(score) for score in scores],
        "subwords": longest(lambda texts: tokenizer(texts, truncation=False), given),
        "limit": model.encoder.max_positions - 2,
    }
    print(json.dumps(answer))
    return 0


if __name__ == "__main__":
    sys.exit(main())
