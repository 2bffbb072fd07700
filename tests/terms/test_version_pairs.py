"""Earlier versions and translations: whatever a translator changed, no sentence gets the translation of another."""

import json
import random
from dataclasses import replace
from types import SimpleNamespace

import docx
import pytest

from docmt.core.errors import DocmtError
from docmt.terms import Memory
from docmt.terms.memory import drop_misfits
from docmt.terms.version_pairs import pair_texts

LETTERS = "bcdfghklmnprstv"


def make_paragraphs(count, seed):
    """Return paragraphs, lists of sentences of invented words."""
    chance = random.Random(seed)

    def make_sentence():
        words = ["".join(chance.choices(LETTERS, k=chance.randint(2, 9))) for _ in range(chance.randint(3, 25))]
        words += [str(chance.randint(10, 999))] * (chance.random() < 0.3)
        return " ".join(words).capitalize() + "."

    return [[make_sentence() for _ in range(chance.choice([1, 1, 2, 3]))] for _ in range(count)]


def translate(sentence):
    """Return the sentence in the other language, whose words are those of the first backwards, and longer."""
    words = sentence.lower().rstrip(".").split()
    return " ".join(word if word.isdigit() else f"{word[::-1]}a" for word in words).capitalize() + "."


class WordModel:
    """A model for which a target word that no source word becomes costs ten nats."""

    def score_all(self, pairs):
        scored = []
        for source, target in pairs:
            words = target.sentences[0].lower().rstrip(".").split()
            known = translate(source.sentences[0]).lower().rstrip(".").split()
            score = -10.0 * sum(word not in known for word in words)
            scored.append(SimpleNamespace(sentences=[SimpleNamespace(score=score, tokens=len(words))]))
        return scored


def write_docx(path, paragraphs):
    file = docx.Document()
    for text in paragraphs:
        file.add_paragraph(text)
    file.save(path)


WRITERS = {
    "docx": write_docx,
    "html": lambda path, texts: path.write_text("".join(f"<p>{text}</p>\n" for text in texts)),
    "md": lambda path, texts: path.write_text("\n\n".join(texts)),
    "txt": lambda path, texts: path.write_text("\n".join(texts)),
}
STRANGER = [translate(each) for each in make_paragraphs(1, 99)[0]]


def merge(rows, n):
    return [*rows[:n], rows[n] + rows[n + 1], *rows[n + 2 :]]


def split(rows, n):
    """Cut a sentence in two paragraphs."""
    words = " ".join(rows[n]).split(" ")
    halves = words[: len(words) // 2], words[len(words) // 2 :]
    return [*rows[:n], *([" ".join(half)] for half in halves), *rows[n + 1 :]]


CHANGES = {
    "none": lambda rows, n: rows,
    "insert": lambda rows, n: [*rows[:n], STRANGER, *rows[n:]],
    "remove": lambda rows, n: [*rows[:n], *rows[n + 1 :]],
    "insert and remove": lambda rows, n: [*rows[:n], *rows[n + 1 : n + 6], STRANGER, *rows[n + 6 :]],
    "swap": lambda rows, n: [*rows[:n], rows[n + 1], rows[n], *rows[n + 2 :]],
    "split": split,
    "merge": merge,
    "split and merge": lambda rows, n: split(merge(rows, n + 3), n),
    "edit": lambda rows, n: [*rows[:n], STRANGER, *rows[n + 1 :]],
}


@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.parametrize("change", CHANGES)
def test_no_change_of_a_translation_gives_a_sentence_that_of_another(change, kind, tmp_path):
    for seed, place in ((1, 4), (2, 0)):
        paragraphs = make_paragraphs(20, seed)
        translated = CHANGES[change]([[translate(each) for each in row] for row in paragraphs], place)
        for name, rows in (("old", paragraphs), ("other", translated)):
            WRITERS[kind](tmp_path / f"{name}.{kind}", [" ".join(row) for row in rows])
        paths = [tmp_path / f"{name}.{kind}" for name in ("old", "other")]
        memory, _ = drop_misfits(Memory.from_versions(*paths, ("en", "fr")), WordModel())
        targets = {source: [each.target for each in entries] for source, entries in memory.entries.items()}
        assert targets == {source: [translate(source)] for source in targets}
        assert len(targets) > (0.99 if change == "none" else 0.6) * sum(map(len, paragraphs))


class ShortModel(WordModel):
    """The same with positions for 60 characters."""

    def score_all(self, pairs):
        if any(len(side.sentences[0]) > 60 for pair in pairs for side in pair):
            raise DocmtError("sentence 1 of the document may need more positions. Split it.")
        return super().score_all(pairs)


def test_of_texts_too_long_for_a_model_the_shorter_ones_are_checked(tmp_path):
    sources = [row[0] for row in make_paragraphs(30, 5)]
    targets = [translate(each) for each in sources]
    for name, texts in (("old", sources), ("other", targets)):
        (tmp_path / name).write_text("\n".join(texts))
    memory = Memory.from_versions(tmp_path / "old", tmp_path / "other", ("en", "fr"))
    key, (entry,) = min(memory.entries.items(), key=lambda each: len(each[0]))
    wrong = replace(memory, entries={**memory.entries, key: [entry._replace(target="Nothing of it.")]})
    assert drop_misfits(memory, ShortModel())[1] == 0
    kept, count = drop_misfits(wrong, ShortModel())
    assert key not in kept.entries and 0 < count <= 3


def test_lists_of_json_are_paired_like_paragraphs(tmp_path):
    rows = [row[0] for row in make_paragraphs(20, 7)]
    for name, texts in (("a", rows), ("b", [translate(each) for each in [*rows[:3], *rows[4:]]])):
        (tmp_path / f"{name}.json").write_text(json.dumps({"title": "Two words", "items": texts, name: "Last words"}))
    memory = Memory.from_versions(tmp_path / "a.json", tmp_path / "b.json", ("en", "fr"), fields=["*"])
    found = {source: entry.target for source, (entry,) in memory.entries.items()}
    assert found.pop("Two words") == "Two words" and "Last words" not in found
    assert len(found) > 10 and all(target == translate(source) for source, target in found.items())


@pytest.mark.full
def test_long_files_are_paired_in_parts():
    texts = [row[0] for row in make_paragraphs(1_300, 8)]
    others = [translate(each) for each in [*texts[:400], *texts[401:900], "New one.", *texts[900:]]]
    pairs = pair_texts(texts, others)
    assert all(others[two] == translate(texts[one]) for one, two in pairs.items()) and len(pairs) > 1_250


@pytest.mark.parametrize("sides", [([], []), (["a"], []), ([], ["a"]), ([""], ["a b"]), (["a b"] * 9, ["c"] * 3)])
def test_little_text_pairs_at_most_itself(sides):
    assert len(pair_texts(*sides)) <= min(map(len, sides))
