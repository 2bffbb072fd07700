"""The pronoun data of the experiments: which sentences qualify, how they are balanced, and distances."""

import json
import random
from collections import Counter

import pytest
from benchmarks.pronouns import (
    HIDDEN,
    add_distances,
    count_genders,
    find_distance,
    find_pronoun,
    hide_words,
    select_documents,
    split_sentences,
)

from docmt.documents import ParallelDocument


@pytest.mark.parametrize(
    ("source", "target", "found"),
    [
        ("It sleeps.", "Elle dort.", ("elle", True)),
        ("I know it sleeps.", "Je sais qu'il dort.", ("il", False)),
        ("They sleep here.", "Elles dorment, elles aussi.", ("elles", True)),
        ("It is late.", "Il est tard.", None),
        ("It does not matter.", "Il n'y a rien.", None),
        ("They say it.", "Ils disent qu'elle dort.", None),
        ("She sleeps.", "Elle dort.", None),
        ("It sleeps.", "Cela dort.", None),
    ],
)
def test_sentences_that_qualify(source, target, found):
    assert find_pronoun(source, target) == found


def test_as_many_documents_of_both_genders():
    targets = (
        ["Elle dort."] * 3 + ["Il dort."] * 2 + ["Ils dorment."] + ["Je crois qu'il dort.", "Je crois qu'elle dort."]
    )
    corpus = [
        ParallelDocument(str(n), ("It sleeps.", "A.", "B.", "It sleeps."), ("Elle dort.", "A.", f"B {n}.", target))
        for n, target in enumerate(targets)
    ]
    chosen = list(select_documents(corpus, 2))
    assert Counter(each.target[-1] for each in chosen) == {
        "Elle dort.": 2, "Il dort.": 2, "Je crois qu'il dort.": 1, "Je crois qu'elle dort.": 1,
    }  # fmt: skip
    assert {each.source for each in chosen} == {("A.", "B.", "It sleeps.")}
    assert len({each.target for each in chosen}) == 6 and chosen == list(select_documents(corpus, 2))
    assert all(each.id.endswith("-4") for each in chosen)
    mixed = list(select_documents(corpus, 3, whole=2))
    assert Counter(len(each) for each in mixed if each in corpus) == {4: 2} and len(mixed) == 8
    assert {len(each) for each in mixed if each not in corpus} <= {2, 3, 4}


def test_distances_are_those_of_nouns_of_the_right_gender(tmp_path):
    lines = ["La table et le livre, un cheval."] * 6 + ["La tour."] * 5 + ["Le tour."] * 2 + ["La paix."] * 4
    genders = count_genders(lines)
    assert genders == {"table": "f", "livre": "m", "cheval": "m"}
    context = ["Des tables.", "Notre table.", "Le livre.", "Deux chevaux."]
    assert [find_distance(context, each, genders) for each in ("elle", "il", "ils", "elles")] == [3, 2, 1, 4]
    assert find_distance(["La tour."], "elle", genders) is None
    corpus, suite, output = (tmp_path / name for name in ("a.fr", "suite.jsonl", "out.jsonl"))
    corpus.write_text("\n".join(lines))
    item = {"id": "96-3", "phenomenon": "il", "src_context": list("abcd"), "tgt_context": context, "src": "It."}
    suite.write_text(json.dumps(item) + "\n")
    for before, wanted in ((3, 2), (1, None)):
        add_distances(corpus, suite, output, before)
        written = json.loads(output.read_text())
        assert (written["document"], written["ctx_dist"]) == ("96", wanted)
        assert written["tgt_context"] == context[-before:]


def test_long_sentences_are_split_in_proportion():
    long, short = "a b c d e f g h i", "a b c"
    document = ParallelDocument("x", (long, short, ""), ("1 2 3 4", "1 2", ""))
    split = split_sentences(document)
    assert split.source == ["a b c d", "e f g h i", short, ""]
    assert split.target == ["1 2", "3 4", "1 2", ""]
    assert split_sentences(ParallelDocument("x", (long,), ("1",))).source == [long], "one word cannot be split"


def test_words_of_the_context_are_hidden_more_often():
    words = [f"letter{number}" for number in range(200)]
    new = [f"other{number}" for number in range(200)]
    document = ParallelDocument("x", (" ".join(words), " ".join(words + new)), ("A.", "B."))
    hidden = hide_words(document, random.Random(1))
    assert hidden.source[0] == document.source[0] and hidden.target == document.target
    last = hidden.source[1].split()
    assert len(last) == 400
    assert 80 < last[:200].count(HIDDEN) < 120 and 8 < last[200:].count(HIDDEN) < 35
