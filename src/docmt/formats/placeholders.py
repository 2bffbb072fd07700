"""Placeholders, tags and escapes in the strings of programs, as codes of a unit."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from html import unescape
from html.entities import html5
from itertools import chain, groupby, pairwise

from docmt.documents.columns import find_blocks
from docmt.documents.protected_text import find_protected
from docmt.documents.words import Span
from docmt.formats.units import BULLET, SPACE, Code, Unit, UnitBuilder, match_tags

READINGS = r"<r[tp]\b[^<>]*>[^<>]*</r[tp]>"
"""What stands above the base of a ruby in HTML."""
TAGS = r"""</?[A-Za-z0-9][\w:.-]*(?:=[^\s<>]+)?(?:\s+[\w:@.-]+(?:=(?:"[^"]*"|'[^']*'|[^\s"'<>]+))?)*\s*/?>|<!--.*?-->"""
"""Of HTML, and those of components and games: <b>, <0>, <color=red>."""
_ESCAPED_TAGS = r"&lt;/?[A-Za-z](?:[^&<>]|&quot;){0,99}&gt;"
ENTITIES = r"&(?:\#\d{1,7}|\#[xX][0-9A-Fa-f]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});"
"""Of HTML."""
LINE_BREAKS = (
    r"[ ]*(?:[\r\n\t]|\\[nrt]|<[bB][rR]\s*/?>)(?:[ \r\n\t]|\\[nrt]|<[bB][rR]\s*/?>)*"
    rf"(?:{BULLET})?|(?<![\s\S]){BULLET}(?=[$%#]*[{{%<])"
)
"""Line breaks and tabs, as such, as escapes, and as tags, with the mark of a list item. They separate words."""
_INTERVAL, _LABEL = r"(?:\{\d+\}|[\[\]][^\[\]{}|]{1,20}[\[\]])", r"[a-z]\w*:(?!//)[ ]*"
_FORMS = (
    rf"[ ]*\|[ ]*(?=[{{\[\]:%]){_INTERVAL}?[ ]*"
    r"|(?:(?<=[^\W\d_]{2})|(?<=[.!?}%\]]))\|(?=[^\W\d_]{2})(?![A-Z][A-Z\d_]*\|)"
)
"""What stands between the plural forms of Laravel and Symfony: `{0} none|{1} one|[2,*] :count`, `one|many`."""
_LABELLED = re.compile(rf"(?:{_LABEL}|{_INTERVAL})[^|]*+(?:\|[ ]*+(?:{_LABEL}|{_INTERVAL})[^|]*+)++")
_LABELS = rf"(?:(?<![\s\S])|[ ]*\|[ ]*){_LABEL}"
"""Of plural forms of Symfony: `one: a day|many: %count% days`."""
PATHS = r"(?<![A-Za-z0-9])(?:[A-Za-z]:\\(?![nrt][A-Z])|\\\\[\w.$-]+\\)[^\s\"'<>|:*?]*[\w\\]"
"""Of Windows: C:\\new\\table.txt, whose \\n and \\t are no escapes."""
_MARKDOWN = r"(?<![\w*])\*\*(?=[^\s*][^*\n]*\*\*)|(?<=[^\s*])\*\*(?![\w*])|(?<![\w`])`[^`'\s][^`'\n]*`(?!`)"
"""Bold text and code."""
_MARKUP = (PATHS, LINE_BREAKS, _FORMS, READINGS, TAGS, _ESCAPED_TAGS, ENTITIES, _MARKDOWN)
_PLACEHOLDERS = ("own pattern", "template tag", "tag", "placeholder", "message placeholder")
"""Kinds of protected text that are codes. The others are protected in the sentences."""
_IN_SENTENCES = ("own pattern", "template tag", "placeholder")
"""Kinds that are protected in the sentences also."""
_SILENT = re.compile(
    r"\{[%#/:@]|\{\{[{~-]?[#/^!>&]|<[%?](?!=)|</?#|</?[A-Za-z][\w.-]*[\s/>]|\[[a-z]|[\[\]]-|[\[\]]\d|:[\w+-]+:$"
)
"""Beginning of codes that stand for no word: elements, tags of blocks, numbers of plural forms, emoji."""

_WORDS = re.compile(r"[^\W_](?:[^\W_]|[ .,;!?'’\"-])*")
"""Text that has no placeholders."""
_ENTITY = re.compile(ENTITIES)
_SIGNS = "'‘’‚“”„«»–—…\u00a0\u2002\u2003\u2009\u202f"
"""Signs and spaces of texts. Their entities, and those of letters, are read and written as such; others stay."""
_TAG = re.compile(r"(?=<.*>\Z|\[.*\]\Z)[<\[](/?)([\w:.-]+)[^>]*?(/?)[>\]]", re.DOTALL)
_NOT_COPIED = frozenset(("a", "button", "link", "q", "url"))
_BREAK = re.compile(r"[ ]*(?:[\r\n\t|]|\\[nrt]|<br\s*/?>)", re.IGNORECASE)
_ICU = re.compile(r"\{\s*[\w.]+\s*,\s*(?:plural|select|selectordinal|choice)\s*,")
_WORD_LIKE = re.compile(
    r"[ ]?(?:`|!\[|\[(?!\^)|[{@$:+%\\]|<(?:code|kbd|samp|var|img|input)\b|<[\w.+-]+[:@]|<%)", re.IGNORECASE
)
_TIGHT = re.compile(r"[-–/:.+×=_~]")
"""Between placeholders that stay together: {hours}:{minutes}."""
_OPENING = "([{«„“‘¿¡\"'"
_CLOSING = ")]}»”’.,;:!?…%\"'"
_EMPTY = Unit("")


@dataclass
class _Token:
    """A piece of text, of what is hidden, or a code of the unit itself."""

    kind: str
    """text | open | close | single | space | toggle | code"""
    content: str
    name: str = ""
    """of a tag"""
    code: Code | None = None


def is_icu_message(text: str) -> bool:
    """Return whether a text has branches for plural forms or cases, which no translation of one text can fill."""
    return _ICU.search(text) is not None


def find_placeholders(text: str, protect: Sequence[str] = ()) -> list[Span]:
    """Return the characters of the placeholders that are protected in sentences. protect: patterns of the user."""
    return [part.span for part in find_protected(text, extra=protect) if part.kind in _IN_SENTENCES]


def is_readable(content: str, protect: Sequence[str] = ()) -> bool:
    """Return whether a code is a placeholder that stands for a word of its sentence."""
    bare = content.strip(SPACE)
    return bool(bare) and not _SILENT.match(bare) and find_placeholders(bare, protect) == [(0, len(bare))]


def is_placeholder(text: str) -> bool:
    """Return whether a text is one placeholder of a program's string."""
    return [span for span, _, is_sign in find_protected(text, in_messages=True) if not is_sign] == [(0, len(text))]


def hide_placeholders(unit: Unit, patterns: Sequence[str] = (), protect: Sequence[str] = ()) -> Unit:
    """Return the unit of a program's string with its placeholders as codes. It renders as before.

    A code carries a space that would stand beside another one without it: "Deleted %s files" has the text "Deleted
    files" and the code "%s ". patterns: regular expressions, without groups, of what is also hidden. protect: those of
    the user; what they match is a code only if it has placeholders inside, and else protected in its sentence.
    """
    if not (unit.codes or patterns or protect) and _WORDS.fullmatch(unit.text):
        return unit  # at once: searching for each kind takes long
    builder = UnitBuilder()
    tokens: list[_Token] = []
    for part in unit.segments():
        tokens += (
            [_Token("code", part.content, code=part)] if isinstance(part, Code) else _split(part, patterns, protect)
        )
    _match_blocks(tokens)
    _match_tags(tokens)
    _carry_spaces(_join_runs(tokens))
    opened: list[str] = []
    for token in tokens:
        _add_token(builder, token, opened)
    return builder.finish(unit.id)


def _split(text: str, patterns: Sequence[str], protect: Sequence[str] = ()) -> list[_Token]:
    patterns = [*patterns, _LABELS] if _LABELLED.fullmatch(text) else patterns
    known = find_protected(text, in_messages=True, extra=protect) if protect else []
    plain = {span for span, kind, _ in known if kind == "own pattern" and _is_plain(text[slice(*span)], patterns)}
    parts = find_protected(text, in_messages=True, extra=(*protect, *patterns, *_MARKUP))
    spans = [span for span, kind, _ in parts if kind in _PLACEHOLDERS and span not in plain]
    joined: list[_Token] = []
    for number, (start, end) in enumerate(pairwise([0, *chain(*spans), len(text)])):
        token = _classify(text[start:end]) if number % 2 else _Token("text", text[start:end])
        if joined and joined[-1].kind == token.kind == "text":
            joined[-1].content += token.content
        elif joined[1:] and joined[-2].kind == token.kind == "single" and _TIGHT.fullmatch(joined[-1].content):
            joined[-2:] = [_Token("single", joined[-2].content + joined[-1].content + token.content)]
        else:
            joined.append(token)
    return joined


def _is_plain(text: str, patterns: Sequence[str]) -> bool:
    """Return whether a text has no placeholder."""
    return _split(text, patterns) == [_Token("text", text)]


def _classify(content: str) -> _Token:
    if _ENTITY.fullmatch(content) and (character := _decode_entity(content)):
        return _Token("text", character)
    if _BREAK.match(content):
        return _Token("space", content)
    if content == "**":
        return _Token("toggle", content, content)
    tag = _TAG.fullmatch(content)
    if tag is None or tag[3]:
        return _Token("single", content)
    return _Token("close" if tag[1] else "open", content, tag[2].lower())


def _decode_entity(content: str) -> str:
    """Return the letter, sign or space of an entity, or an empty text for any other one."""
    character = unescape(content) if content[1] == "#" else html5.get(content[1:], "")
    return character if len(character) == 1 and (character.isalpha() or character in _SIGNS) else ""


def _match_blocks(tokens: Sequence[_Token]) -> None:
    """Make pairs of the first and the last tag of each block of a template."""
    single = [token for token in tokens if token.kind == "single"]
    for first, *_, last in (block for block in find_blocks([each.content for each in single]) if len(block) > 1):
        single[first].kind, single[last].kind = "open", "close"
        single[first].name = single[last].name = f"block {first}"


def _match_tags(tokens: Sequence[_Token]) -> None:
    """Make single codes of tags that nothing opens or closes, such as <file>."""
    pairs = match_tags([(token.kind, token.name) for token in tokens])
    for token in tokens:
        if token.kind in ("open", "close", "toggle"):
            token.kind = "single"
    for start, end in pairs.items():
        tokens[start].kind, tokens[end].kind = "open", "close"


def _join_runs(tokens: list[_Token]) -> list[_Token]:
    """Move the space between two hidden tokens into the first, if it is a placeholder. Return the tokens."""
    for before, token, after in zip(tokens, tokens[1:], tokens[2:], strict=False):
        if token.kind == "text" and token.content == SPACE and before.kind == "single" and _is_hidden(after):
            before.content += SPACE
            token.content = ""
    tokens[:] = [token for token in tokens if token.kind == "code" or token.content]
    return tokens


def _carry_spaces(tokens: list[_Token]) -> None:
    """Move a space beside a run of codes with a placeholder into it, if there is one on the other side, or nothing."""
    border = (False, [_Token("space", "")])
    groups = [border, *((is_hidden, list(group)) for is_hidden, group in groupby(tokens, _is_hidden)), border]
    for (_, before), (is_hidden, run), (_, after) in zip(groups, groups[1:], groups[2:], strict=False):
        if is_hidden and any(token.kind == "single" for token in run):
            _carry(before[-1], run, after[0])


def _is_hidden(token: _Token) -> bool:
    return token.kind not in ("text", "space", "code")


def _carry(before: _Token, run: Sequence[_Token], after: _Token) -> None:
    first, last = run[0], run[-1]
    left, right = before.content[-1:] * (before.kind == "text"), after.content[:1] * (after.kind == "text")
    is_read = all(is_readable(token.content) for token in run if token.kind == "single")
    if "code" in (before.kind, after.kind):
        return
    if right == SPACE and left in ("", SPACE, *_OPENING) and last.kind != "open":
        if not (is_read and last.kind == "close"):
            last.content += SPACE
            after.content = after.content[1:]
    elif left == SPACE and right in ("", *_CLOSING) and first.kind not in ("close", "open" if is_read else ""):
        first.content = SPACE + first.content
        before.content = before.content[:-1]


def _add_token(builder: UnitBuilder, token: _Token, opened: list[str]) -> None:
    id, code = f"p{builder.code_count + 1}", token.code
    if code and code.kind == "open":
        builder.open(code.id, code.content, code.can_copy)
    elif code and code.kind == "close":
        builder.close(code.id, code.content)
    elif code:
        builder.add_single(code.id, code.content, is_space=code.is_break)
    elif token.kind == "text":
        builder.add_text(token.content)
    elif token.kind == "open":
        builder.open(id, token.content, can_copy=token.name.isalnum() and token.name not in _NOT_COPIED)
        opened.append(id)
    elif token.kind == "close":
        builder.close(opened.pop(), token.content)
    elif token.content.startswith(("<rt", "<rp")):
        builder.add_reading(id, token.content)
    else:
        builder.add_single(id, token.content, is_space=token.kind == "space")


def tidy_pieces(old: Unit, new: Unit) -> Unit:
    """Return a translated unit with spaces around code, pictures and placeholders, where the old one has no letter.

    "Es `a` ist" is not written "Es`a`  ist" after a translation that has moved the code.
    """
    if new == old:
        return new
    singles = [code for code in old.codes if code.kind == "single" and not code.is_break]
    words = {code.id for code in singles if _WORD_LIKE.match(code.content)}
    return space_words(old, tidy_spaces(new, old), words)


def space_words(old: Unit, new: Unit, ids: Collection[str]) -> Unit:
    """Return a translated unit with spaces around single codes that show words, where the old one has no letter.

    ids: of these codes.
    """
    beside = {code.id: find_letters_beside(old, code) for code in old.codes if code.id in ids}
    codes: list[Code] = []
    texts: list[str] = []
    position, added = 0, 0
    for left, code, right in zip((None, *new.codes), new.codes, (*new.codes[1:], None), strict=False):
        is_glued = was_glued = (False, False)
        if code.kind == "single" and code.id in beside:
            is_glued, was_glued = find_letters_beside(new, code), beside[code.id]
        before, after = (
            now and not then and not (other and other.offset == code.offset and (other.is_break or other.id in beside))
            for now, then, other in zip(is_glued, was_glued, (left, right), strict=True)
        )
        codes.append(replace(code, offset=code.offset + added + before))
        texts += [new.text[position : code.offset], SPACE * (before + after)]
        position, added = code.offset, added + before + after
    return replace(new, text="".join([*texts, new.text[position:]]), codes=tuple(codes))


def find_letters_beside(unit: Unit, code: Code) -> tuple[bool, bool]:
    """Return whether a letter or digit is directly before and after a code."""
    before, after = unit.text[max(0, code.offset - 1) : code.offset], unit.text[code.offset : code.offset + 1]
    is_before = before.isalnum() and not code.content.startswith(SPACE)
    return is_before, after.isalnum() and not code.content.endswith(SPACE)


def tidy_spaces(unit: Unit, old: Unit = _EMPTY) -> Unit:
    """Return a translated unit whose codes hold their space on the side where the text needs it.

    old: the unit before. What a code touches there, as {a} touches # in #{a} {b}, it may touch in `unit`.
    """
    none = Code(-1, "single", "")
    befores = {
        code.id: old.text[code.offset - 1 : code.offset]
        for other, code in pairwise([none, *old.codes])
        if other.offset < code.offset and not code.content.startswith(SPACE)
    }
    afters = {
        code.id: old.text[code.offset : code.offset + 1]
        for other, code in pairwise([none, *reversed(old.codes)])
        if other.offset != code.offset and not code.content.endswith(SPACE)
    }
    codes: list[Code] = []
    held = False  # whether the last code is a single one with a space after it
    groups = groupby(unit.codes, key=lambda code: (code.kind, code.offset, code.is_space))
    for (kind, offset, is_space), group in groups:
        run = list(group)
        if kind == "open" and offset == len(unit.text) and held and codes[-1].offset == offset:
            codes[-1] = replace(codes[-1], content=codes[-1].content.removesuffix(SPACE) + SPACE)
        held = kind == "single" and _holds_space(run[-1]) and run[-1].content.endswith(SPACE)
        touched = befores.get(run[0].id, ""), afters.get(run[-1].id, "")
        texts = unit.text[:offset], unit.text[offset:]
        codes += run if is_space or kind != "single" else _tidy_run(run, *texts, touched)
    return replace(unit, codes=tuple(codes))


def _tidy_run(run: Sequence[Code], before: str, after: str, touched: tuple[str, str]) -> list[Code]:
    """Return single codes at one place of a text, with spaces around them if one of them carries a space.

    touched: characters beside which they need none.
    """
    contents = [code.content.strip(SPACE) if _holds_space(code) else code.content for code in run]
    if not any(map(_holds_space, run)):
        return list(run)
    for number, (left, right) in enumerate(pairwise(run)):
        spaces = _holds_space(left), _holds_space(right)
        faces = (spaces[0] and left.content[-1] == SPACE) or (spaces[1] and right.content[0] == SPACE)
        if faces or (all(spaces) and not _is_next(left, right)):
            contents[number] += SPACE
    if not before or before[-1] in SPACE + _OPENING + touched[0]:
        is_apart = after and after[0] not in SPACE + _CLOSING + touched[1] and not run[-1].is_break
        contents[-1] += SPACE if is_apart else ""
    else:
        contents[0] = contents[0] if run[0].is_break else SPACE + contents[0]
        contents[-1] += SPACE if after[:1].isalnum() and after[0] != touched[1] and not run[-1].is_break else ""
    return [replace(code, content=content) for code, content in zip(run, contents, strict=True)]


def _is_next(left: Code, right: Code) -> bool:
    """Return whether a placeholder follows the other one in the source."""
    return left.id[1:].isdecimal() and right.id == f"p{int(left.id[1:]) + 1}"


def _holds_space(code: Code) -> bool:
    bare = code.content.strip(SPACE)
    return bool(bare) and not code.is_break and code.content in (f" {bare}", f"{bare} ", f" {bare} ")
