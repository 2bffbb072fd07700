"""Campaigns for Pearmut hide the systems, and its answers are scored as the key says."""

import json
import re

import numpy as np
import pytest

from docmt.core.errors import DocmtError
from docmt.evaluation import SignificanceConfig
from docmt.evaluation.pearmut import build_campaign, score_answers

CONFIG = SignificanceConfig(samples=200)
DOCUMENTS = [(f"d{number}", [f"source {number}.{index}" for index in range(number % 3 + 1)]) for number in range(8)]
SYSTEMS = {
    name: [[sentence.replace("source", name) for sentence in sentences] for _, sentences in DOCUMENTS]
    for name in ("one", "two", "three")
}


def answer(campaign, points, user="anna", errors=lambda text: [], tasks=slice(None)):
    """Annotations as Pearmut logs them: points is a function of the text of a translation."""
    entries = []
    for number, items in list(enumerate(campaign["data"]))[tasks]:
        annotations = [
            {
                letter: {"score": points(text), "error_spans": [{"severity": each} for each in errors(text)]}
                for letter, text in item["tgt"].items()
            }
            for item in items
        ]
        entries.append({"user_id": user, "item_i": number, "item": items, "annotation": annotations})
    return entries


@pytest.fixture
def write(tmp_path):
    """A function that writes a key, or a list of annotations as the dashboard gives them, and returns the path."""

    def written(name, values):
        path = tmp_path / name
        path.write_text(json.dumps({"test": values} if isinstance(values, list) else values))
        return str(path)

    return written


@pytest.mark.parametrize("protocol", ["cESA", "ESA"])
def test_a_campaign_has_whole_documents_and_no_names(protocol):
    campaign, key = build_campaign("test", DOCUMENTS, SYSTEMS, protocol, seed=3)
    assert campaign["info"]["protocol"] == key["protocol"] == protocol and not campaign["info"]["shuffle"]
    assert not re.search('"(one|two|three)"', json.dumps(campaign))
    outputs = []
    for items in campaign["data"]:
        number = items[0]["document"]
        assert [item["src"] for item in items] == DOCUMENTS[number][1]
        for letter in items[0]["tgt"]:
            system = key["documents"][number]["systems"][letter]
            assert [item["tgt"][letter] for item in items] == SYSTEMS[system][number]
            outputs.append((number, system))
    assert sorted(outputs) == sorted((number, system) for number in range(8) for system in SYSTEMS)
    assert len({item["item_id"] for items in campaign["data"] for item in items}) == sum(map(len, campaign["data"]))
    assert {len(items[0]["tgt"]) for items in campaign["data"]} == {3 if protocol == "cESA" else 1}
    assert len({tuple(each["systems"].values()) for each in key["documents"]}) > 2, "another order in each document"
    assert (campaign, key) == build_campaign("test", DOCUMENTS, SYSTEMS, protocol, seed=3)
    assert campaign != build_campaign("test", DOCUMENTS, SYSTEMS, protocol, seed=4)[0]


def test_other_numbers_of_sentences_make_one_segment():
    campaign, _ = build_campaign("test", [("d", ["a", "b"])], {"one": [["A", "B"]], "two": [["A B C"]]}, seed=0)
    ((item,),) = campaign["data"]
    assert item["src"] == "a\nb" and set(item["tgt"].values()) == {"A B C", "A\nB"}


def test_tags_in_sentences_are_no_tags_in_the_page_of_pearmut():
    ((item,),) = build_campaign("test", [("d", ["1 <b>x</b> < 2"])], {"one": [["<video src=x>"]]})[0]["data"]
    assert not re.search("<[a-z/]", item["src"] + item["tgt"]["A"])
    assert item["src"].replace("\u2060", "") == "1 <b>x</b> < 2"


@pytest.mark.parametrize("protocol", ["cESA", "ESA"])
def test_answers_are_means_over_segments_and_annotators(protocol, write):
    campaign, key = build_campaign("test", DOCUMENTS, SYSTEMS, protocol, seed=3)
    generator = np.random.default_rng(2)
    noise = {text: int(generator.integers(10)) for texts in SYSTEMS.values() for each in texts for text in each}
    base = {"one": 60, "two": 80, "three": 60}

    def points(text):
        return base[text.split()[0]] + noise[text]

    entries = answer(campaign, points) + answer(
        campaign, lambda text: points(text) - 20, "bert", lambda text: ["major"]
    )
    scores = score_answers([write("answers.json", entries), write("key.json", key)], CONFIG)
    first = scores.systems["one"]
    assert (first.sentences, first.documents, first.config.annotators, first.config.left_out) == (15, 8, 2, 0)
    for system, texts in SYSTEMS.items():
        expected = np.mean([points(text) - 10 for each in texts for text in each])
        assert scores.systems[system].points.score == pytest.approx(expected)
        assert scores.systems[system].errors.score == 2.5
    better, equal = (scores.outcomes["points"][number].difference for number in (1, 2))
    assert better.is_significant and not equal.is_significant and better.interval.low > 0
    assert scores.format().splitlines()[1].startswith("one") and "p 0.0" in scores.to_markdown()
    assert json.loads(json.dumps(scores.to_json()))["systems"][1]["name"] == "two"


def test_the_last_answer_of_an_annotator_counts_and_a_reset_takes_all_back(write):
    campaign, key = build_campaign("test", DOCUMENTS, SYSTEMS)
    key_file = write("key.json", key)
    first, second = answer(campaign, lambda text: 10), answer(campaign, lambda text: 30)
    tutorial = {"user_id": "anna", "item": [{"src": "t", "tgt": {"A": "t"}}], "annotation": [{"A": {"score": 0}}]}
    scores = score_answers([write("a.json", [*first, tutorial, *second]), key_file], CONFIG)
    assert scores.systems["one"].points.score == 30
    reset = {"user_id": "anna", "annotation": "__RESET__"}
    part = answer(campaign, lambda text: 50, tasks=slice(3))
    scores = score_answers([write("b.json", [*first, reset, *part]), key_file], CONFIG)
    assert scores.systems["one"].points.score == 50 and scores.systems["one"].sentences == sum(
        map(len, campaign["data"][:3])
    )


def test_segments_without_the_answer_for_a_system_are_left_out(write):
    campaign, key = build_campaign("test", DOCUMENTS, SYSTEMS, "ESA")
    entries = answer(campaign, lambda text: 50, tasks=slice(20))
    scores = score_answers([write("a.json", entries), write("key.json", key)], CONFIG)
    left_out = scores.systems["one"].config.left_out
    assert left_out > 0 and f"{left_out} segments without answers for all" in scores.format()
    with pytest.raises(DocmtError, match="no segment has answers for all systems"):
        score_answers([write("a.json", entries[:1]), write("key.json", key)], CONFIG)


def test_one_system_and_one_document_have_points_too(write):
    for documents in (DOCUMENTS, DOCUMENTS[:1]):
        systems = {"one": SYSTEMS["one"][: len(documents)]}
        campaign, key = build_campaign("test", documents, systems)
        scores = score_answers([write("a.json", answer(campaign, lambda text: 50)), write("key.json", key)], CONFIG)
        assert scores.rows()[1][:2] == ["one", "50.00 ± 0.00" if len(documents) > 1 else "50.00"]


def test_documents_are_resampled_whatever_is_asked(write):
    campaign, key = build_campaign("test", DOCUMENTS, SYSTEMS)
    paths = [write("a.json", answer(campaign, lambda text: 50)), write("key.json", key)]
    over_sentences = score_answers(paths, SignificanceConfig(samples=200, resample="sentences"))
    assert over_sentences.rows() == score_answers(paths, CONFIG).rows()
    assert "over 8 documents" in over_sentences.format() and "8 documents, 15 segments" in over_sentences.format()


def test_what_does_not_fit_is_refused(write):
    campaign, key = build_campaign("test", DOCUMENTS, SYSTEMS)
    entries = answer(campaign, lambda text: 50)
    answers, key_file = write("a.json", entries), write("key.json", key)
    other = write("other.json", build_campaign("other", DOCUMENTS, SYSTEMS)[1])
    for paths, message in (
        ([answers], r"there is no key of the campaign: name the file \.key\.json"),
        ([key_file], "there are no answers: name what Pearmut's dashboard gives to download"),
        ([answers, other], "the answers belong to another campaign than the key of other"),
        ([write("b.json", [1]), key_file], r"b\.json has no annotations"),
        ([write("c.json", [{**entries[0], "annotation": [{"Z": {"score": 1}}]}]), key_file], r"damaged \(KeyError"),
        ([write("e.json", [{**entries[0], "annotation": [{"A": {"score": float("nan")}}]}]), key_file], r"nan points"),
        ([write("d.json", [{**entries[0], "annotation": [{"A": 7}]}]), key_file], r"the answers are damaged"),
    ):
        with pytest.raises(DocmtError, match=message):
            score_answers(paths, CONFIG)
    with pytest.raises(DocmtError, match="a campaign has at most 26 systems, not 27"):
        build_campaign("test", DOCUMENTS, dict.fromkeys(map(str, range(27)), SYSTEMS["one"]))
