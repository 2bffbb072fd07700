"""Test sets in published formats, by name, and of other languages than a model's."""

import json
import re
from pathlib import Path

import pytest

from docmt.core.errors import DocmtError
from docmt.evaluation import read_items, read_suite
from docmt.evaluation.suites import SuiteItem

PUBLISHED = Path(__file__).parents[2] / ".." / "shared" / "data" / "contrastive"

HANDED_ROUND = {
    "phenomenon": "anaphora",
    "src_context": ["The cars are new."],
    "src": "They are red.",
    "tgt_context": ["Les voitures sont neuves."],
    "candidates": ["Elles sont rouges.", "Ils sont rouges."],
    "correct_index": 0,
    "type": "f.pl",
}
GENERATIVE = {
    "phenomenon": "formality",
    "src_context": ["Got it.", "Who?"],
    "src": "She likes you.",
    "ref": "Elle vous aime bien.",
    "expected": "vous",
    "src_word": "you",
    "docid": 12,
    "rule": "ACC.FORM+PLUR",
}
CONSISTENCY = {
    "src": "one . _eos two . _eos three . _eos four .",
    "dst": ["eins _eos zwei _eos drei _eos vier", "eins _eos zwei _eos drei _eos vierer"],
    "true_ind": 1,
    "ctx_dist": 2,
}
CONTRAPRO = {
    "ante distance": 2,
    "document id": "x/1.xml",
    "errors": [{"contrastive": "Er ist alt.", "replacement": "er"}, {"contrastive": "Sie ist alt."}],
    "intrasegmental": False,
    "ref pronoun": "es",
    "ref segment": "Es ist alt.",
    "segment id": 17,
    "src segment": "It is old.",
}
EXAMPLE = {
    "src": ["The cars are new.", "They are red."],
    "trg": {
        "correct": ["Les voitures sont neuves.", "Elles sont rouges."],
        "incorrect": ["Les voitures sont neuves.", "Ils sont rouges."],
    },
    "type": "f.pl",
}
OTHER = {
    "semi-correct": ["Les autos sont neuves.", "Elles sont rouges."],
    "incorrect": ["Les camions sont neufs.", "Elles sont rouges."],
}


@pytest.fixture
def write(tmp_path):
    """A function that writes a file of JSON Lines (of a list of records) or of whole JSON."""

    def written(content, name="suite.jsonl", lines=True):
        path = tmp_path / name
        text = "".join(json.dumps(each) + "\n" for each in content) if lines else json.dumps(content, indent=1)
        path.write_text(text, encoding="utf-8")
        return path

    return written


def test_what_is_handed_round(write):
    contexts = [["Les voitures sont neuves."], ["Les camions sont neufs."]]
    other = {**HANDED_ROUND, "candidate_contexts": contexts, "correct_index": 1, "ctx_dist": 1, "type": ""}
    first, second = read_items(write([HANDED_ROUND, other]))
    source, french = ("The cars are new.", "They are red."), "Les voitures sont neuves."
    candidates = ((french, "Elles sont rouges."), (french, "Ils sont rouges."))
    assert first == SuiteItem("1", "anaphora", None, source, candidates, 0, 1, "f.pl")
    assert second.candidates == (candidates[0], ("Les camions sont neufs.", "Ils sont rouges."))
    assert (second.correct, second.distance, second.label, second.has_context) == (1, 1, "", True)


@pytest.mark.parametrize("record", [HANDED_ROUND, GENERATIVE, CONSISTENCY, CONTRAPRO])
def test_a_further_key_of_a_record_gives_no_distance(write, record):
    record = {name: value for name, value in record.items() if "dist" not in name}
    (item,) = read_items(write([{**record, "trg": "Elles sont rouges."}]))
    assert item.distance is None


def test_generative_items(write):
    suite = read_suite(write([GENERATIVE, {**GENERATIVE, "src_context": []}], "ctxpro.en-fr.jsonl"))
    first, second = suite.items
    source = ("Got it.", "Who?", "She likes you.")
    assert first == SuiteItem("1", "formality", None, source, (), 0, 2, "ACC.FORM+PLUR", "vous", "12")
    assert (second.source, second.sentence, second.has_context, second.chance) == (("She likes you.",), 0, False, 0.0)
    assert (suite.generative, suite.languages, suite.name) == (True, ("en", "fr"), "ctxpro.en-fr.jsonl")
    assert suite.remarks() == ["1 of 2 items of ctxpro.en-fr.jsonl have no context to decide them"]


@pytest.mark.parametrize("lines", [True, False])
def test_the_consistency_sets(write, lines):
    listed = {name: value.split(" _eos ") if name == "src" else value for name, value in CONSISTENCY.items()}
    first, second = read_items(write([CONSISTENCY, listed], "lex_cohesion_test.json", lines))
    source = ("one .", "two .", "three .", "four .")
    candidates = (("eins", "zwei", "drei", "vier"), ("eins", "zwei", "drei", "vierer"))
    assert first == SuiteItem("1", "lex_cohesion", 2, source, candidates, 1, 3)
    assert (second.source, second.candidates, second.id) == (source, candidates, "2")


def test_the_consistency_sets_with_sources_beside(write):
    bare = {name: value for name, value in CONSISTENCY.items() if name not in ("src", "ctx_dist")}
    path = write([bare, bare], "ellipsis_vp_test.json", lines=False)
    with pytest.raises(DocmtError, match=r"cannot read .*ellipsis_vp_test.src: there is no such file"):
        read_items(path)
    path.with_suffix(".src").write_text("a _eos b _eos c _eos d\n" * 2 + "e _eos f _eos g _eos h\n" * 2)
    first, second = read_items(path)
    assert (first.source, second.source) == (tuple("abcd"), tuple("efgh"))
    assert (first.phenomenon, first.distance) == ("ellipsis_vp", None)
    path.with_suffix(".src").write_text("a _eos b _eos c _eos d\n")
    with pytest.raises(DocmtError, match=r"has 1 lines but .* has 4 variants"):
        read_items(path)


def test_contrapro_and_its_context(write, tmp_path):
    within = {**CONTRAPRO, "intrasegmental": True, "ref pronoun": "sie", "errors": CONTRAPRO["errors"][:1]}
    path = write([CONTRAPRO, within], "contrapro.json", lines=False)
    first, second = read_items(path)
    assert first == SuiteItem(
        *("17", "pronoun", 2, ("It is old.",), (("Es ist alt.",), ("Er ist alt.",), ("Sie ist alt.",)), 0, 0, "es"),
        document="x/1.xml",
    )
    assert (second.distance, second.label, second.has_context) == (0, "sie", False)
    extracts = {
        "text.de": "Es ist alt.\nEr ist alt.\nSie ist alt.\nEs ist alt.\nEr ist alt.\n",
        "text.en": "It is old.\n" * 5,
        "context.de": "Eins.\nZwei.\n" * 3 + "\nDrei.\n" * 2,
        "context.en": "One.\nTwo.\n" * 3 + "\nThree.\n" * 2,
    }
    for name, text in extracts.items():
        (tmp_path / f"contrapro.{name}").write_text(text)
    first, second = read_items(path)
    assert first.source == ("One.", "Two.", "It is old.")
    assert first.candidates[2] == ("Eins.", "Zwei.", "Sie ist alt.")
    assert (first.sentence, second.sentence) == (2, 1)
    assert (second.source, second.candidates[1]) == (("Three.", "It is old."), ("Drei.", "Er ist alt."))
    (tmp_path / "contrapro.context.de").write_text("Eins.\n" * 9)
    with pytest.raises(DocmtError, match=r"has different numbers of lines per candidate. Extract the context again"):
        read_items(path)
    (tmp_path / "contrapro.text.de").write_text("Eins.\n")
    with pytest.raises(DocmtError, match=r"do not match its 5 candidates. Extract them again for two languages"):
        read_items(path)


@pytest.mark.parametrize(
    "content",
    [
        {"1": {"examples": [EXAMPLE, {**EXAMPLE, "trg": OTHER}]}},
        {"1": [EXAMPLE], "2": [{**EXAMPLE, "trg": OTHER}]},
        [{"src": EXAMPLE["src"], "examples": [{"trg": EXAMPLE["trg"], "type": "f.pl"}, {"trg": OTHER}]}],
    ],
)
def test_discevalmt_in_blocks(write, content):
    first, second = read_items(write(content, "anaphora.json", lines=False))
    assert first == SuiteItem(
        "1",
        "anaphora",
        1,
        ("The cars are new.", "They are red."),
        (tuple(EXAMPLE["trg"]["correct"]), tuple(EXAMPLE["trg"]["incorrect"])),
        0,
        1,
        "f.pl",
    )
    assert second.candidates == (tuple(OTHER["semi-correct"]), tuple(OTHER["incorrect"]))


def changed(record, **values):
    return {name: value for name, value in {**record, **values}.items() if value is not ...}


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (changed(HANDED_ROUND, candidates=[]), "`candidates` is empty. Give two or more translations"),
        (changed(HANDED_ROUND, candidates=["a"]), "there is only one candidate. Give two or more"),
        (changed(HANDED_ROUND, candidates=["a", " "]), "candidate 2 is empty. Give every candidate a text"),
        (changed(HANDED_ROUND, correct_index=2), "`correct_index` must be an integer from 0 to 1"),
        (changed(HANDED_ROUND, tgt_context=[]), "candidate 1 has 1 sentences but the source has 2. Give one for each"),
        (changed(HANDED_ROUND, tgt_context=...), "the target context must be a list of sentences"),
        (
            changed(HANDED_ROUND, candidate_contexts=[[]]),
            "`candidate_contexts` must be a list with one context per candidate",
        ),
        (changed(HANDED_ROUND, src=""), "`src` is not a text. Give a string"),
        (changed(HANDED_ROUND, ctx_dist="far"), "`ctx_dist` must be an integer from 0 to 999,999"),
        (changed(GENERATIVE, expected=" "), "`expected` is not a text. Give a string"),
        (changed(GENERATIVE, src_context=None), "src_context must be a list of sentences"),
        (changed(CONSISTENCY, dst="a _eos b"), "`dst` must be a list of variants"),
        (changed(CONSISTENCY, dst=["a _eos b", "c"]), "candidate 1 has 2 sentences but the source has 4"),
        (changed(CONSISTENCY, true_ind=7), "`true_ind` must be an integer from 0 to 1"),
        (changed(CONTRAPRO, errors=[]), "there is only one candidate"),
        (changed(CONTRAPRO, errors=["Er"]), "`errors` must be a list of objects"),
        (changed(EXAMPLE, trg=[]), "`trg` must be an object with a correct and an incorrect translation"),
        (changed(EXAMPLE, trg={"correct": ["a", "b"]}), "incorrect must be a list of sentences"),
    ],
)
def test_items_that_are_none(write, record, message):
    first = next(each for each in (HANDED_ROUND, GENERATIVE, CONSISTENCY, CONTRAPRO, EXAMPLE) if set(record) & set(each)
                 and ("trg" in each) == ("trg" in record) and ("dst" in each) == ("dst" in record)
                 and ("expected" in each) == ("expected" in record))  # fmt: skip
    with pytest.raises(DocmtError, match=f"suite.jsonl, line 2: {re.escape(message)}") as caught:
        read_items(write([first, record]))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "content", [{"a": 1}, {}, [3], [[]], [{"source": ["a"]}], {"a": {"b": {"c": {"d": {"e": {}}}}}}]
)
def test_files_of_something_else(write, content):
    with pytest.raises(DocmtError, match=r"not an item of a known test set format. Give `source`"):
        read_items(write(content, lines=False))


@pytest.mark.full
def test_damaged_files_are_refused_or_read(tmp_path):
    """Whatever stands in an item: it is read and makes sense, or there is a sentence for people."""
    junk = [None, 0, -1, 1.5, True, "", " ", "a", [], {}, [1], ["a"], {"a": 1}, [[]], "\ud800", 10**30, ["a", "b"]]
    bare = changed(CONSISTENCY, src=...)
    (tmp_path / "suite.src").write_text("a _eos b _eos c _eos d\n" * 4)
    path, read = tmp_path / "suite.json", 0
    for record in (HANDED_ROUND, GENERATIVE, CONSISTENCY, bare, CONTRAPRO, EXAMPLE):
        for name in record:
            for value in (*junk, ...):
                damaged = [record, changed(record, **{name: value})]
                path.write_text(json.dumps(damaged if value != 0 else {"1": damaged[::-1]}))
                try:
                    items = read_suite(path).items
                except DocmtError as error:
                    assert "\n" not in str(error)
                    continue
                read += 1
                assert all(
                    item.expected or {len(each) for each in item.candidates} == {len(item.source)} for item in items
                )
                assert all(item.source[item.sentence] for item in items)
    assert read > 50


def test_equal_candidates_are_told_and_nothing_but_them_is_refused(write):
    twice = changed(HANDED_ROUND, candidates=["a", "b", "b"])
    all_equal = changed(HANDED_ROUND, candidates=["a", "a"])
    assert read_suite(write([HANDED_ROUND, twice, all_equal])).remarks() == [
        "1 of 3 items of suite.jsonl have equal candidates, which count as one",
        "1 of 3 items of suite.jsonl have only equal candidates, so they are ties and count as wrong",
    ]
    with pytest.raises(DocmtError, match="line 1: all candidates are equal, as in all other items"):
        read_suite(write([all_equal, all_equal]))


@pytest.mark.parametrize(("name", "items", "phenomena"), [("pronouns", 500, 1), ("phenomena", 288, 6)])
def test_suites_by_name_are_always_the_same(name, items, phenomena, tmp_path, monkeypatch):
    suite = read_suite(name)
    assert suite == read_suite(name)
    assert (suite.name, suite.languages, suite.generative) == (name, ("en", "de"), False)
    assert (len(suite.items), len({item.phenomenon for item in suite.items})) == (items, phenomena)
    assert suite.remarks() == []
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).mkdir()
    assert read_suite(name) == suite  # a directory is no test set
    (tmp_path / name).rmdir()
    (tmp_path / name).write_text(json.dumps(HANDED_ROUND))
    assert len(read_suite(name).items) == 1  # a file of that name is what was meant


def test_names_that_are_none():
    with pytest.raises(DocmtError, match=r"no test set 'contrapro'. Choose one of pronouns, phenomena, or give a file"):
        read_suite("contrapro")
    with pytest.raises(DocmtError, match=r"cannot read none/contrapro: there is no such file"):
        read_suite("none/contrapro")


@pytest.mark.parametrize(
    ("name", "languages", "known"),
    [
        ("lcpt.en-fr.jsonl", ("en", "fr"), ("en", "de")),
        ("lcpt_en-fr.v2.jsonl", ("en", "fr"), ("fr", "en")),
        ("consistency-dev.jsonl", None, ("de", "en")),
        ("x.en-fr.jsonl", ("en", "fr"), ("", "fr_FR")),
        ("x.en-fr.jsonl", ("en", "fr"), ("", "")),
        ("x.en-fr.jsonl", ("en", "fr"), ("eng_Latn", "fra_Latn")),
        ("x.en-fr.jsonl", ("en", "fr"), ("eng_Latn", "deu_Latn")),
    ],
)
def test_languages(write, name, languages, known):
    suite = read_suite(write([HANDED_ROUND], name))
    assert suite.languages == languages
    if languages is None or known[1] in ("", "fr_FR", "fra_Latn"):
        suite.check_languages("M", known)
    else:
        with pytest.raises(DocmtError, match=f"{name} is en-fr, but M translates {'-'.join(known)}. Name a test set"):
            suite.check_languages("M", known)


@pytest.mark.skipif(not PUBLISHED.is_dir(), reason="the published test sets are not here")
@pytest.mark.parametrize(
    ("name", "items", "contexts", "distances"),
    [
        ("lcpt.en-fr", 7000, {0, 3}, {None}),
        ("discoursemt-anaphora.en-fr", 200, {1}, {None}),
        ("consistency-deixis_dev.en-ru", 500, {3}, {1, 2, 3}),
        ("consistency-lex_cohesion_dev.en-ru", 500, {3}, {1, 2, 3}),
        ("consistency-ellipsis_infl.en-ru", 500, {3}, {1, 2, 3}),
        ("ctxpro-formality.en-de", 5400, {0, 1, 2, 3, 4}, {None}),
    ],
)
def test_published_files(name, items, contexts, distances):
    suite = read_suite(PUBLISHED / f"{name}.jsonl")
    assert len(suite.items) == items
    assert {item.sentence for item in suite.items} == contexts
    assert {item.distance for item in suite.items} == distances
    assert suite.generative == ("ctxpro" in name)
    assert "-".join(suite.languages) == name[-5:]


@pytest.mark.skipif(not PUBLISHED.is_dir(), reason="the published test sets are not here")
@pytest.mark.parametrize(
    ("name", "chance"), [("deixis_dev", 0.5), ("lex_cohesion_dev", 0.459), ("ellipsis_infl", 0.21)]
)
def test_guessing_is_as_often_right_as_published(name, chance):
    """Voita et al. 2019 report .5, .459 (of the test part) and .205 for guessing; equal candidates are one here."""
    items = read_suite(PUBLISHED / f"consistency-{name}.en-ru.jsonl").items
    assert sum(item.chance for item in items) / len(items) == pytest.approx(chance, abs=0.015)


def test_null_is_no_name(tmp_path):
    """Exports of tables have it where nothing is known; as one document, items would have no intervals."""
    item = {"source": ["A.", "B."], "candidates": [["a", "b"], ["a", "c"]], "correct": 0, "sentence": 1}
    path = tmp_path / "suite.jsonl"
    path.write_text("".join(json.dumps({**item, "document": name}) + "\n" for name in (None, "x")))
    assert [each.document for each in read_suite(path).items] == ["", "x"]
