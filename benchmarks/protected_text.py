"""Count what a model loses and invents in sentences with protected text, with and without protection.

python -m benchmarks.protected_text MODEL [SENTENCES OF A KIND]
python -m benchmarks.protected_text MODEL SOURCE REFERENCE

The second way counts the sentences of a text that lose a number, and those of its reference.
"""

from __future__ import annotations

import random
import re
import string
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import docmt
from docmt.documents.numbers import find_number_faults, find_numbers, read_digits
from docmt.documents.protected_text import find_protected, load_kinds

FRAMES = [line for line in Path(__file__).with_name("addresses.txt").read_text().splitlines() if line]
SEARCH = docmt.SearchConfig(beam=1)
_MAX_LENGTH = 300
"""Characters of a sentence of a text."""


def vary(chance: random.Random, example: str) -> str:
    """Return an example with other digits, and the letters of its longest Latin word replaced by others of its case."""
    text = re.sub(r"\d", lambda digit: chance.choice("123456789"), example)
    word = max(re.findall(r"[a-z]{3,}", text), key=len, default="")
    return text.replace(word, "".join(chance.choices(string.ascii_lowercase, k=len(word))), 1) if word else text


def make_sentences(kind: dict[str, object], language: str, count: int) -> Iterator[tuple[str, list[str]]]:
    """Yield sentences with texts of a kind in place of the addresses of the frames, and these texts."""
    chance, examples = random.Random(1), list(map(str, kind["examples"]))  # type: ignore[call-overload]
    while count:
        frame, items = chance.choice(FRAMES), list[str]()
        for part in reversed(find_protected(frame)):
            items.append(vary(chance, chance.choice(examples)))
            frame = frame[: part.span[0]] + items[-1] + frame[part.span[1] :]
        found = [frame[slice(*part.span)] for part in find_protected(frame, language) if part.kind == kind["name"]]
        if sorted(found) == sorted(items):  # another kind may have found a varied one
            count -= 1
            yield frame, items


def count_faults(source: str, items: Sequence[str], target: str) -> tuple[int, int]:
    """Return how many of these texts the translation of a sentence lacks, and how many numbers it has invented."""
    left = Counter(items) - Counter(item for item in items if item in target)
    for item in items:
        source, target = source.replace(item, " "), target.replace(item, " ")
    known = read_digits(source)
    invented = sum(digits not in known for digits in re.findall(r"\d+", target)) + target.count("\ufffd")
    return sum(left.values()), invented


def make_numbers(count: int) -> Iterator[str]:
    """Yield sentences with prices, shares and counts, small ones also."""
    chance = random.Random(1)
    for _ in range(count):
        amount = f"{chance.choice('$£€')}{chance.choice(('7', '12.50', '1,200', '350', '8'))}"
        rest = chance.choice(("for {} %", "in {} days", "with {} tickets", "at {} %", "for {} persons"))
        start = chance.choice(("The price is", "We paid", "It cost", "The bill was", "Each member owes"))
        yield f"{start} {amount} {rest.format(chance.choice((3, 6, 10, 25, 40)))}."


def count_lost_numbers(translators: Sequence[docmt.Translator], source: str, reference: str) -> None:
    """Print how many sentences of a text lose a number, in its reference and with each translator."""
    lines = (Path(path).read_text(encoding="utf-8").splitlines() for path in (source, reference))
    pairs = [
        pair for pair in zip(*lines, strict=True) if any(map(str.isdecimal, pair[0])) and len(pair[0]) < _MAX_LENGTH
    ]
    texts = [text for text, _ in pairs]
    documents = [docmt.Document.from_sentences([text]) for text in texts]
    columns = [[target for _, target in pairs]]
    columns += [[each.sentences[0].target for each in translator.translate(documents)] for translator in translators]
    lost = [
        sum(bool(find_number_faults(*pair, translators[0].languages)[0]) for pair in zip(texts, targets, strict=True))
        for targets in columns
    ]
    print(
        f"of {len(texts)} sentences with digits lose a number: reference {lost[0]}, without {lost[1]}, with {lost[2]}"
    )


def main() -> None:
    """Print a row for each kind."""
    model = sys.argv[1]
    translators = [docmt.Translator(model, search=SEARCH, protect=protect) for protect in (None, ())]
    if len(sys.argv) > 3:
        return count_lost_numbers(translators, *sys.argv[2:])
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 200
    language = translators[0].languages[0]
    print("| kind | texts | lost without | invented without | lost | invented |\n|---|---|---|---|---|---|")
    for kind in load_kinds():
        if kind.get("in") == "messages":
            continue
        sentences = list(make_sentences(kind, language, count))
        row = [kind["name"], str(sum(len(items) for _, items in sentences))]
        for translator in translators:
            targets = translator.translate([text for text, _ in sentences])
            faults = [count_faults(*pair, target) for pair, target in zip(sentences, targets, strict=True)]
            row += [str(sum(each)) for each in zip(*faults, strict=True)]
        print(f"| {' | '.join(row)} |", flush=True)
    numbers = list(make_numbers(count))
    row = ["number", str(sum(len(find_numbers(source)) for source in numbers))]
    for translator in translators:
        targets = translator.translate(numbers)
        pairs = [find_number_faults(*pair, translator.languages) for pair in zip(numbers, targets, strict=True)]
        row += [str(sum(len(pair[side]) for pair in pairs)) for side in (0, 1)]
    print(f"| {' | '.join(row)} |")


if __name__ == "__main__":
    main()
