"""Documents that a server translates: counts, order, progress, terms, memories, keys, and the ends of the work."""

import json
import logging
import math
import threading
import time
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise

import pytest
from fake_server import find_text, serving, translate_words, write_profile

from docmt.core.errors import DocmtError
from docmt.decoding.search_config import calling_between_steps
from docmt.decoding.translation_results import ResumePoint
from docmt.documents import Document
from docmt.engines import EndpointTranslator, endpoint_translator, http_client
from docmt.engines.http_client import EngineUnavailable
from docmt.engines.sentence_requests import OpenText, SentenceRequests, make_sentence
from docmt.terms import Glossary, Term
from docmt.terms.memory import Memory

TEXT = (
    "The first house was old. Its door was green, and its roof was red.\n\n"
    "12.50\n\nNobody lived in it. https://example.org/a\n\n"
    "A second house stood near the river. It had 42 rooms. All of them were empty! Why was that so?\n"
)
OTHER = "Some birds sang. They were loud.\n\n- one\n- two\n"


@pytest.fixture(autouse=True)
def short_waits(monkeypatch):
    """Requests are sent again at once."""
    monkeypatch.setattr(http_client, "_FIRST_WAIT", 0.001)
    monkeypatch.setattr(http_client, "_LONGEST_WAIT", 0.002)


def make(tmp_path, fake, **settings):
    """Return a translator of the fake server."""
    return EndpointTranslator(write_profile(tmp_path / "p.yaml", fake.url, **settings))


def documents():
    """Two documents and an empty one."""
    return [Document.from_text(text, language="en") for text in (TEXT, "", OTHER)]


def rows(parts):
    """Return (document, sentence, target) of parts."""
    return [
        (part.document, number, sentence.target)
        for part in parts
        for number, sentence in enumerate(part.translation, part.first)
    ]


def stream_rows(translator, sources, **settings):
    """Return what `rows` does of all parts."""
    return rows([part for parts in translator.stream_parts(sources, **settings) for part in parts])


CONTEXTS = [
    {"sentences": 0, "source_characters": 0},
    {"sentences": 1, "source_characters": 60},
    {"sentences": 3, "source_characters": 0},
    {"sentences": 50, "source_characters": 6000},
]


def in_full(body):
    """Return a text of all that a request has: an answer that depends on it shows what was asked."""
    return json.dumps(body, sort_keys=True)


@pytest.fixture
def telling():
    """A server whose translations depend on everything in a request."""
    with serving() as fake:
        fake.answer = lambda text, number: translate_words(text)
        yield fake


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("requests", [1, 2, 7])
def test_parts_come_in_order_and_each_sentence_once(context, requests, tmp_path):
    sources = documents()
    with serving(lambda text, number: time.sleep(0.003 * (number % 3)) or translate_words(text)) as fake:
        translator = make(tmp_path, fake, context=context, limits={"requests": requests})
        parts = [part for group in translator.stream_parts(sources) for part in group]
        assert [part.document for part in parts] == sorted(part.document for part in parts)
        assert [row[:2] for row in rows(parts)] == [(n, i) for n, each in enumerate(sources) for i in range(len(each))]
        assert 1 <= fake.most_at_once <= requests
        asked = sorted(map(in_full, fake.requests))
        whole = translator.translate(sources)
    assert [each.text() for each in whole] == ["".join(p.text() for p in parts if p.document == n) for n in range(3)]
    for source, translation in zip(sources, whole, strict=True):
        assert len(translation) == len(source) and translation.document.gaps == source.gaps
        for sentence in translation:
            assert source.text()[slice(*sentence.source_span)] == sentence.source
            assert translation.text()[slice(*sentence.target_span)] == sentence.target
    with serving() as fake:
        other = make(tmp_path, fake, context=context, limits={"requests": 1})
        assert stream_rows(other, sources) == rows(parts)
        assert sorted(map(in_full, fake.requests)) == asked  # the same is asked, however much at one time


@pytest.mark.parametrize("kind", ["deepl", "docmt"])
def test_context_of_other_services_does_not_depend_on_how_much_is_asked_at_one_time(kind, tmp_path):
    asked = []
    for requests in (1, 5):
        with serving() as fake:
            translator = make(tmp_path, fake, profile=kind, model="", key_variable="", limits={"requests": requests})
            translator.translate(documents())
            asked.append(sorted(map(in_full, fake.requests)))
    assert asked[0] == asked[1]
    assert len(asked[0]) == 11 and sum("context" in json.loads(each) for each in asked[0]) == 9


@pytest.mark.parametrize("context", CONTEXTS)
def test_open_documents_in_turns_of_any_size_are_the_same(context, tmp_path):
    sources = documents()
    with serving() as fake:
        translator = make(tmp_path, fake, context=context)
        expected, asked = stream_rows(translator, sources), sorted(map(in_full, fake.requests))
    for tokens in (1, 20, 10_000):
        with serving() as fake:
            translator = make(tmp_path, fake, context=context)
            opened = [translator.open(each, tokens=tokens) for each in sources]
            parts = []
            while not all(each.is_done for each in opened):
                before = sum(each.count_tokens() for each in opened)
                parts += translator.translate_next(opened, tokens)
                assert sum(each.count_tokens() for each in opened) < before
            assert sorted(rows(parts)) == sorted(expected)
            assert sorted(map(in_full, fake.requests)) == asked


@pytest.mark.parametrize("context", CONTEXTS)
def test_a_turn_ends_after_some_seconds_with_what_is_finished(context, tmp_path, monkeypatch):
    sources = documents()
    with serving() as fake:
        translator = make(tmp_path, fake, context=context)
        expected = stream_rows(translator, sources)
        monkeypatch.setattr(endpoint_translator, "_TURN_SECONDS", 0.0)
        opened, parts = [translator.open(each) for each in sources], []
        while not all(each.is_done for each in opened):
            made = translator.translate_next(opened, 10_000)
            assert sum(sentence.engine is not None for part in made for sentence in part.translation) <= 1
            parts += made
        assert sorted(rows(parts)) == sorted(expected)


@pytest.mark.parametrize("context", CONTEXTS)
def test_a_document_goes_on_after_each_sentence(context, tmp_path):
    source = documents()[0]
    with serving() as fake:
        translator = make(tmp_path, fake, context=context, limits={"requests": 1})
        opened = translator.open(source)
        points, counts = {}, {}
        parts = []
        while not opened.is_done:
            parts += translator.translate_next([opened], 1)
            points[parts[-1].resume_point.sentences] = json.loads(json.dumps(parts[-1].resume_point.__dict__))
            counts[parts[-1].resume_point.sentences] = len(fake.requests)
        whole, expected = list(map(in_full, fake.requests)), [row[2] for row in rows(parts)]
    assert len(points) >= 7
    for number, values in points.items():
        for is_supplied in (False, True):
            with serving() as fake:
                translator = make(tmp_path, fake, context=context, limits={"requests": 1})
                point = ResumePoint(**values)
                if is_supplied:
                    point = translator.resume_after(translator.prepare(source), expected[:number])
                left = stream_rows(translator, [source], resume_points={0: point})
                assert [row[1:] for row in left] == list(enumerate(expected))[number:]
                assert list(map(in_full, fake.requests)) == whole[counts[number] :]


def test_a_document_with_more_translations_than_sentences(tmp_path):
    with serving() as fake:
        translator = make(tmp_path, fake)
        with pytest.raises(DocmtError, match="1 sentences cannot have 2 translations"):
            translator.resume_after(translator.prepare("One."), ["Un.", "Deux."])


def test_a_failed_sentence_is_a_part_with_an_error_and_its_neighbours_stay(tmp_path):
    sources = documents()
    with serving(lambda text, number: "" if "Nobody" in text or "birds" in text else translate_words(text)) as fake:
        translator = make(tmp_path, fake)
        parts = [part for group in translator.stream_parts(sources) for part in group]
        failed = [part for part in parts if part.error is not None]
        assert [(part.document, part.first, len(part.source)) for part in failed] == [(0, 2, 1), (2, 0, 1)]
        good = rows([part for part in parts if part.error is None])
        assert len(good) == sum(map(len, sources)) - 2
        for document, source in enumerate(sources):
            numbers = [n for p in parts if p.document == document for n in range(p.first, p.first + len(p.source))]
            assert numbers == list(range(len(source)))
        assert [part.error.engine.requests for part in failed] == [3, 3]
        with pytest.raises(DocmtError, match=r"^sentence 3: p gives no translation of it in 3 requests: it is empty$"):
            translator.translate(TEXT)


def test_earlier_turns_are_the_same_in_later_requests(tmp_path):
    sentences = [f"The house number {number} of the street was old." for number in "abcdefghijklmnopqrst"]
    with serving() as fake:
        make(tmp_path, fake, context={"sentences": 6, "source_characters": 0}).translate_all(
            [Document.from_sentences(sentences)]
        )
    messages = [body["messages"] for body in fake.requests]
    starts = 0
    for number, (one, other) in enumerate(pairwise(messages), 1):
        turns = (len(other) - 2) // 2
        assert min(number, 4) <= turns <= 6  # what is left of the earlier sentences, in pairs
        assert other[-3]["content"].endswith(sentences[number - 1])
        assert other[-2] == {"role": "assistant", "content": translate_words(sentences[number - 1])}
        if len(other) > len(one):
            assert other[: len(one)] == one  # what was read is read again
        else:
            starts += 1
    assert starts == 5  # of 20


def test_the_source_is_shown_in_parts(tmp_path):
    with serving() as fake:
        make(tmp_path, fake, context={"sentences": 2, "source_characters": 120}).translate(TEXT)
    shown = [body["messages"][0]["content"].partition("The document:\n\n")[2] for body in fake.requests]
    assert all(0 < len(each) <= 120 for each in shown)
    for body, each in zip(fake.requests, shown, strict=True):
        assert find_text(body) in each
    kinds = list(dict.fromkeys(shown))
    assert len(kinds) == 2
    assert "".join("".join(kinds).split()) == "".join(TEXT.split())


def test_what_has_no_words_is_not_asked(tmp_path):
    with serving() as fake:
        translation = make(tmp_path, fake).translate(Document.from_sentences(["12.50", "https://a.org/b", "…", "Yes."]))
    assert [each.target for each in translation] == ["12.50", "https://a.org/b", "…", "Yeso."]
    assert [each.engine.requests if each.engine else 0 for each in translation] == [0, 0, 0, 1]
    assert fake.texts() == ["Yes."]


def test_nothing_is_protected_if_nothing_shall_be(tmp_path):
    with serving(lambda text, number: "perdu") as fake:
        model = write_profile(tmp_path / "p.yaml", fake.url)
        found = EndpointTranslator(model, protect=None).translate(Document.from_sentences(["See {x} and 42 or a.org."]))
        assert (found.missing, len(fake.requests)) == ((), 1)
        found = EndpointTranslator(model, protect=["or"]).translate(Document.from_sentences(["See x or y."]))
        assert (found.missing, len(fake.requests)) == ((0,), 4)


def test_log_probabilities_are_scores(tmp_path):
    with serving() as fake:
        translation = make(tmp_path, fake, log_probabilities=True).translate(Document.from_sentences(["Yes.", "No."]))
        assert [(each.score, each.tokens) for each in translation] == [(-0.75, 2)] * 2
        assert translation.score == -1.5 and "score" in translation.sentences[0].to_json()
        assert fake.requests[0]["logprobs"] is True
        plain = make(tmp_path, fake).translate(Document.from_sentences(["Yes."]))
    assert plain.sentences[0].score == 0 and "score" not in plain.sentences[0].to_json()


@pytest.mark.parametrize(
    "rows", [[{"logprob": math.nan}], [{"logprob": -1e999}], [{"logprob": None}], [{}], 3, [3], []]
)
def test_scores_without_sense_are_none(rows, tmp_path):
    value = {"choices": [{"message": {"content": "Oui."}, "logprobs": {"content": rows}}], "usage": None}
    with serving(lambda text, number: lambda handler: handler.send(200, json.dumps(value))) as fake:
        translation = make(tmp_path, fake, log_probabilities=True).translate(Document.from_sentences(["Yes."]))
    assert (translation.sentences[0].target, translation.sentences[0].score) == ("Oui.", 0.0)
    assert translation.has_finite_scores


def test_prices_are_summed(tmp_path):
    answers = ["", "Oui."]
    with serving(lambda text, number: answers[number - 1]) as fake:
        translator = make(tmp_path, fake, prices={"input": 3.0, "output": 15.0, "currency": "EUR"})
        use = translator.translate(Document.from_sentences(["Yes."])).sentences[0].engine
    assert (use.requests, use.input_tokens, use.output_tokens, use.currency) == (2, 14, 6, "EUR")
    assert use.cost == pytest.approx((14 * 3 + 6 * 15) / 1e6)


TERMS = {"house": "logis", "river": ["fleuve", "rivière"]}


def translate_with_terms(tmp_path, answer, source, terms, **settings):
    """Return the sentence and the requests."""
    with serving(answer) as fake:
        translator = make(tmp_path, fake, **settings).with_terms(terms)
        return translator.translate(Document.from_sentences([source])).sentences[0], fake.requests


@pytest.mark.parametrize(
    ("answers", "target", "status", "found", "requests"),
    [
        (["Le logis est grand."], 0, "met", "logis", 1),
        (["Les logis sont grands."], 0, "met", "logis", 1),
        (["La maison est grande.", "Le logis est grand."], 1, "second_search", "logis", 2),
        (["La maison est grande.", "La maison est large.", "Une maison est grande."], 0, "lost", "", 3),
        (["La maison est grande.", "", "Le logis est grand."], 2, "second_search", "logis", 3),
    ],
)
def test_terms_are_asked_for_and_checked(answers, target, status, found, requests, tmp_path):
    sentence, asked = translate_with_terms(tmp_path, lambda _, n: answers[n - 1], "The house is large.", TERMS)
    assert sentence.target == answers[target]
    assert [(use.term, use.wanted, use.found, use.status) for use in sentence.terms] == [
        ("house", ("logis",), found, status)
    ]
    assert len(asked) == requests
    assert asked[0]["messages"][-1]["content"].endswith("The house is large.\n\n(Use these words: house = logis)")
    if requests > 1:
        assert "it lacks house = logis" in asked[1]["messages"][-1]["content"]


def test_a_term_in_another_form_is_met(tmp_path):
    answer = "Il y a des chevaux."
    sentence, asked = translate_with_terms(tmp_path, lambda *_: answer, "There are horses.", {"horse": "cheval"})
    assert [(use.found, use.status) for use in sentence.terms] == [("chevaux", "other_form")]
    assert len(asked) == 1


def test_terms_that_are_not_translated(tmp_path):
    glossary = Glossary(("en", "fr"), (Term("Baum", ("Baum",), keep=True), Term("house", ("logis",))))
    sentence, asked = translate_with_terms(
        tmp_path, lambda *_: "Le logis Baum.", "The house Baum.", glossary, prompt={"term": "{source}:{target}"}
    )
    assert [use.status for use in sentence.terms] == ["met", "met"]
    assert "house:logis; Baum:Baum" in asked[0]["messages"][-1]["content"]


def test_a_forbidden_translation_is_asked_for_again(tmp_path):
    glossary = Glossary(("en", "fr"), (Term("house", (), forbidden=("maison", "bicoque")),))
    answers = ["La maison est grande.", "La bicoque est grande.", "Le logis est grand."]
    sentence, asked = translate_with_terms(tmp_path, lambda _, n: answers[n - 1], "The house is large.", glossary)
    assert (sentence.target, len(asked)) == (answers[2], 3)
    assert [use.status for use in sentence.terms] == ["second_search"]
    assert "(Use these words" not in asked[0]["messages"][-1]["content"]
    assert "it may not have maison, bicoque" in asked[1]["messages"][-1]["content"]
    sentence, asked = translate_with_terms(tmp_path, lambda *_: answers[0], "The house is large.", glossary)
    assert (sentence.target, [use.status for use in sentence.terms]) == (answers[0], ["forbidden"])


def test_terms_in_protected_text_are_not_asked_for(tmp_path):
    sentence, asked = translate_with_terms(
        tmp_path, lambda *_: "Voir https://a.org/house/x.", "See https://a.org/house/x.", TERMS
    )
    assert [use.status for use in sentence.terms] in ([], ["protected"])
    assert len(asked) == 1


def test_earlier_turns_have_their_terms(tmp_path):
    with serving(lambda text, n: ["Le logis est grand.", "Le fleuve est large."][n - 1]) as fake:
        translator = make(tmp_path, fake).with_terms(TERMS)
        translator.translate(Document.from_sentences(["The house is large.", "The river is large."]))
    one, other = fake.requests
    assert other["messages"][: len(one["messages"])] == one["messages"]
    assert other["messages"][-1]["content"].endswith("(Use these words: river = fleuve | rivière)")


def test_documents_are_searched_again_for_terms(tmp_path):
    sources = ["The house is large.", "It is old.", "The house is blue.", "A house fell."]
    targets = ["La maison est grande.", "Elle est vieille.", "Le logis est bleu.", "Une maison tomba."]
    with serving(lambda text, n: "" if "fell" in text else "Le logis est grand.") as fake:
        translator = make(tmp_path, fake).with_terms(TERMS)
        scores = dict.fromkeys(range(4), (0.0, 1))
        found = translator.search_terms(Document.from_sentences(sources), targets, scores)
    assert {n: (each.target, [use.status for use in each.terms]) for n, each in found.items()} == {
        0: ("Le logis est grand.", ["second_search"]),
        2: ("Le logis est bleu.", ["met"]),
        3: ("Une maison tomba.", ["lost"]),  # the old one stays
    }


def memory(tmp_path, pairs):
    """Return a memory of these pairs."""
    units = "".join(
        f'<tu><tuv xml:lang="en"><seg>{source}</seg></tuv><tuv xml:lang="fr"><seg>{target}</seg></tuv></tu>'
        for source, target in pairs
    )
    path = tmp_path / "m.tmx"
    path.write_text(f'<tmx version="1.4"><header srclang="en"/><body>{units}</body></tmx>')
    return Memory.read(path, languages=("en", "fr"))


def test_what_a_memory_has_is_not_asked_and_seen_by_others(tmp_path):
    sentences = ["The house is large.", "It is old.", "It fell."]
    with serving() as fake:
        translator = make(tmp_path, fake)
        reusing = translator.with_memory(memory(tmp_path, [("It is old.", "Elle est âgée.")]))
        translation = reusing.translate(Document.from_sentences(sentences))
        assert [each.target for each in translation] == ["Theo houseo iso largeo.", "Elle est âgée.", "Ito fello."]
        assert [each.memory for each in translation] == ["", "exact", ""]
        assert translation.sentences[1].to_json()["origin"] == "memory"
        assert fake.texts() == [sentences[0], sentences[2]]
        assert fake.requests[1]["messages"][-2]["content"] == "Elle est âgée."
        assert translator.memory is None and translator.settings != reusing.settings


def test_keys_are_neither_shown_nor_logged(tmp_path, monkeypatch, caplog):
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("MY_KEY", " sk-very-secret-1234 \n")

    def answer(text, number):
        code = 503 if number == 1 else 401
        return lambda handler: handler.send(code, json.dumps({"error": f"wrong {handler.headers['Authorization']}"}))

    with serving(answer) as fake:
        translator = make(tmp_path, fake, key_variable="MY_KEY")
        with pytest.raises(EngineUnavailable, match=r"wrong Bearer \*\*\*") as failure:
            translator.translate("A confidential text.")
    assert fake.headers[0]["Authorization"] == "Bearer sk-very-secret-1234"
    told = caplog.text + str(failure.value) + repr(translator) + repr(translator.profile) + str(translator.settings)
    assert "secret" not in told and "confidential" not in told


def test_texts_are_not_logged(tmp_path, caplog):
    caplog.set_level(logging.DEBUG)
    answers = [503, 500, 429]

    def answer(text, number):
        if number > len(answers):
            return translate_words(text)
        return lambda handler: handler.send(answers[number - 1], json.dumps({"error": f"cannot read: {text}"}))

    with serving(answer) as fake:
        assert make(tmp_path, fake).translate("A confidential text.") == "Ao confidentialo texto."
    assert caplog.text.count("asking again") == 3
    assert "confidential" not in caplog.text


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, "p needs a key: set the environment variable MY_KEY"),
        ("  ", "p needs a key: set the environment variable MY_KEY"),
        ("sk-1\nX-Other: 2", "MY_KEY has characters that no key has"),
        ("schlüssel", "MY_KEY has characters that no key has"),
    ],
)
def test_keys_that_are_none(value, message, tmp_path, monkeypatch):
    monkeypatch.delenv("MY_KEY", raising=False)
    if value is not None:
        monkeypatch.setenv("MY_KEY", value)
    with serving() as fake, pytest.raises(DocmtError, match=message) as failure:
        make(tmp_path, fake, key_variable="MY_KEY")
    assert "sk-1" not in str(failure.value)


def test_the_key_of_other_services(tmp_path, monkeypatch):
    monkeypatch.setenv("MY_KEY", "k")
    with serving() as fake:
        for profile in ("deepl", "libretranslate", "docmt"):
            make(tmp_path, fake, profile=profile, model="", key_variable="MY_KEY").translate("Yes.")
    assert [each.get("Authorization") for each in fake.headers] == ["DeepL-Auth-Key k", "Bearer k", "Bearer k"]
    assert [each.get("api_key") for each in fake.requests] == [None, "k", None]


def test_that_data_leave_the_machine_is_told_once(tmp_path, monkeypatch, caplog):
    with serving() as fake:
        translator = make(tmp_path, fake)
        translator.translate("Yes.")
        assert "leave this machine" not in caplog.text
        monkeypatch.setattr("docmt.engines.profile.EngineProfile.is_local", property(lambda self: False))
        monkeypatch.setenv("no_proxy", "*")
        other = make(tmp_path, fake, context={"sentences": 0})
        other.with_terms({"a": "b"}).translate(["Yes.", "No.", "Perhaps."])
        other.translate("Two.")
    assert caplog.text.count(f"p: texts leave this machine, to {fake.url}") == 1


@pytest.mark.parametrize(
    ("url", "is_local"),
    [
        ("http://localhost:1/v1", True),
        ("http://127.0.0.9:1", True),
        ("http://[::1]:1", True),
        ("http://localhost.example.org", False),
        ("http://10.0.0.1", False),
        ("https://127.0.0.1.example.org", False),
        ("http://0x7f.1", False),
    ],
)
def test_local_servers(url, is_local, tmp_path):
    assert EndpointTranslator(write_profile(tmp_path / "p.yaml", url)).profile.is_local is is_local


def test_proxies_are_those_of_the_environment_and_none_for_this_machine(tmp_path, monkeypatch):
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with serving() as fake, serving() as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        assert make(tmp_path, fake).translate("Yes.") == "Yeso."
        assert not proxy.requests
        model = write_profile(tmp_path / "far.yaml", "http://engine.example")
        assert EndpointTranslator(model).translate("Yes.") == "Yeso."
        assert proxy.paths == ["http://engine.example/chat/completions"]


class Stop(BaseException):
    """What ends the work, such as Ctrl-C."""


@pytest.mark.parametrize("context", [CONTEXTS[0], CONTEXTS[3]])
def test_work_that_is_stopped_ends_at_once_and_asks_no_more(context, tmp_path):
    freed = threading.Event()
    with serving(lambda text, number: freed.wait(20) and "") as fake:
        translator = make(tmp_path, fake, context=context, limits={"requests": 3})

        def stop():
            if fake.requests:
                raise Stop

        started = time.monotonic()
        with calling_between_steps(stop), pytest.raises(Stop):
            translator.translate([TEXT, OTHER])
        assert time.monotonic() - started < 10
        asked = len(fake.requests)
        freed.set()  # the answers are wrong, and nobody waits for others
        deadline = time.monotonic() + 10
        while threading.active_count() > 2 and fake.running and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.2)
        assert len(fake.requests) <= max(asked, 3)


def test_a_generator_that_is_closed_asks_no_more(tmp_path):
    with serving() as fake:
        parts = make(tmp_path, fake, limits={"requests": 2}).stream_parts(documents())
        next(parts)
        parts.close()
        time.sleep(0.2)
        asked = len(fake.requests)
        time.sleep(0.2)
        assert len(fake.requests) == asked <= 4


def test_open_documents_go_on_when_the_server_is_back(tmp_path, monkeypatch):
    monkeypatch.setattr("docmt.engines.http_client._REST_SECONDS", 0.0)
    sources = documents()
    for context in CONTEXTS:
        with serving() as fake:
            expected = stream_rows(make(tmp_path, fake, context=context), sources)
        failures = iter([3, 4, 5, 9, 10])
        failing = [next(failures)]

        def answer(text, number, failing=failing, failures=failures):
            if number == failing[0]:
                failing[0] = next(failures, 0)
                return lambda handler: handler.send(503, "")
            return translate_words(text)

        with serving(answer) as fake:
            translator = make(tmp_path, fake, context=context, limits={"requests": 3, "attempts": 1})
            opened, parts = [translator.open(each) for each in sources], []
            for _ in range(200):
                if all(each.is_done for each in opened):
                    break
                with suppress(EngineUnavailable):
                    parts += translator.translate_next(opened, 25)
            assert not failing[0]
            assert sorted(rows(parts)) == sorted(expected)


def test_a_server_that_is_away_is_not_asked_for_a_while(tmp_path):
    with serving(lambda text, number: lambda handler: handler.send(503, "")) as fake:
        translator = make(tmp_path, fake, limits={"attempts": 2})
        for _ in range(3):
            with pytest.raises(EngineUnavailable, match="503"):
                translator.translate("Yes.")
        assert len(fake.requests) == 2


def test_two_translators_do_not_share_terms(tmp_path):
    with serving() as fake:
        translator = make(tmp_path, fake)
        one, other = translator.with_terms({"house": "logis"}), translator.with_terms({"house": "maison"})
        assert translator.terms is None and one.settings != other.settings != translator.settings
        one.translate("A house.")
        other.translate("A house.")
        texts = [find_text(body) for body in fake.requests]
    assert any("logis" in text for text in texts) and any("maison" in text for text in texts)
    assert not any("logis" in text and "maison" in text for text in texts)


def test_many_threads_share_a_translator(tmp_path):
    with serving() as fake:
        translator = make(tmp_path, fake)
        expected, results = translator.translate([TEXT, OTHER]), []
        threads = [
            threading.Thread(target=lambda: results.append(translator.translate([TEXT, OTHER]))) for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert results == [expected] * 4


def test_settings_are_those_that_determine_answers(tmp_path):
    with serving() as fake:
        base = make(tmp_path, fake).settings
        same = ({"limits": {"requests": 9, "seconds": 3.0}}, {"prices": {"input": 1.0}}, {"stream": True})
        for settings in same:
            assert make(tmp_path, fake, **settings).settings == base
        for settings in ({"model": "n"}, {"temperature": 0.5}, {"context": {"sentences": 1}}, {"extra": {"top_k": 3}}):
            assert make(tmp_path, fake, **settings).settings != base
        assert (
            replace(make(tmp_path, fake).profile, url="http://other").describe()
            == make(tmp_path, fake).profile.describe()
        )


def test_many_documents_take_time_by_their_number(tmp_path, monkeypatch):
    """No document is looked at again and again while others are translated."""
    looks = []
    take = OpenText.take
    monkeypatch.setattr(OpenText, "take", lambda self: looks.append(self) or take(self))
    monkeypatch.setattr(
        SentenceRequests, "translate", lambda self, source, *_: (make_sentence(source, translate_words(source)), [])
    )
    with serving() as fake:
        sources = [Document.from_sentences([f"House {number}."]) for number in range(300)]
        assert len(stream_rows(make(tmp_path, fake), sources)) == 300
    assert len(looks) < 300 * 2 * (4 + 1)
