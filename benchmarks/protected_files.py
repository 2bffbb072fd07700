"""Count what files of several formats lose and get invented, in sentences with protected text.

python -m benchmarks.protected_files MODEL [SENTENCES OF A KIND]
"""

from __future__ import annotations

import html
import json
import re
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from xml.etree import ElementTree
from xml.sax.saxutils import escape

import docmt
from benchmarks.protected_text import SEARCH, count_faults, make_sentences
from docmt.documents.protected_text import load_kinds
from docmt.formats.xml_tree import ILLEGAL

SIZE = 25
"""Sentences of a file."""


def _write_po(texts: Sequence[str]) -> str:
    entries = [f'msgid {json.dumps(text, ensure_ascii=False)}\nmsgstr ""\n' for text in texts]
    head = 'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\nLanguage: fr\\n"\n'
    return "\n".join([head, *entries])


def _read_po(text: str) -> list[str]:
    strings = [
        "".join(map(json.loads, re.findall(r'"(?:[^"\\]|\\.)*"', each)))
        for each in re.findall(r'^msgstr((?:\s*"(?:[^"\\]|\\.)*")+)', text, re.MULTILINE)
    ]
    return strings[1:]


def _write_cues(texts: Sequence[str]) -> str:
    # A sentence would run over cues that follow each other.
    return "\n".join(f"{n + 1}\n00:{n:02}:00,000 --> 00:{n:02}:05,000\n{text}\n" for n, text in enumerate(texts))


def _write_xliff(texts: Sequence[str]) -> str:
    units = "".join(
        f'<trans-unit id="{n}"><source>{escape(text)}</source></trans-unit>' for n, text in enumerate(texts)
    )
    head = '<xliff version="1.2"><file original="a" source-language="en" target-language="fr" datatype="x"><body>'
    return f"{head}{units}</body></file></xliff>"


def _read_xliff(text: str) -> list[str]:
    return ["".join(each.itertext()) for each in ElementTree.fromstring(text).iter() if each.tag.endswith("target")]


FORMATS: dict[str, tuple[Callable[[Sequence[str]], str], Callable[[str], list[str]]]] = {
    "html": (
        lambda texts: "<html><body>" + "".join(f"<p>{html.escape(text)}</p>\n" for text in texts) + "</body></html>",
        lambda text: [
            html.unescape(re.sub(r"<[^>]+>", "", each)) for each in re.findall(r"<p>(.*?)</p>", text, re.DOTALL)
        ],
    ),
    "json": (lambda texts: json.dumps(list(texts), ensure_ascii=False), lambda text: list(json.loads(text))),
    "po": (_write_po, _read_po),
    "srt": (_write_cues, lambda text: [" ".join(each.splitlines()[2:]) for each in text.strip().split("\n\n")]),
    "xlf": (_write_xliff, _read_xliff),
}
"""How texts are written, and read again, by suffix."""


def main() -> None:
    """Print a row for each format."""
    model, count = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 50
    translator = docmt.Translator(model, search=SEARCH)
    print("| format | sentences | texts | lost | invented |\n|---|---|---|---|---|")
    sentences = [
        pair
        for kind in load_kinds()
        if kind.get("in") != "messages"
        for pair in make_sentences(kind, translator.languages[0], count)
        if not ILLEGAL.search(pair[0])  # XLIFF cannot hold control characters
    ]
    with tempfile.TemporaryDirectory() as name:
        for suffix, (write, read) in FORMATS.items():
            targets: list[str] = []
            for first in range(0, len(sentences), SIZE):
                source, target = Path(name, f"a{first}.{suffix}"), Path(name, f"b{first}.{suffix}")
                source.write_text(write([text for text, _ in sentences[first : first + SIZE]]), encoding="utf-8")
                translator.translate_file(source, target, fields=["*"] if suffix == "json" else ())
                targets += read(target.read_text(encoding="utf-8"))
            assert len(targets) == len(sentences), suffix
            faults = [count_faults(*pair, each) for pair, each in zip(sentences, targets, strict=True)]
            total = sum(len(items) for _, items in sentences)
            lost, invented = (sum(each) for each in zip(*faults, strict=True))
            print(f"| {suffix} | {len(sentences)} | {total} | {lost} | {invented} |", flush=True)
            for (text, items), each, fault in zip(sentences, targets, faults, strict=True):
                if any(fault):
                    print(f"{suffix}: {fault} {items} | {text} | {each}", file=sys.stderr)


if __name__ == "__main__":
    main()
