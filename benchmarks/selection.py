"""Training documents that end in the sentences where a model gains most from context (MaxPCXMI; Mąka et al. 2025).

python -m benchmarks.selection MODEL SOURCE TARGET SOURCE_OUTPUT TARGET_OUTPUT [--share X] [--before N]

SOURCE and TARGET have one sentence a line and an empty line between documents, or are JSONL. The gain of a sentence is
that of its token that gains most: its log-probability after the sentences before it, against without them. Few tokens
need context, and a mean over the sentence would hide them. First sentences of documents are left out. Each selected
sentence becomes a document of its own, after at most --before sentences, so documents may overlap.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import docmt
from docmt.decoding import TranslatedSentence
from docmt.documents import ParallelDocument, read_parallel
from docmt.documents.corpus_files import write_parallel
from docmt.evaluation.context_usage import score_with_and_without_context

_DOCUMENTS_AT_ONCE, _PRINTED_TOKENS = 200, 12


class TokenGain(NamedTuple):
    """The largest gain from context of a token of a sentence."""

    gain: float
    """nats"""
    token: int
    """id of the token"""
    document: int
    """number of the document, from 0"""
    sentence: int
    """number in the document, from 0"""


def measure_token_gains(
    translator: docmt.Translator, corpus: Sequence[ParallelDocument], before: int
) -> Iterator[TokenGain]:
    """Yield the gains of the sentences of a corpus, but for first ones and those without tokens.

    A sentence is scored at the end of the document that it would become, with and without the sentences before it.
    """
    for first in range(0, len(corpus), _DOCUMENTS_AT_ONCE):
        group = range(first, min(first + _DOCUMENTS_AT_ONCE, len(corpus)))
        positions = [(document, sentence) for document in group for sentence in range(1, len(corpus[document]))]
        windows = [cut_document(corpus, *position, before) for position in positions]
        scores = score_with_and_without_context(translator, windows) if windows else []
        for position, (visible, hidden) in zip(positions, scores, strict=True):
            if best := largest_token_gain(visible.sentences[-1], hidden.sentences[-1]):
                yield TokenGain(*best, *position)


def largest_token_gain(visible: TranslatedSentence, hidden: TranslatedSentence) -> tuple[float, int] | None:
    """Return the largest gain of a token of a sentence (nats) and its id; None for a sentence without tokens.

    visible, hidden: the sentence scored with and without context.
    """
    pairs = zip(visible.token_scores, hidden.token_scores, strict=True)
    gains = [(one - other, token) for (one, other), token in zip(pairs, visible.token_ids, strict=True)]
    return max(gains, default=None)


def cut_document(corpus: Sequence[ParallelDocument], document: int, sentence: int, before: int) -> ParallelDocument:
    """Return a sentence of a corpus as the end of a document with at most `before` earlier sentences."""
    whole, part = corpus[document], slice(max(sentence - before, 0), sentence + 1)
    return ParallelDocument(f"{whole.id or document + 1}-{sentence + 1}", whole.source[part], whole.target[part])


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the sentences that gain most, with the sentences before them, and print the tokens that gain most."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.selection")
    for name in ("model", "source", "target", "source_output", "target_output"):
        parser.add_argument(name)
    parser.add_argument("--share", type=float, default=0.15, help="share of the sentences to select (0.15)")
    parser.add_argument("--before", type=int, default=3, help="sentences before each one that are kept (3)")
    parser.add_argument("--precision", default="float32")
    options = parser.parse_args(arguments)
    translator = docmt.Translator(options.model, precision=options.precision)
    corpus = list(read_parallel(Path(options.source), Path(options.target)))
    ranked = sorted(measure_token_gains(translator, corpus, options.before), reverse=True)
    selected = ranked[: round(options.share * len(ranked))]
    if not selected or selected[0].gain <= 0:
        parser.error("no token gains from context: name a model that uses its context, or give more sentences")
    positions = sorted((each.document, each.sentence) for each in selected)
    documents = (cut_document(corpus, *position, options.before) for position in positions)
    write_parallel(documents, Path(options.source_output), Path(options.target_output))
    median = ranked[len(ranked) // 2].gain
    print(
        f"selected {len(selected):,} of {len(ranked):,} sentences: a token of each gains {selected[-1].gain:.3f} nats "
        f"or more (median of all: {median:.3f})"
    )
    counts = Counter(each.token for each in selected).most_common(_PRINTED_TOKENS)
    texts = translator.tokenizer.decode_batch([[token] for token, _ in counts], "target")
    pairs = ", ".join(f"{text} {count:,}" for text, (_, count) in zip(texts, counts, strict=True))
    print(f"tokens that gain most in many sentences: {pairs}")


if __name__ == "__main__":
    main()
