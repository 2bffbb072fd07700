"""Checks of content that a translation must keep: numbers in digits, addresses, placeholders, brackets."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from docmt.checking.findings import CheckConfig, Finding, mark_sentence, quote
from docmt.documents import ParallelDocument
from docmt.documents.numbers import TextPiece, Unmatched, find_unmatched_numbers, subtract
from docmt.documents.protected_text import find_protected

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
