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

_THOUGHTS = re.compile(r"<(?:think|thinking|reasoning|thought)>|\[THINK\]", re.IGNORECASE)
_END_OF_THOUGHTS = re.compile(r"\A.*(?:</(?:think|thinking|reasoning|thought)>|\[/THINK\])", re.DOTALL | re.IGNORECASE)
_FENCE = re.compile(r"\A```[\w-]*\n(.*?)\n?```\s*\Z", re.DOTALL)
_QUOTES = (('"', '"'), ("“", "”"), ("„", "“"), ("«", "»"), ("'", "'"), ("‘", "’"), ("`", "`"))
_APOSTROPHE = re.compile(r"(?<=\w)['’](?=\w)")
_MARKERS = re.compile(r"<\|[\w ]+\|>|</?s>|\[/?INST\]|<(?:start|end)_of_turn>|<eos>")
_HERE, _AS_AI = r"\bhere(?:['’]s| is) (?:the|your) translation\b", r"\bas an? (?:AI|language model)\b"
_REMARK = re.compile(
    rf"{_HERE}|{_AS_AI}|\bI(?:['’]m| am) (?:sorry|unable)\b"
    r"|\bI (?:can(?:no|['’])t|will not|won['’]t) (?:help|assist|translate|provide|fulfill)\b",
    re.IGNORECASE,
)
_ENGLISH_REMARK = re.compile(rf"\A.{{0,20}}(?:{_HERE}[^:]*:|{_AS_AI}[\w ]*, I\b)", re.IGNORECASE)
_ABOUT_AI = re.compile(r"\b(?:AI|IA|KI|ИИ)\b|人工")
_BROKEN = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\ufffd-\uffff]")
_WIDE = re.compile("[\u1100-\u11ff\u2e80-\ua4cf\uac00-\ud7ff\uf900-\ufaff\U00020000-\U0003ffff]")
"""Characters of Chinese, Japanese and Korean, which have about as much in them as three of others."""
_LONGEST, _SHORTEST, _ALLOWANCE = 4.0, 0.1, 40
"""Characters of an answer for each of the sentence, at most and at least, and how many more or fewer do not count."""
_HAN = {"zh", "ja", "yue"}
_SCALES = frozenset("十百千万萬亿億兆世만억천백")
"""Characters beside which numbers have other digits: 10,000 is 1万."""
_ROMAN = dict(zip(["16", "17", "18", "19", "20", "21"], ["XVI", "XVII", "XVIII", "XIX", "XX", "XXI"], strict=True))
"""Numbers of centuries, which many languages write like this."""
_COPY_WORDS, _LANGUAGE_WORDS = 5, 3
"""Words without capitals of a sentence whose copy is wrong; function words of another language that show it."""


def clean_answer(text: str, source: str) -> str:
    """Return an answer without thoughts, fences and quotation marks that the sentence does not have."""
    if not _END_OF_THOUGHTS.search(source):
        text = _END_OF_THOUGHTS.sub("", text)
    text = text.strip()
    if (match := _FENCE.fullmatch(text)) and "```" not in source:
        text = match[1].strip()
    for opening, closing in _QUOTES:
        is_quoted = len(text) > 1 and text.startswith(opening) and text.endswith(closing)
        inside = text[1:-1]
        marks = _APOSTROPHE.sub("", inside)
        if is_quoted and opening not in marks and closing not in marks and not _is_quoted(source):
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
        return "the answer was cut off (limits.answer_tokens allows longer ones)"
    if _THOUGHTS.match(text) and not _THOUGHTS.search(source):
        return "it has thoughts in place of a translation"
    if not has_words(text):
        return "it is empty" if not text else "it has no words"
    if len(text.splitlines()) > 1:
        return f"it has {len(text.splitlines())} lines instead of one"
    if set(_BROKEN.findall(text)) - set(source):
        return "it has control or broken characters"
    if _MARKERS.search(text) and not _MARKERS.search(source):
        return "it has marks of a prompt"
    remark = _ENGLISH_REMARK if primary_language(languages[1]) == "en" else _REMARK
    if remark.search(text) and not _REMARK.search(source) and not _ABOUT_AI.search(source):
        return "it is a remark instead of a translation"
    size, expected = (len(each) + 2 * len(_WIDE.findall(each)) for each in (text, source))
    if size > _LONGEST * expected + _ALLOWANCE:
        return "it is much longer than the sentence"
    if size < _SHORTEST * (expected - _ALLOWANCE):
        return "it is much shorter than the sentence"
    if text == source or not _needs_translation(source, languages):
        return ""
    if source in text and _is_prose(source, languages):
        return "it repeats the sentence"
    code = _find_other_language(text, languages[1])
    if code and code != primary_language(languages[0]):  # a name or a quotation is as it is in the sentence
        code = _find_other_language(" ".join({*text.split()} - {*source.split()}), languages[1])
    return f"it is in another language ({code})" if code else ""


def is_copy(text: str, source: str, languages: tuple[str, str]) -> bool:
    """Return whether an answer is the sentence itself, as it may be for names and titles only."""
    return text == source and _is_prose(source, languages) and _needs_translation(source, languages)


def _is_prose(source: str, languages: tuple[str, str]) -> bool:
    """Return whether a sentence has words, beside names, that the other language does not write like this."""
    words = [source[slice(*span)] for span in find_words(source)]
    count = sum(word == word.lower() and has_letters(word) for word in words)
    return count >= _COPY_WORDS and not _HAN.issuperset(map(primary_language, languages))


def _needs_translation(source: str, languages: tuple[str, str]) -> bool:
    """Return whether a sentence has to change: what is in another language than its document may stay."""
    are_different = all(languages) and not is_same_language(*languages)
    return are_different and not _find_other_language(source, languages[0])


def _find_other_language(text: str, language: str) -> str:
    """Return the code of another language if function words show that a text is in it."""
    ranking = rank_languages([text], different=True)
    if not ranking or (code := primary_language(language)) not in FUNCTION_WORDS:
        return ""
    counts = {each: count for count, each in ranking}
    most, found = ranking[0]
    return found if found != code and most >= 2 * counts.get(code, 0) + _LANGUAGE_WORDS else ""


def find_losses(source: str, target: str, languages: tuple[str, str], patterns: Sequence[str]) -> list[str]:
    """Return the protected texts and numbers of a sentence that its translation lacks, and numbers that it adds.

    A protected text may stand anywhere. patterns: of the user.
    """
    items = Counter(source[slice(*each.span)] for each in find_protected(source, languages[0], extra=patterns))
    lost = [text for text, count in items.items() if target.count(text) < count and text not in "&/"]
    missing, added = find_number_faults(source, target, languages)
    if not _SCALES.isdisjoint(source + target):
        missing, added = [], []
    lost += [each for each in missing if each not in "".join(items) and _ROMAN.get(each, each) not in target]
    return [*lost, *added]
