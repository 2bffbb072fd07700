"""Word alignment beside IBM model 1: the alignment error rate of every layer, and where its attention is read.

python -m benchmarks.alignment MODEL GOLD [--corpus SOURCE TARGET] [--sentences N] [--output FILE.json]

GOLD: as for `docmt evaluate --aer`. IBM model 1 learns from the tokens of GOLD and of the corpus, in lower case. "all":
the best source word of each target word; "mutual": where the target word is also the best one of that source word.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from docmt import Translator
from docmt.checking.lexical_model import SentenceWords, link_words
from docmt.checkpoint.model_directory import AlignmentLayer
from docmt.core.files import write_text
from docmt.decoding.alignment import align_documents, link_sentences
from docmt.evaluation import read_alignments, score_alignments
from docmt.evaluation.alignment_error import AlignedPair, Links


def main() -> None:
    """Print one row for each way to align, and write all rows as JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.alignment", description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("gold", type=Path)
    parser.add_argument("--corpus", type=Path, nargs=2, help="parallel text with a sentence a line, for IBM model 1")
    parser.add_argument("--sentences", type=int, default=50_000, help="read from the corpus")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    pairs = read_alignments(options.gold)
    examples = [list(islice(path.open(encoding="utf-8"), options.sentences)) for path in options.corpus or ()]
    rows: list[dict[str, Any]] = []
    for name, links in (*align_layers(Translator(options.model), pairs), ("IBM model 1", align_ibm1(pairs, examples))):
        rows.append({"name": name, **score_alignments(pairs, links).to_json()})
        print("{name:32} AER {aer:6.1%}  precision {precision:6.1%}  recall {recall:6.1%}".format(**rows[-1]))
    if options.output:
        write_text(options.output, json.dumps(rows, indent=1) + "\n")


def align_layers(translator: Translator, pairs: Sequence[AlignedPair]) -> Iterable[tuple[str, list[Links]]]:
    """Yield the links of each layer of a model, shifted or not, all or mutual."""
    texts = [(" ".join(pair.source), " ".join(pair.target)) for pair in pairs]
    source, target = (
        translator.tokenizer.encode_batch([pair[index] for pair in texts], side)
        for index, side in enumerate(("source", "target"))
    )
    documents = [[[sentence] for sentence in side] for side in (source, target)]
    for layer in range(1, translator.model.config.decoder_layers + 1):
        for shifted in (False, True):
            weights = align_documents(
                *(translator.model, *documents, translator.tokenizer.specials),
                layers=[AlignmentLayer(layer, shifted)],
                wanted=[[0]] * len(pairs),
            )
            whole = {number: each[0] for number, each in enumerate(weights)}
            links = link_sentences(translator.tokenizer, texts, source, target, whole)
            for kind in ("all", "mutual"):
                chosen = [
                    pair.match((link.source, link.target) for link in links[number] if kind == "all" or link.mutual)
                    for number, pair in enumerate(pairs)
                ]
                yield f"layer {layer}, {'input' if shifted else 'predicted'}, {kind}", chosen


def align_ibm1(pairs: Sequence[AlignedPair], examples: Sequence[Sequence[str]]) -> list[Links]:
    """Return the links of IBM model 1 that both directions prefer, of words that occur once in their sentence."""
    ids: dict[str, int] = {}
    encoded = []
    for side, tokens in enumerate(([pair.source for pair in pairs], [pair.target for pair in pairs])):
        sentences = [*tokens, *(line.split() for line in (examples[side] if examples else ()))]
        encoded.append([[ids.setdefault(token.lower(), len(ids)) for token in sentence] for sentence in sentences])
    source, target = (SentenceWords.from_tokens(side, len(ids)) for side in encoded)
    words, linked = link_words(source, target)
    links: list[set[tuple[int, int]]] = [set() for _ in encoded[0]]
    for one, other in zip(words.source_index[linked].tolist(), words.target_index[linked].tolist(), strict=True):
        number = int(source.sentence[one])
        position = encoded[0][number].index(source.ids[one]), encoded[1][number].index(target.ids[other])
        links[number].add(position)
    return [frozenset(each) for each in links[: len(pairs)]]


if __name__ == "__main__":
    main()
