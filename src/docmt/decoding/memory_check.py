"""The check of an earlier version and its translation: whether a model finds each sentence in its translation."""

from __future__ import annotations

from dataclasses import replace

from docmt.core.errors import DocmtError, map_or_error
from docmt.decoding.translator import Translator
from docmt.documents import Document
from docmt.documents.words import has_words
from docmt.formats.marked_text import remove_marks
from docmt.terms import Memory

_LEAST_GAIN = 0.1
"""Log-probability (nats) of a token by which a translation fits its sentence better than the next one."""
_LONGEST = 1000
"""Characters of a text that is checked."""


def drop_misfits(memory: Memory, translator: Translator) -> tuple[Memory, int]:
    """Return the memory of a text without what may be the translation of another sentence, and how much that is.

    They are translations that fit the sentence before or after theirs as well, and those beside them: a translator may
    have moved, replaced, cut or joined something there. Texts that are too long for the model are not checked.
    """
    rows = [(key, entry) for key, entries in memory.entries.items() for entry in entries]
    texts = [(remove_marks(key), remove_marks(entry.target)) for key, entry in rows]
    checked = [n for n, pair in enumerate(texts) if all(has_words(text) and len(text) < _LONGEST for text in pair)]
    rows, texts = [rows[n] for n in checked], [texts[n] for n in checked]
    sources = [
        [source, *(other for other, _ in texts[max(n - 1, 0) : n + 2] if other != source)]
        for n, (source, _) in enumerate(texts)
    ]
    make = Document.from_sentences
    pairs = [(make([one]), make([target])) for each, (_, target) in zip(sources, texts, strict=True) for one in each]
    outcomes = iter(map_or_error(pairs, translator.score_all))
    doubtful = set[int]()
    for number, each in enumerate(sources):
        scored = [next(outcomes) for _ in each]
        if isinstance(scored[0], DocmtError):
            continue
        score, *others = (made.sentences[0] for made in scored if not isinstance(made, DocmtError))
        if any(not score.score - other.score >= _LEAST_GAIN * score.tokens for other in others):
            doubtful |= {number - 1, number, number + 1}
    dropped = {rows[number] for number in doubtful & set(range(len(rows)))}
    kept = {key: [each for each in entries if (key, each) not in dropped] for key, entries in memory.entries.items()}
    return replace(memory, entries={key: entries for key, entries in kept.items() if entries}), len(dropped)
