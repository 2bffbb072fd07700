"""The checks of translated documents: of single sentences, of repeated ones, and those of other modules."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import chain, islice
from pathlib import Path
from statistics import median

from docmt.checking.findings import KINDS, CheckConfig, CheckReport, Finding, is_certain, mark_sentence, quote
from docmt.checking.languages import FUNCTION_WORDS, detect_language, is_unspaced, split_words, stem, tokenize
from docmt.checking.pairing import Layout, read_translation
from docmt.checking.renderings import TermStatistics, find_inconsistent_terms
from docmt.core.grouping import group_pairs
from docmt.documents import ParallelDocument
from docmt.documents.numbers import Certainty, TextPiece, Unmatched, find_unmatched_numbers, subtract
from docmt.documents.protected_text import find_protected
from docmt.documents.words import has_letters
from docmt.formats.language_codes import primary_language

Check = Callable[[int, ParallelDocument], Iterator[Finding]]
"""Called with the index of a document's first sentence, over all documents, and the document."""
CONTENT_KINDS = frozenset({"number", "url", "placeholder", "bracket"})
OnProgress = Callable[[int], object]
"""Called with the number of sentences checked since the last call."""
_DETECTION_SENTENCES = 5000
"""Sentences from which the language of a text is detected."""
_LONGEST_LOOP, _LOOP_REPETITIONS = 12, 3
"""Words of the longest phrase that counts as a loop, and repetitions of one or two words; longer ones need two."""
_COPIED_SHARE = 0.8
"""Share of target words copied from the source that makes a sentence untranslated."""
_SIMILARITY = 0.5
"""Share of common words from which two sources may have the same translation."""
_LENGTH_DEVIATION = 6.0
"""Robust standard deviations of an unusual length (Gale and Church 1993)."""
_REPETITION_WORDS = 4
"""Shortest source sentence, in words, that is checked for consistent translation."""
_MAX_COMPARED = 1000
"""Words of the longest sentence compared with its source. Comparing takes quadratic time."""
_MIN_FOREIGN = 2
_DEVIATION = 1.4826
"""Standard deviation over median absolute deviation, for a normal distribution."""
_MIN_SENTENCES = 20
"""Fewest sentences from which a length ratio is estimated."""
_MIN_DIFFERENCE = 12
"""Fewest characters of difference for a length finding, and of a source for the ratio."""
_MIN_WORDS, _MIN_RUN = 10, 3
"""Fewest words of a sentence that is checked for missing text, and of a run without a translation."""
_POSSIBLE_DEVIATION, _LIKELY_DEVIATION = 2.0, 3.0
"""Robust standard deviations by which a translation with missing text is possibly or likely too short."""
_MIN_OTHERS = 2
"""Fewest other sentences with a word, to tell whether it is usually translated."""
_PUNCTUATION = re.compile(r"[^\w\s]+")


def check_files(
    source: Path | str,
    target: Path | str | None = None,
    config: CheckConfig | None = None,
    *,
    layout: Layout = "auto",
    kinds: Collection[str] = tuple(KINDS),
    on_progress: OnProgress | None = None,
) -> CheckReport:
    """Check a translation; see `read_translation` for the files and `check_documents` for the rest."""
    paired = read_translation(Path(source), Path(target) if target is not None else None, layout, config)
    return check_documents(paired.documents, config, kinds=kinds, on_progress=on_progress, earlier=paired.findings)


def check_documents(
    documents: Sequence[ParallelDocument],
    config: CheckConfig | None = None,
    *,
    kinds: Collection[str] = tuple(KINDS),
    on_progress: OnProgress | None = None,
    earlier: Sequence[Finding] = (),
) -> CheckReport:
    """Check translated documents, whose sentences may be empty, for findings of these kinds.

    earlier: findings to include, such as documents that cannot be paired.
    """
    config = config or CheckConfig()
    sides = [document.source for document in documents], [document.target for document in documents]
    source_text, target_text = (list(islice(chain.from_iterable(side), _DETECTION_SENTENCES)) for side in sides)
    source = primary_language(config.source_language or detect_language(source_text))
    target = primary_language(config.target_language or detect_language(target_text))
    unspaced = is_unspaced(source_text) or is_unspaced(target_text)
    wanted = set(kinds) - ({"term"} if unspaced else set())
    findings = list(earlier)
    for portion in _split_into_portions(documents, config.batch_sentences):
        checks = _build_checks(portion, config, (source, target), wanted)
        first = 0
        for document in portion:
            for check in checks:
                findings += check(first, document)
            first += len(document)
            if on_progress is not None:
                on_progress(len(document))
    findings = [finding for finding in findings if finding.kind in kinds]
    order = list(KINDS)
    visible = [finding for finding in findings if is_certain(finding, config.certainty)]
    hidden = Counter(finding.kind for finding in findings if not is_certain(finding, config.certainty))
    return CheckReport(
        config=config,
        documents=len(documents) + sum(each.kind == "sentence_count" for each in earlier),
        sentences=sum(map(len, documents)),
        source_language=source,
        target_language=target,
        findings=sorted(visible, key=lambda finding: order.index(finding.kind)),
        hidden=hidden,
        notes=list(_notes(set(kinds), source, target, unspaced)),
    )


def _split_into_portions(documents: Sequence[ParallelDocument], max_sentences: int) -> Iterator[list[ParallelDocument]]:
    """Yield consecutive documents of about `max_sentences` sentences together."""
    portion: list[ParallelDocument] = []
    size = 0
    for document in documents:
        if portion and size + len(document) > max_sentences:
            yield portion
            portion, size = [], 0
        portion.append(document)
        size += len(document)
    if portion:
        yield portion


def _build_checks(
    documents: Sequence[ParallelDocument], config: CheckConfig, languages: tuple[str, str], wanted: Set[str]
) -> list[Check]:
    """Return the checks of the wanted kinds, with word and length statistics of these documents."""
    checks: dict[str, Check] = {
        "empty": lambda _, document: find_empty(document),
        "loop": lambda _, document: find_loops(document),
        "duplicate": lambda _, document: find_duplicates(document, config),
        "repetition": lambda _, document: find_inconsistent_repeats(document),
    }
    if "untranslated" in wanted:
        copies = CopyCounts(documents)
        checks["untranslated"] = lambda _, document: find_untranslated(document, languages, copies)
    if (lengths := LengthModel.fit(documents)) is not None:
        checks["length"] = lambda _, document: find_unusual_lengths(document, config, lengths)
    if wanted & {"term", "missing_text"}:
        statistics = TermStatistics(documents, languages, config.term_documents)
        checks["missing_text"] = lambda first, document: find_missing_text(first, document, statistics, lengths)
        checks["term"] = lambda first, document: find_inconsistent_terms(first, document, config, statistics)
    selected = [check for kind, check in checks.items() if kind in wanted]
    if wanted & CONTENT_KINDS:
        selected.append(lambda _, document: check_content(document, config, languages))
    return selected


def _notes(kinds: Collection[str], source: str, target: str, unspaced: bool) -> Iterator[str]:
    """Yield what was not checked, and why."""
    if unspaced and "term" in kinds:
        yield "terms were not checked: one side is in a script without spaces between words"
    if "untranslated" in kinds and not {source, target} <= FUNCTION_WORDS.keys():
        yield (
            "untranslated sentences were found by comparison only: --source-language or --target-language is unknown, "
            "or a language without a list of function words"
        )
    if source and source == target:
        yield f"both sides seem to be {source}: was the right file given (--source-language, --target-language)?"


def find_empty(document: ParallelDocument) -> Iterator[Finding]:
    """Yield sentences without a translation, and translations of empty sentences."""
    for index, (source, target) in enumerate(document):
        if has_letters(source) and not has_letters(target) and not any(map(str.isdigit, target)):
            yield Finding("empty", "no translation", (mark_sentence(document, index),), "sure")
        elif has_letters(target) and not source:
            yield Finding("empty", "translation of an empty source", (mark_sentence(document, index),), "sure")


class CopyCounts:
    """Sentence counts of each source word, in all and with the word unchanged in the translation."""

    def __init__(self, documents: Sequence[ParallelDocument]) -> None:
        self._occurrences, self._copied = Counter[str](), Counter[str]()
        for source, target in chain.from_iterable(documents):
            source_words = set(split_words(source))
            self._occurrences.update(source_words)
            self._copied.update(source_words.intersection(split_words(target)))

    def is_translated(self, word: str) -> bool:
        """Return whether a word that one sentence copies is mostly translated in the others."""
        others = self._occurrences[word] - 1
        return others >= _MIN_OTHERS and 4 * (self._copied[word] - 1) < others


def find_untranslated(document: ParallelDocument, languages: tuple[str, str], copies: CopyCounts) -> Iterator[Finding]:
    """Yield sentences left as they are, or in the source language.

    Copied words may be names or code. So half of them must be words that are usually translated, or function words of
    the source language. One is enough in an equal sentence of three words or more that are not all
    capitalised. Without any, it is *possible*.
    """
    source_words, target_words = (FUNCTION_WORDS.get(language, frozenset[str]()) for language in languages)
    only_source = source_words - target_words
    for index, (source, target) in enumerate(document):
        hypothesis, original = _split_cased(target), _split_cased(source)
        words = [word.lower() for word in hypothesis if word.isalpha() and len(word) > 1]
        if not words:
            continue
        share = _share_copied(original, hypothesis)
        if share >= _COPIED_SHARE:
            foreign = [word for word in words if word in only_source or copies.is_translated(word)]
            equal = hypothesis == original
            if 2 * len(foreign) >= len(words):
                certainty: Certainty = "sure" if equal and len(foreign) >= _MIN_FOREIGN else "likely"
            elif equal and len(words) > _MIN_FOREIGN and any(map(str.islower, hypothesis[1:])):
                certainty = "likely" if foreign else "possible"
            else:
                continue
            message = "same as the source" if equal else "nearly the same as the source"
            yield Finding("untranslated", message, (mark_sentence(document, index),), certainty)
        elif len(words) > _MIN_FOREIGN:
            source_count = sum(word in only_source for word in words)
            target_count = sum(word in target_words for word in words)
            if source_count > _MIN_FOREIGN and source_count >= 0.2 * len(words) and source_count > 3 * target_count:
                message = "in the source language, by its function words"
                yield Finding("untranslated", message, (mark_sentence(document, index),), "likely")


def _share_copied(original: Sequence[str], hypothesis: Sequence[str]) -> float:
    """Return the share of the hypothesis' words copied from the source in order, or 0 if it is clearly small."""
    if original == hypothesis:
        return 1.0
    matcher = SequenceMatcher(None, original, hypothesis, autojunk=False)
    if len(hypothesis) > _MAX_COMPARED or len(original) > _MAX_COMPARED or matcher.quick_ratio() < _COPIED_SHARE / 2:
        return 0.0
    return sum(block.size for block in matcher.get_matching_blocks()) / len(hypothesis)


def _split_cased(text: str) -> list[str]:
    """Return the words as written, the first one in lower case."""
    words = [word for _, _, word in tokenize(text)]
    return [words[0].lower(), *words[1:]] if words else words


def find_loops(document: ParallelDocument) -> Iterator[Finding]:
    """Yield phrases repeated in a row, more often than in the source."""
    for index, (source, target) in enumerate(document):
        hypothesis = tokenize(target)
        loop = _find_loop([word.lower() for _, _, word in hypothesis], _LOOP_REPETITIONS)
        if loop is None:
            continue
        first, size, times = loop
        source_loop = _find_loop(split_words(source), 2)
        if source_loop is not None and source_loop[2] >= times:
            continue
        start, end = hypothesis[first][0], hypothesis[first + size * times - 1][1]
        phrase = target[start : hypothesis[first + size - 1][1]]
        if not has_letters(phrase):
            continue
        sentence = mark_sentence(document, index, (), [(start, end)])
        yield Finding("loop", f"“{phrase}” {times} times in a row", (sentence,), "sure" if times > 2 else "likely")


def _find_loop(words: Sequence[str], least: int) -> tuple[int, int, int] | None:
    """Return the longest run of a repeated phrase as (first word, words of the phrase, times), or None."""
    best: tuple[int, int, int] | None = None
    last_position: dict[str, int] = {}
    distances = set()  # between equal words
    for position, word in enumerate(words):
        distances.add(position - last_position.get(word, -len(words)))
        last_position[word] = position
    for size in sorted(size for size in distances if size <= min(_LONGEST_LOOP, len(words) // 2)):
        run = 0  # words equal to those `size` positions before
        for position in range(size, len(words) + 1):
            if position < len(words) and words[position] == words[position - size]:
                run += 1
                continue
            times = run // size + 1
            needed = least if size < 3 else 2
            if times >= needed and (best is None or size * times > best[1] * best[2]):
                best = (position - run - size, size, times)
            run = 0
    return best


def find_duplicates(document: ParallelDocument, config: CheckConfig) -> Iterator[Finding]:
    """Yield different sentences of a document with the same translation."""
    by_target = group_pairs((tuple(split_words(target)), index) for index, target in enumerate(document.target))
    for hypothesis, indices in by_target.items():
        if len(indices) < 2 or len(hypothesis) < config.duplicate_words:
            continue
        first, *others = indices
        words = {index: set(split_words(document.source[index])) for index in indices}
        different = [index for index in others if _share_common(words[first], words[index]) < _SIMILARITY]
        if different:
            sentences = tuple(mark_sentence(document, index) for index in (first, *different))
            yield Finding("duplicate", f"{len(sentences)} different sentences with the same translation", sentences)


def _share_common(one: set[str], other: set[str]) -> float:
    """Return the share of words that two sentences have in common (Jaccard)."""
    return len(one & other) / max(1, len(one | other))


@dataclass(frozen=True)
class LengthModel:
    """Expected translation lengths in characters (Gale and Church 1993).

    The mean is `ratio` times the source length. The standard deviation is `deviation` times the root of the source
    length.
    """

    ratio: float
    deviation: float

    @classmethod
    def fit(cls, documents: Sequence[ParallelDocument]) -> LengthModel | None:
        """Return robust estimates (medians), or None for too few sentences."""
        pairs = [(len(s), len(t)) for document in documents for s, t in document if s and t]
        if len(pairs) < _MIN_SENTENCES:
            return None
        long = [(source, target) for source, target in pairs if source >= _MIN_DIFFERENCE] or pairs
        ratio = median(target / source for source, target in long)
        deviations = [abs(target - ratio * source) / math.sqrt(source) for source, target in pairs]
        return cls(ratio, max(_DEVIATION * median(deviations), 1e-6))

    def measure_deviation(self, source: str, target: str, config: CheckConfig) -> float:
        """Return how many times as long as expected the target is, or 0 for a usual length."""
        expected = self.ratio * len(source)
        factor = len(target) / expected
        off = abs(len(target) - expected)
        if off < _MIN_DIFFERENCE or max(factor, 1 / factor) < config.length_factor:
            return 0.0
        return factor if off / math.sqrt(len(source)) >= _LENGTH_DEVIATION * self.deviation else 0.0


def find_unusual_lengths(document: ParallelDocument, config: CheckConfig, model: LengthModel) -> Iterator[Finding]:
    """Yield translations that are far too short or too long."""
    for index, (source, target) in enumerate(document):
        if not has_letters(source) or not target:
            continue
        if factor := model.measure_deviation(source, target, config):
            factor_text = f"{factor:.1f} times as long as" if factor > 1 else f"{100 * factor:.0f} % of the length of"
            message = f"{factor_text} the usual translation of such a source"
            yield Finding("length", message, (mark_sentence(document, index),), "likely")


def find_missing_text(
    first: int, document: ParallelDocument, statistics: TermStatistics, lengths: LengthModel | None
) -> Iterator[Finding]:
    """Yield translations that are far too short, or short where words of the source in a row have no translation.

    first: index of the document's first sentence, over all documents. Only words that usually have one count.
    """
    for index, (source, target) in enumerate(document):
        words = tokenize(source)
        if len(words) < _MIN_WORDS or not target or (lengths is None and is_unspaced([target])):
            continue
        expected = len(source) if lengths is None else lengths.ratio * len(source)
        linked = {name for name, _ in statistics.links[first + index]}
        run, best = list[tuple[int, int]](), list[tuple[int, int]]()
        for start, end, word in words:
            if (name := stem(word)) in statistics.usual:
                run = [] if name in linked else [*run, (start, end)]
                best = max(best, run, key=len)
        deviation = 0.0
        if lengths is not None and len(best) >= _MIN_RUN:
            deviation = (expected - len(target)) / math.sqrt(len(source)) / lengths.deviation
        if deviation > _POSSIBLE_DEVIATION:
            span = best[0][0], best[-1][1]
            marked = mark_sentence(document, index, [span])
            message = f"{quote([source[slice(*span)]])} seems not to be translated"
            yield Finding("missing_text", message, (marked,), "likely" if deviation > _LIKELY_DEVIATION else "possible")
        elif len(target) < expected / 3:
            message = "less than a third of the usual length, so words may be missing"
            yield Finding("missing_text", message, (mark_sentence(document, index),))


def find_inconsistent_repeats(document: ParallelDocument) -> Iterator[Finding]:
    """Yield source sentences that a document repeats with different translations."""
    sources = ((index, source) for index, (source, target) in enumerate(document) if target)
    repeated = ((_normalise(text), index) for index, text in sources if len(split_words(text)) >= _REPETITION_WORDS)
    for indices in group_pairs(repeated).values():
        by_target = {_normalise(document.target[index]): index for index in reversed(indices)}
        if len(by_target) > 1:
            sentences = tuple(mark_sentence(document, index) for index in sorted(by_target.values()))
            message = f"source sentence occurs {len(indices)} times with {len(by_target)} translations"
            yield Finding("repetition", message, sentences, "sure")


def _normalise(text: str) -> str:
    """Return the text in lower case without punctuation."""
    return " ".join(_PUNCTUATION.sub(" ", text.lower()).split())


_SITE = re.compile(r"(?://|@|^)(?:[^/@]*@)?(?:[\w-]+\.)*([\w-]+\.[\w-]+)(?=[/:?#]|$)")
"""The last two labels of the host name of an address."""
_BRACKETS = (("(", ")"), ("[", "]"), ("{", "}"))
_MARKER = re.compile(r"(?:^|\s)(?:\w{1,2}|\d+|[ivx]+)$|[:;=]-?$")
"""Text before a bracket that needs no partner, such as a), 1) and :-)."""
_LONGEST_MARKER = 10


def check_content(document: ParallelDocument, config: CheckConfig, languages: tuple[str, str]) -> Iterator[Finding]:
    """Yield the numbers, addresses, placeholders and brackets missing or added in each translation."""
    for index, (source, target) in enumerate(document):
        if not source or not target:
            continue
        # What is protected in the source is so in the translation, whose language may have another script.
        addresses, others = _find_pieces(source, languages[0], config.protect)
        new_addresses, new_others = _find_pieces(target, languages[0], config.protect)
        blanked = _blank_out(source, addresses + others), _blank_out(target, new_addresses + new_others)
        unmatched: dict[str, Unmatched] = {
            "url": _compare(addresses, new_addresses, source, target),
            "placeholder": _compare(others, new_others, source, target),
            "number": find_unmatched_numbers(blanked[0], blanked[1], languages, config.number_words),
        }
        for kind, (missing, added, certainty) in unmatched.items():
            if missing or added:
                sentence = mark_sentence(document, index, (p.span for p in missing), (p.span for p in added))
                yield Finding(kind, _describe_unmatched(missing, added), (sentence,), certainty)
        if (position := _find_new_bracket(source, target)) is not None:
            problem = f"{'not closed' if target[position] in '([{' else 'closed, but not opened'} in the translation"
            sentence = mark_sentence(document, index, (), [(position, position + 1)])
            yield Finding("bracket", f"{quote([target[position]])} is {problem}", (sentence,))


def _find_pieces(text: str, language: str, protect: Sequence[str]) -> tuple[list[TextPiece], list[TextPiece]]:
    """Return the addresses of a text, and what else is protected in it, tags included."""
    pieces: tuple[list[TextPiece], list[TextPiece]] = [], []
    for span, kind, _ in find_protected(text, language, extra=protect):
        is_layout = kind == "sign" and text[slice(*span)].isascii()  # lines and leaders
        if kind not in ("path", "date") and not is_layout:
            pieces[kind != "address"].append(TextPiece(" ".join(text[slice(*span)].split()), span))
    return pieces


def _compare(sources: list[TextPiece], targets: list[TextPiece], source: str, target: str) -> Unmatched:
    """Return the pieces that only one side has, in any form."""
    missing, added = _find_missing(sources, targets, target), _find_missing(targets, sources, source)
    return missing, added, "possible" if _are_same_sites(sources, targets) else "sure"


def _are_same_sites(sources: list[TextPiece], targets: list[TextPiece]) -> bool:
    """Return whether both sides have addresses of the same sites, which may have a page in each language."""
    sites = [{match[1] for piece in side if (match := _SITE.search(piece.text))} for side in (sources, targets)]
    return bool(sites[0]) and sites[0] == sites[1]


def _blank_out(text: str, pieces: Iterable[TextPiece]) -> str:
    """Return the text with blanks for these pieces, whose numbers are not compared separately."""
    for start, end in (piece.span for piece in pieces):
        text = text[:start] + " " * (end - start) + text[end:]
    return text


def _find_missing(pieces: list[TextPiece], others: list[TextPiece], text: str) -> list[TextPiece]:
    """Return the pieces that are less frequent in `others`, except those that `text` has in another form."""
    other_texts = {other.text for other in others}
    return [piece for piece in subtract(pieces, others) if piece.text in other_texts or piece.text not in text]


def _describe_unmatched(missing: Sequence[TextPiece], added: Sequence[TextPiece]) -> str:
    """Return the missing and the added pieces as a message."""
    sides = ((missing, "the translation"), (added, "the source"))
    return "; ".join(f"{quote(piece.text for piece in pieces)} not in {side}" for pieces, side in sides if pieces)


def _find_new_bracket(source: str, target: str) -> int | None:
    """Return the position of an unpaired bracket of the target, of a kind that is always paired in the source."""
    for opening, closing in _BRACKETS:
        position = _find_unpaired_bracket(target, opening, closing)
        if position is not None and _find_unpaired_bracket(source, opening, closing) is None:
            return position
    return None


def _find_unpaired_bracket(text: str, opening: str, closing: str) -> int | None:
    """Return the position of the first bracket without a partner, or None."""
    opened: list[int] = []
    for match in re.finditer(f"[{re.escape(opening + closing)}]", text):
        if match[0] == opening:
            opened.append(match.start())
        elif opened:
            opened.pop()
        elif not _MARKER.search(text, max(0, match.start() - _LONGEST_MARKER), match.start()):
            return match.start()
    return opened[0] if opened else None
