"""COMET adapter for `docmt evaluate --external.command`; see docs/evaluation.md.

Run it with the Python of an environment that has unbabel-comet (`pip install unbabel-comet`). docmt need not be
installed there.

With context it computes the document-level metric of Vernikos et al. (2022), DocCOMET: previous sentences are prepended
with the encoder's separator, and the sentence embedding is the mean over the sentence without its context.
"""

from __future__ import annotations

import argparse
import json
import sys
from importlib.metadata import version
from typing import Any

SIDES = ("src", "mt", "ref")


def with_context(row: dict[str, Any], side: str, separator: str) -> str:
    """Return a sentence after its context."""
    return f" {separator} ".join([*row[f"{side}_context"], row[side]])


def build_samples(rows: list[dict[str, Any]], separator: str) -> list[dict[str, str]]:
    """Return the COMET input of each sentence."""
    return [{side: with_context(row, side, separator) for side in SIDES} for row in rows]


def max_subwords(tokenize: Any, samples: list[dict[str, str]]) -> list[int]:
    """Return the number of subwords of the longest text of each sample, including special tokens."""
    lengths = {text: 0 for sample in samples for text in sample.values()}
    texts = list(lengths)
    for start in range(0, len(texts), 1000):
        batch = texts[start : start + 1000]
        for text, ids in zip(batch, tokenize(batch)["input_ids"], strict=True):
            lengths[text] = len(ids)
    return [max(lengths[text] for text in sample.values()) for sample in samples]


def main() -> int:
    """Read sentences from standard input, score them, and print the answer."""
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
            print(f"{options.model} cannot use context, as it does not pool by the mean", file=sys.stderr)
            return 1
    tokenizer = model.encoder.tokenizer
    samples = build_samples(rows, tokenizer.sep_token)
    scores = model.predict(samples, batch_size=options.batch_size, gpus=options.gpus).scores
    answer = {
        "name": "COMET",
        "signature": f"model:{options.model}|version:{version('unbabel-comet')}",
        "scores": [float(score) for score in scores],
        "subwords": max_subwords(lambda texts: tokenizer(texts, truncation=False), samples),
        "limit": model.encoder.max_positions - 2,
    }
    print(json.dumps(answer))
    return 0


if __name__ == "__main__":
    sys.exit(main())
