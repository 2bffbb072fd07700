"""A translation beside its source, as one HTML file that requests nothing."""

from __future__ import annotations

import base64
import hashlib
import html
from collections.abc import Sequence
from string import Template

from docmt.formats.bilingual_units import BilingualPair, BilingualUnit, Token, split_unit
from docmt.formats.language_codes import format_language_tag, text_direction

_STYLE = """
:root { color-scheme: light dark; --text: #1b1b1b; --page: #fcfcfa; --line: #ddd; --mark: #ffe08a; }
@media (prefers-color-scheme: dark) {
  :root { --text: #e6e6e3; --page: #17181a; --line: #3a3b3e; --mark: #5a4a12; }
}
body { margin: 0 auto; max-width: 80rem; padding: 1rem 2rem 6rem; background: var(--page); color: var(--text);
  font: 1.05rem/1.55 system-ui, sans-serif; }
h1 { font-size: 1.15rem; font-weight: 600; overflow-wrap: anywhere; }
.unit { display: grid; grid-template-columns: 1fr 1fr; gap: 0 2.5rem; border-top: 1px solid var(--line); }
.unit p { margin: .6rem 0; white-space: pre-wrap; overflow-wrap: anywhere; }
.unit span { border-radius: .2rem; cursor: default; }
.unit span:focus-visible { outline: 2px solid; outline-offset: 1px; }
.unit span.lit { background: var(--mark); }
@media (max-width: 40rem) { .unit { grid-template-columns: 1fr; } .unit p + p { margin-top: 0; } }
@media print { .unit { break-inside: avoid; } }
"""
_SCRIPT = """
const find = (target) => target.closest ? target.closest("span[id]") : null;
const partner = (span) => document.getElementById((span.id[0] === "s" ? "t" : "s") + span.id.slice(1));
let lit = [];
function light(event) {
  const span = find(event.target) || find(document.activeElement);
  lit.forEach((each) => each.classList.remove("lit"));
  lit = span ? [span, partner(span)] : [];
  lit.forEach((each) => each.classList.add("lit"));
}
function move(event) {
  const span = find(event.target);
  if (!span || event.altKey || event.ctrlKey || event.metaKey) return;
  const number = Number(span.id.slice(1));
  const sides = { ArrowLeft: partner(span), ArrowRight: partner(span) };
  const next = { ...sides, ArrowDown: document.getElementById(span.id[0] + (number + 1)),
    ArrowUp: document.getElementById(span.id[0] + (number - 1)) }[event.key];
  if (next) { next.focus(); event.preventDefault(); }
}
document.addEventListener("mouseover", light);
document.addEventListener("focusin", light);
document.addEventListener("focusout", light);
document.addEventListener("keydown", move);
"""
_PAGE = Template("""<!DOCTYPE html>
<html lang="$language" dir="$direction">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="$policy">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<title>$title</title>
<style>$style</style>
</head>
<body>
<h1>$title</h1>
<main>
$rows
</main>
<script>$script</script>
</body>
</html>
""")


def write_page(units: Sequence[BilingualUnit], title: str, source_language: str, target_language: str) -> str:
    """Return an HTML page of two columns. The partner of the sentence under the mouse or the focus lights up."""
    rows = []
    count = 0
    sides = [_write_side(language) for language in (source_language, target_language)]
    for unit in units:
        pairs = split_unit(unit)
        source = _write_column("s", count, [(pair, pair.source) for pair in pairs])
        target = _write_column("t", count, [(pair, pair.target) for pair in pairs])
        count += sum(pair.sentence is not None for pair in pairs)
        rows.append(f'<div class="unit"><p {sides[0]}>{source}</p><p {sides[1]}>{target}</p></div>')
    return _PAGE.substitute(
        language=format_language_tag(target_language),
        direction=text_direction(target_language),
        policy=(
            f"default-src 'none'; style-src '{_hash(_STYLE)}'; script-src '{_hash(_SCRIPT)}'; base-uri 'none';"
            " form-action 'none'"
        ),
        title=_escape(title),
        style=_STYLE,
        script=_SCRIPT,
        rows="\n".join(rows),
    )


def _write_side(language: str) -> str:
    return f'lang="{format_language_tag(language)}" dir="{text_direction(language)}"'


def _write_column(side: str, count: int, pieces: Sequence[tuple[BilingualPair, list[Token]]]) -> str:
    """Return the sentences of a unit as spans. count: number of sentences before."""
    parts = []
    for pair, tokens in pieces:
        text = _escape("".join(token for token in tokens if isinstance(token, str)))
        if pair.sentence:
            count += 1
            text = f'<span id="{side}{count}" tabindex="0">{text}</span>'
        parts.append(text)
    return "".join(parts)


def _escape(text: str) -> str:
    """Return text for HTML. What HTML cannot hold is shown as U+FFFD."""
    return html.escape(text.replace("\0", "\ufffd").encode("utf-8", "replace").decode())


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
