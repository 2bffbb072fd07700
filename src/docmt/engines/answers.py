"""What is taken off an answer, and what is wrong with it as the translation of a sentence."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from docmt.checking.languages import FUNCTION_WORDS, rank_languages
from docmt.documents.numbers import find_number_faults
from docmt.documents.protected_text import find_protected
from docmt.documents.words import find_words, has_letters, has_words
from docmt.engines.services import Answer
from docmt.formats.language_codes import is_same_language, primary_language

_THINKING = re.compile(r"\A\s*<(think|thinking|reasoning|thought)>.*?</\1>\s*", re.DOTALL | re.IGNORECASE)
_OPEN_THINKING = re.compile(r"\A\s*<(think|thinking|reasoning|thought)>", re.IGNORECASE)
_LATE_END = re.compile(r"\A[^<]*</(?:think|thinking|reasoning|thought)>\s*", re.IGNORECASE)
_FENCE = re.compile(r"\A```[\w-]*\n(.*?)\n?```\s*\Z", re.DOTALL)
_QUOTES = (('"', '"'), ("“", "”"), ("„", "“"), ("«", "»"), ("'", "'"), ("‘", "’"), ("`", "`"))
_MARKERS = re.compile(r"<\|[\w ]+\|>|</?s>|\[/?INST\]|<(?:start|end)_of_turn>|<eos>")
_REFUSAL = re.compile(
    r"\b(?:I(?:['’]m| am) (?:sorry|unable)|I (?:can(?:no|['’])t|will not|won['’]t) "
    r"(?:help|assist|translate|provide|fulfill)|"
    r"as an? (?:AI|artificial intelligence|language model)|here(?:['’]s| is) the translation)\b",
    re.IGNORECASE,
)
_LONGEST, _SHORTEST, _ALLOWANCE = 4.0, 0.1, 40
"""Characters of an answer for each of the sentence, at most and at least, and how many more or fewer do not count."""
_COPY_WORDS, _LANGUAGE_WORDS = 5, 3
"""Words in small letters of a sentence whose copy is wrong; function words of another language that show it."""


def clean_answer(text: str, source: str) -> str:
    """Return an answer without thinking, fences, labels and quotation marks that the sentence does not have."""
    text = _LATE_END.sub("", _THINKING.sub("", text)).strip()
    if (match := _FENCE.fullmatch(text)) and "```" not in source:
        text = match[1].strip()
    for opening, closing in _QUOTES:
        is_quoted = len(text) > 1 and text.startswith(opening) and text.endswith(closing)
        inside = text[1:-1]
        if is_quoted and opening not in inside and closing not in inside and not _is_quoted(source):
            return inside.strip()
    return text


def _is_quoted(text: str) -> bool:
    """Return whether a sentence begins or ends in a quotation mark."""
    marks = {mark for pair in _QUOTES for mark in pair}
    return text.strip()[:1] in marks or text.strip()[-1:] in marks


def find_fault(answer: Answer, text: str, source: str, languages: tuple[str, str]) -> str:
    """Return why an answer is no translation of a sentence, for people and models; empty if it may be one.

    text: of the answer, cleaned.
    """
    if answer.is_cut:
        return "the answer was cut off"
    if _OPEN_THINKING.match(text):
        return "it has thoughts in place of a translation"
    if not has_words(text):
        return "it is empty" if not text else "it has no words"
    if len(text.splitlines()) > 1:
        return f"it has {len(text.splitlines())} lines instead of one"
    if _MARKERS.search(text) and not _MARKERS.search(source):
        return "it has marks of a prompt"
    if _REFUSAL.search(text) and not _REFUSAL.search(source):
        return "it is a remark instead of a translation"
    if len(text) > _LONGEST * len(source) + _ALLOWANCE:
        return "it is much longer than the sentence"
    if len(text) < _SHORTEST * (len(source) - _ALLOWANCE):
        return "it is much shorter than the sentence"
    if is_same_language(*languages) or not all(languages):
        return ""
    words = [source[slice(*span)] for span in find_words(source)]
    if text == source and sum(word.islower() and has_letters(word) for word in words) >= _COPY_WORDS:
        return "it is the sentence itself"
    if len(words) > _COPY_WORDS and source in text:
        return "it repeats the sentence"
    return _find_other_language(text, languages)


def _find_other_language(text: str, languages: tuple[str, str]) -> str:
    """Return that a text is in another language than the target, if its function words show it."""
    target = primary_language(languages[1])
    ranking = rank_languages([text], different=True)
    counts = {code: count for count, code in ranking}
    if not ranking or ranking[0][1] == target or ranking[0][0] < _LANGUAGE_WORDS or target not in FUNCTION_WORDS:
        return ""
    most, code = ranking[0]
    return f"it is in another language ({code})" if most >= 2 * counts.get(target, 0) + _LANGUAGE_WORDS else ""


def find_losses(source: str, target: str, languages: tuple[str, str], patterns: Sequence[str]) -> list[str]:
    """Return the protected texts and numbers of a sentence that its translation lacks, and numbers that it adds.

    A protected text may stand anywhere. patterns: of the user.
    """
    items = Counter(source[slice(*each.span)] for each in find_protected(source, languages[0], extra=patterns))
    lost = [text for text, count in items.items() if target.count(text) < count]
    missing, added = find_number_faults(source, target, languages)
    covered = "".join(items)
    return [*lost, *(number for number in missing if number not in covered), *added]
