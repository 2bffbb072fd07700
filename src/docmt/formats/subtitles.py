"""Subtitles: SubRip (srt) and WebVTT (https://www.w3.org/TR/webvtt1/).

A sentence over several cues is one unit. The borders of its cues are codes "cue1", "cue2", ..., and its line breaks
are codes "line1", ... Both are set anew in a translation: the number of cues never changes, and lines are balanced.
"""

from __future__ import annotations

import html
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, groupby, pairwise, takewhile

from docmt.core.errors import DocmtError
from docmt.documents.protected_text import find_protected
from docmt.documents.words import has_letters
from docmt.formats.cue_layout import CUE, LINE, CueRegion, lay_out_cues
from docmt.formats.patched_text import TextFile
from docmt.formats.units import SPACE, ReadConfig, Skipped, Unit, UnitBuilder

MAX_PAUSE = 3.0
"""Longest pause within a sentence, in seconds."""
MAX_OVERLAP = 0.5
"""Longest time that two cues of a sentence are shown together, in seconds."""
MAX_CUES = 20
"""Most cues of a unit."""
MIN_FINAL_SHARE = 0.05
"""Least share of cues that end a sentence. Files with fewer have no punctuation, and each cue is a unit."""

_MIN_TITLE = 5
"""Fewest letters of a title in capitals. Shorter ones may be a name of letters within a sentence."""

_LINE = re.compile(r"([^\r\n]*)(\r\n|\r|\n|$)")
_TIME = r"(?:(\d{1,6}):)?(\d{1,6}):(\d{1,6})(?:[.,](\d{1,9}))?"
_TIMING = re.compile(rf"[^\w\r\n]*{_TIME}[^\d\r\n]{{1,12}}{_TIME}")
_A_TIME = r"(?:\d+[:：]\d+[:：.,，;]|\d\d\.\d\d\.)\d"
_TWO_TIMES = re.compile(
    rf"[^\w\r\n<]*{_A_TIME}[\d:：.,，;]*[^\d\r\n]{{0,12}}{_A_TIME}(?![\d:：.,，;]*[ \t]+[^\W\d_]+(?![\w:%=]))"
)
"""A line with times that another program wrote, perhaps without -->. It is text only if words follow."""
_HEADER_LANGUAGE = re.compile(r"^Language:[ \t]*([^\r\n]*)", re.MULTILINE)

_ESCAPED_BREAK = r"(?:(?<!:)(?:\\[Nn])++|(?<![\s|])\|+(?![\s|])|(?:<[bB][rR] ?/?>)++)"
_NEWLINE = rf"(?:\r\n|\r|\n|{_ESCAPED_BREAK})"
_BREAK = rf"(?P<line>[ \t]*+{_NEWLINE}[ \t]*+)"
_SHAPES = (
    r"\{[^{}\r\n]*\\p[1-9][^{}\r\n]*\}(?:(?!\{[^{}\r\n]*\\p0)[\s\S])*"
    r"|\bm(?:[ ]-?\d[\d.]*){2}(?:[ ](?:[bclmnps]|-?\d[\d.]*)(?![^\s\\{}]))+"
)
_CODE = (
    rf"{_SHAPES}|\{{(?:\\|=\d|[A-Za-z]:)[^{{}}\r\n]*\}}|\{{/?[ibus]\}}|\\h|<\d[\d:.]*>"
    r"|(?<![{$#%])\{[^\W_][^{}\r\n]*[ ][^{}\r\n]*[^\W_][.!?]?\}(?!\})|\{[^{}\r\n]+\}(?=\{\\)"
)
"""Codes of ASS (drawings, formats, hard spaces, comments) and MicroDVD, which players also read in other formats."""
_READING = r"(?P<reading><rt\b[^<>]*>(?:(?!</?(?:rt|ruby)\b)[\s\S])*(?:</rt>)?)"
_VTT_TOKEN = re.compile(rf"{_BREAK}|{_READING}|<(?P<end>/?)(?P<name>[A-Za-z]+)[^<>]*>|(?P<other><[^<>]*>|{_CODE})")
_HTML = "i|b|u|s|font|c|v|lang|ruby|p|div|span|em|strong|big|small|sub|sup|tt|center|box"
_SRT_TOKEN = re.compile(
    rf"{_BREAK}|{_READING}|<(?P<end>/?)(?P<name>{_HTML})(?![\w-])[^<>\r\n]*>"
    rf"|\{{\\(?P<style>[ibus])(?P<on>[01])\}}|(?P<other>{_CODE}|&nbsp;)",
    re.IGNORECASE,
)
_NOT_COPIED = frozenset(("v", "ruby"))
_HARD_SPACES = ("\\h", "&nbsp;")
_GAP = r"[ \t\u00a0]*+"
_SLANT = r"[*/_](?=[^\W\d_][^*/_]*[*/_]$)"
_MUSIC = r"(?:[♪♫♬♩¶〽〜～🎵🎶🎼]|&#(?:983[3-6]|x266[9a-cA-C]);)"
_SPEAKER = (
    rf"<(?!(?i:{_HTML}|rt|rp|br)\b)[A-ZÀ-Þ][\w.'’ -]*>(?=[ \t]*\S)"
    r"|[A-ZÀ-Þ][A-ZÀ-Þ.'’-]*(?: (?:&|[A-ZÀ-Þ.'’-]+)){0,4}(?: ?#?\d+)?(?: ?[(\[][A-Z.' ]+[)\]])?:"
    r"(?=[ \t]+[^a-z\r\n]{0,30}[a-z])"
)
"""Name of a speaker before a text: <John>, MAN 2: and JOHN (V.O.):"""
_LEAD = re.compile(
    rf"(?:(?:[-–—‐](?![-–—‐\d])|(?:>|&gt;){{2,}}|[-–—‐]{{2,}}|{_MUSIC}|[《〈「『【〔⟪＜‹]|[#~*]+(?=[ \t])|{_SLANT})"
    rf"{_GAP})+(?:(?:{_SPEAKER}){_GAP})?|(?:{_SPEAKER}){_GAP}"
)
"""Dash, >> or name of a speaker, marks of music, or brackets that alphabets do not have, before a text."""
_TAIL = re.compile(rf"(?:{_GAP}(?:{_MUSIC}|[》〉」』】〕⟫＞›]|(?<=\s)[#~*]+|[*/_]|[-–—‐]{{2,}})){{0,50}}+{_GAP}$")
_TAGS = r"(?:<[^<>]*>|\{(?:\\|[A-Za-z]:)[^{}]*\}|[ \t]){0,50}+"
_NEXT_SPEAKER = re.compile(
    rf"{_NEWLINE}(?={_GAP}(?:{_SPEAKER})|{_TAGS}(?:{_LEAD.pattern})\S)"
    rf"|(?:(?<=[!?…\x22”»)\]>])|(?<=[a-zß-ÿ\d]\.))[ \t]+(?={_TAGS}(?:[-–—‐]{_GAP}[^\W\d_a-zß-ÿ]|{_SPEAKER}))"
)
"""At the beginning of a line, or after a sentence."""
_VOICE = re.compile(r"<v[.\s][^<>]*>", re.IGNORECASE)
_FINAL = re.compile(r"(?:[.!?…。！？؟।♪♫🎵🎶》〉】⟫]|&#\w+;)[\"'”’“»«)\]」』）】]*\s*$")
_SOUND = re.compile(r"[\[(（【].*[\])）】]$", re.DOTALL)
_LABEL = re.compile(r"([^\W\d_]+(?:[ .'’-]+[^\W\d_]+)*)(?: ?\d+)?:")
_ESCAPES = str.maketrans(
    {"&": "&amp;", "<": "&lt;", ">": "&gt;", "\u00a0": "&nbsp;", "\u200e": "&lrm;", "\u200f": "&rlm;"}
)
_ENTITY, _SRT_ENTITY = re.compile(r"&\S+"), re.compile(r"&(?!lt;|gt;)#?\w+;")
"""Players decode these in SubRip too. There, &lt; would become a tag."""
_LINE_BREAKS = re.compile(r"\s*[\r\n\u2028\u2029]\s*")


@dataclass(frozen=True)
class _Token:
    """A part of a cue."""

    start: int
    end: int
    kind: str
    """text | space | mark (a dash or music) | line | reading (of a ruby) | open | close | single"""
    name: str = ""
    """of a tag"""
    partner: int = 0
    """index of the close token of an open one, and the other way round"""


@dataclass(frozen=True)
class _Turn:
    """The words of one speaker in a cue."""

    tokens: Sequence[_Token]
    """without the tags around all of the text"""
    first: float
    last: float
    """times in seconds"""
    cue: str
    """name of the cue"""
    text: str
    """with the marks after it"""
    voice: str
    """start tag of the voice around the turn"""
    has_mark: bool
    """whether a dash or music is before it"""

    @property
    def start(self) -> int:
        """The start of the text in the file."""
        return self.tokens[0].start

    @property
    def end(self) -> int:
        """The end of the text in the file."""
        return self.tokens[-1].end


class SubtitleFile(TextFile):
    """A file of subtitles."""

    def __init__(self, data: bytes, path: str) -> None:
        super().__init__(data, path, fallback="cp1252")
        self.is_vtt = re.match(r"WEBVTT(?![^\s])", self.text) is not None
        self.regions: list[CueRegion] = []

    def write(self, units: Sequence[Unit], language: str = "") -> bytes:
        """Return the file with other units. Their cues and lines are cut anew."""
        file_newline = next((match[0] for match in re.finditer(r"\r\n|\r|\n", self.text)), "\n")
        replacements = []
        if self.is_vtt and language:
            header = re.split(r"(?:\r\n|\r|\n){2}|-->", self.text, maxsplit=1)[0]
            if match := _HEADER_LANGUAGE.search(header):
                replacements.append((*match.span(1), language))
        for region, old, new in zip(self.regions, self.units, units, strict=True):
            if new != old:
                escaped = re.search(rf"[ \t]*+{_ESCAPED_BREAK}[ \t]*+", self.text[region.start : region.end])
                newline = escaped[0] if escaped else file_newline
                replacements.append((region.start, region.end, lay_out_cues(old, new, region, newline, self._escape)))
        return self.render(units, replacements)

    def _escape(self, text: str) -> str:
        text = _LINE_BREAKS.sub(" ", text)
        return text.translate(_ESCAPES) if self.is_vtt else text


def read(data: bytes, path: str, config: ReadConfig) -> SubtitleFile:
    """Return the units of subtitles: WebVTT if the file begins with that word, else SubRip.

    Raises DocmtError for a file without cues.
    """
    file = SubtitleFile(data, path)
    text, is_vtt = file.text, file.is_vtt
    if not is_vtt and path.lower().endswith(".vtt"):
        raise DocmtError(f"{path}, line 1: a WebVTT file begins with WEBVTT: add this line, or name the file .srt")
    if file.is_guessed:
        file.skipped.append(Skipped("guessed encodings", "not UTF-8, so it was read as Windows-1252"))
    cues = list(_find_cues(text, is_vtt, file.skipped))
    if not is_vtt and not cues:
        raise DocmtError(f"{path}: no cue found (00:00:01,000 --> 00:00:02,000): is it a SubRip file?")
    turns: list[Sequence[_Turn | None]] = [_read_turns(text, *cue, is_vtt) or [None] for cue in cues]
    joins = _uses_punctuation([turn for turn in chain.from_iterable(turns) if turn])
    group: list[_Turn] = []
    for turn in chain(*turns, [None]):
        if group and (turn is None or not joins or not _belongs(group, turn)):
            _add_unit(file, group)
            group = []
        if turn is not None:
            group.append(turn)
    return file


def _find_cues(text: str, is_vtt: bool, skipped: list[Skipped]) -> Iterator[tuple[int, int, float, float, str]]:
    """Yield the start and end of the text of each cue (0, 0 without text), its times in seconds, and its name."""
    lines = list(_LINE.finditer(text))
    timings = [index for index, line in enumerate(lines) if "-->" in line[1] or _TWO_TIMES.match(line[1])]
    number = 0
    for index, limit in pairwise([*timings, len(lines)]):
        match = _TIMING.match(lines[index][1])
        if match is None:
            skipped.append(Skipped("broken cues", lines[index][1]))
            continue
        number += 1
        name = lines[index - 1][1].strip() if index else ""
        first, last = _read_seconds(match.groups()[:4]), _read_seconds(match.groups()[4:])
        if not is_vtt and limit < len(lines) and lines[limit - 1][1].strip().isdigit() and limit - 1 > index:
            limit -= 1  # the number of the next cue
        for start, end in list(_find_paragraphs(lines[index + 1 : limit], is_vtt)) or [(0, 0)]:
            yield start, end, first, last, name or str(number)
    if is_vtt:
        notes = re.finditer(r"^NOTE(?=\s)(.*?)(?=(?:\r\n|\r|\n){2}|\Z)", text, re.MULTILINE | re.DOTALL)
        skipped += [Skipped("notes", match[1].strip()) for match in notes]


def _find_paragraphs(lines: Sequence[re.Match[str]], is_vtt: bool) -> Iterator[tuple[int, int]]:
    """Yield the start and end of the parts of a cue between lines without text; an empty line ends a WebVTT cue."""
    cue = takewhile(lambda line: not is_vtt or line[1], lines)
    for has_text, group in groupby(cue, lambda line: bool(line[1].strip())):
        paragraph = list(group)
        if has_text:
            yield paragraph[0].start(1), paragraph[-1].end(1)


def _read_seconds(parts: Sequence[str | None]) -> float:
    hours, minutes, seconds, fraction = parts
    return int(hours or 0) * 3600 + int(minutes or 0) * 60 + float(f"{int(seconds or 0)}.{fraction or 0}")


def _read_turns(text: str, start: int, end: int, first: float, last: float, name: str, is_vtt: bool) -> list[_Turn]:
    """Return the turns of a cue, without empty ones."""
    whole = _find_undivided(text, start, end)
    places = (match.start() for match in _NEXT_SPEAKER.finditer(text, start, end))
    starts = [start, *(place for place in places if place not in whole), end]
    turns = []
    for begin, stop in pairwise(starts):
        tokens = _find_tokens(text, begin, stop, is_vtt, whole)
        prefix, suffix = _find_edges(tokens)
        if inner := tokens[prefix:suffix]:
            words = "".join(_plain(text, token, is_vtt) for token in tokens[prefix:]).rstrip()
            voice = "".join(_VOICE.findall(text[begin : inner[0].start]))
            marks = [text[token.start : token.end] for token in tokens[:prefix] if token.kind == "mark"]
            has_mark = any(not mark.startswith("--") for mark in marks)
            turns.append(_Turn(inner, first, last, name, words, voice, has_mark))
    return turns


def _find_undivided(text: str, start: int, end: int) -> set[int]:
    """Return the places within protected texts, where a bar breaks no line: {{ name | upper }}, *|NAME|*."""
    if "|" not in text[start:end]:
        return set()
    kept = [part.span for part in find_protected(text[start:end]) if not part.is_sign]
    return {start + place for first, last in kept for place in range(first, last)}


def _find_tokens(text: str, start: int, end: int, is_vtt: bool, whole: Collection[int]) -> list[_Token]:
    """Return the tokens of a turn. Marks around its words are tokens; ends without a beginning are single.

    whole: places where a bar breaks no line, see `_find_undivided`.
    """
    tokens: list[_Token] = []
    opened: list[int] = []
    has_words = False
    position, matches = start, (_VTT_TOKEN if is_vtt else _SRT_TOKEN).finditer(text, start, end)
    breaks = (each for each in matches if not (each["line"] and each.start() + each[0].find("|") in whole))
    for match in [*breaks, None]:
        stop = match.start() if match else end
        for part in re.finditer(r"[ \t\u3000]+|[^ \t\u3000](?:.*[^ \t\u3000])?", text[position:stop]):
            begin, close = position + part.start(), position + part.end()
            if not part[0].strip():
                tokens.append(_Token(begin, close, "space"))
                continue
            if not has_words and (lead := _LEAD.match(text, begin, close)):
                tokens.append(_Token(begin, lead.end(), "mark"))
                begin = lead.end()
            tail = _TAIL.search(text, begin, close)
            final = tail.start() if tail else close
            if begin < final:
                tokens.append(_Token(begin, final, "text"))
                has_words = True
            if final < close:
                tokens.append(_Token(final, close, "mark"))
        if match:
            _add_tag(tokens, opened, match)
            position = match.end()
    return tokens


def _add_tag(tokens: list[_Token], opened: list[int], match: re.Match[str]) -> None:
    """Add a line break or a tag, and join it to the tag that it ends. opened: indices of tags that are not ended."""
    groups, index = match.groupdict(), len(tokens)
    kind = "line" if groups["line"] else "reading" if groups["reading"] else "single"
    name = (groups["name"] or groups.get("style") or "").lower()
    tokens.append(_Token(*match.span(), kind, name))
    start = next((other for other in reversed(opened) if tokens[other].name == name), None)
    if name and not (groups["end"] or groups.get("on") == "0"):
        opened.append(index)
    elif start is not None:
        del opened[opened.index(start) :]
        tokens[start] = replace(tokens[start], kind="open", partner=index)
        tokens[index] = replace(tokens[index], kind="close", partner=start)


def _find_edges(tokens: Sequence[_Token]) -> tuple[int, int]:
    """Return the first token of the text and the one after its last. Tags around all of the text are outside."""
    words = [index for index, token in enumerate(tokens) if token.kind == "text"]
    if not words:
        return 0, 0
    prefix, suffix = 0, len(tokens)
    while prefix < words[0] and (tokens[prefix].kind != "open" or not words[0] < tokens[prefix].partner < words[-1]):
        prefix += 1
    while suffix > words[-1] + 1 and (
        tokens[suffix - 1].kind != "close" or not prefix <= tokens[suffix - 1].partner < words[-1]
    ):
        suffix -= 1
    return prefix, suffix


def _plain(text: str, token: _Token, is_vtt: bool) -> str:
    """Return the text of a token."""
    if token.kind == "line":
        return SPACE
    if token.kind not in ("text", "space", "mark"):
        return ""
    entity = _ENTITY if is_vtt else _SRT_ENTITY
    return entity.sub(lambda match: html.unescape(match[0]), text[token.start : token.end])


def _uses_punctuation(turns: Sequence[_Turn]) -> bool:
    """Return whether sentences end with punctuation, as far as enough cues show it."""
    return len(turns) < MAX_CUES or sum(map(_is_final, turns)) >= MIN_FINAL_SHARE * len(turns)


def _is_final(turn: _Turn) -> bool:
    return _FINAL.search(turn.text[-20:]) is not None


def _is_title(text: str) -> bool:
    return text.isupper() and sum(map(str.isalpha, text)) >= _MIN_TITLE


def _belongs(group: Sequence[_Turn], turn: _Turn) -> bool:
    """Return whether a turn goes on with the sentence of those before it."""
    before = group[-1]
    return not (
        len(group) >= MAX_CUES
        or _is_final(before)
        or not (turn.first == before.first or -MAX_OVERLAP <= turn.first - before.last <= MAX_PAUSE)
        or not (has_letters(before.text) and has_letters(turn.text))
        or _is_title(before.text) != _is_title(turn.text)
        or turn.has_mark
        or turn.voice != before.voice
        or turn.text[0] in "[(（【"
        or ((label := _LABEL.match(turn.text)) and label[1].isupper())
        or _SOUND.match(before.text)
    )


def _add_unit(file: SubtitleFile, group: Sequence[_Turn]) -> None:
    """Add the unit of one or several cues."""
    builder = UnitBuilder(hold_spaces=True)
    counts, widths = [], []
    for number, turn in enumerate(group):
        if number:
            border = file.text[group[number - 1].end : turn.start]
            builder.add_single(f"{CUE}{number}", border, is_space=True)
        _add_turn(file, builder, turn)
        counts.append(1 + sum(token.kind == "line" for token in turn.tokens))
        widths.append(max(map(len, file.text[turn.start : turn.end].splitlines())))
    unit = builder.finish(group[0].cue)
    if has_letters(unit.text):
        file.regions.append(CueRegion(group[0].start, group[-1].end, counts, widths))
        file.units.append(unit)


def _add_turn(file: SubtitleFile, builder: UnitBuilder, turn: _Turn) -> None:
    """Add the text and the codes of a cue. Equal pairs share an id, so that their passages are joined."""
    opened: list[str] = []
    for token in turn.tokens:
        content = file.text[token.start : token.end]
        id = str(builder.code_count + 1)
        if token.kind == "line":
            builder.add_single(f"{LINE}{id}", content, is_space=True)
        elif token.kind == "open":
            can_copy = token.name not in _NOT_COPIED
            id = content if can_copy and content not in opened else id
            opened.append(id)
            builder.open(id, content, can_copy)
        elif token.kind == "close":
            builder.close(opened.pop(), content)
        elif token.kind == "reading":
            builder.add_reading(id, content)
        elif token.kind == "single":
            builder.add_single(id, content, is_space=content in _HARD_SPACES)
        else:
            builder.add_text(_plain(file.text, token, file.is_vtt))
