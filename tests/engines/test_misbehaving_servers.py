"""Servers that misbehave: each ends in the right translation, or in one sentence that says what is wrong."""

import json
import re
import shutil
import socket
import ssl
import struct
import subprocess
import time
from email.utils import formatdate
from threading import Event
from typing import NamedTuple

import pytest
from fake_server import serving, translate_words, write_profile

from docmt.documents import Document
from docmt.engines import EndpointTranslator, http_client
from docmt.engines.http_client import EngineUnavailable, HttpClient

SOURCES = [
    "The old harbour of the town was very quiet.",
    "All of the ships have left it in the night.",
    "Nobody knows when one of them will be back.",
]
TARGETS = [translate_words(source) for source in SOURCES]
CHAT = "/chat/completions"


@pytest.fixture(autouse=True)
def short_waits(monkeypatch):
    """Requests are sent again at once."""
    monkeypatch.setattr(http_client, "_FIRST_WAIT", 0.001)
    monkeypatch.setattr(http_client, "_LONGEST_WAIT", 0.002)
    monkeypatch.setattr(http_client, "_MOST_BYTES", 1 << 18)


class Outcome(NamedTuple):
    """What came of a document."""

    targets: list
    errors: dict
    end: str
    """why it ended early"""
    missing: list


def translate(model, sources=SOURCES):
    """Return what comes of a document of these sentences."""
    translator = EndpointTranslator(model)
    targets, errors, missing, end = [None] * len(sources), {}, [], ""
    try:
        for parts in translator.stream_parts([Document.from_sentences(sources)]):
            for part in parts:
                assert len(part.source) == 1 or part.error is None
                if part.error is not None:
                    errors[part.first] = str(part.error)
                    continue
                for number, sentence in enumerate(part.translation, part.first):
                    assert targets[number] is None
                    targets[number] = sentence.target
                missing += [part.first + number for number in part.translation.missing]
    except EngineUnavailable as error:
        end = str(error)
    return Outcome(targets, errors, end, missing)


def misbehaving(answer, times=10**6):
    """Return a function that answers like this about the second sentence, so many times, and well otherwise."""
    seen = []

    def choose(text, number):
        if SOURCES[1] not in text:
            return translate_words(text)
        seen.append(number)
        return answer if len(seen) <= times else translate_words(text)

    return choose


def status(code, text="", kind="application/json", **headers):
    """An answer with this status."""
    return lambda handler: handler.send(code, text, kind, **headers)


def says(value, kind="application/json"):
    """An answer of this JSON or text."""
    return status(200, value if isinstance(value, str) else json.dumps(value), kind)


def message(**values):
    """An answer with this message."""
    return says({"choices": [{"message": values, "finish_reason": "stop"}]})


def bytes_of(*blocks, pause=0.0, times=1):
    """An answer of these bytes, whatever they mean; the last ones come so many times."""

    def answer(handler):
        handler.close_connection = True
        try:
            for block in [*blocks, *blocks[-1:] * (times - 1)]:
                handler.wfile.write(block)
                handler.wfile.flush()
                time.sleep(pause)
        except OSError:  # nobody listens any more
            pass

    return answer


def reset(handler):
    """Break the connection."""
    handler.close_connection = True
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    handler.connection.shutdown(socket.SHUT_RDWR)


def stream(*events, end="data: [DONE]\n\n", ending="\n"):
    """An answer in pieces. events: text of the answer, or JSON, or lines as they are."""
    lines = []
    for event in events:
        if isinstance(event, str):
            event = {"choices": [{"delta": {"content": event}}]}
        lines.append(event if isinstance(event, bytes) else b"data: " + json.dumps(event).encode() + b"\n\n")
    data = b"".join(lines) + end.encode()
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n\r\n"
    return bytes_of(head + data.replace(b"\n", ending.encode()))


STOP = {"choices": [{"delta": {}, "finish_reason": "stop"}]}
OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
GOOD = json.dumps({"choices": [{"message": {"content": TARGETS[1]}, "finish_reason": "stop"}]}).encode()
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
SLOW = {"seconds": 1.0, "attempts": 2, "requests": 2}

# (answer, the message of the server's end), sent again, and the end if it stays like this.
NO_SERVER = {
    "500": (status(500), "it answers 500 after 3 attempts"),
    "502 with a web page": (status(502, "<html><h1>Bad gateway", "text/html"), "it answers 502: "),
    "503 with a reason": (status(503, '{"error": {"message": "loading"}}'), "it answers 503, loading: "),
    "500 with deep JSON": (status(500, "[" * 100_000), "it answers 500"),
    "429 for seconds": (status(429, "", Retry_After="3"), "it answers 429"),
    "429 until a date": (status(429, "", Retry_After=formatdate(time.time() + 5)), "it answers 429"),
    "429 without sense": (status(429, "", Retry_After="Sun, 06 Nov 0000 08:49:37 -0000"), "it answers 429"),
    "page with 200": (says("<html>Sign in", "text/html"), "it answers with a web page"),
    "empty with 200": (says(""), "its answer is no JSON"),
    "no content": (bytes_of(b"HTTP/1.1 204 No Content\r\n\r\n"), "its answer is no JSON"),
    "half a body": (bytes_of(OK + b"\r\n" + GOOD[:40]), "its answer is no JSON"),
    "length too large": (bytes_of(OK + b"Content-Length: 9999\r\n\r\n" + GOOD), "its answer ends early"),
    "length too small": (bytes_of(OK + b"Content-Length: 9\r\n\r\n" + GOOD), "its answer is no JSON"),
    "length without sense": (bytes_of(OK + b"Content-Length: -1x\r\n\r\n" + GOOD[:9]), "its answer is no JSON"),
    "cut in a chunk": (bytes_of(CHUNKED + b"ff\r\n" + GOOD[:20]), "its answer ends early"),
    "cut between chunks": (bytes_of(CHUNKED + b"9\r\n" + GOOD[:9] + b"\r\n"), "its answer ends early"),
    "chunks without sense": (bytes_of(CHUNKED + b"zz\r\n" + GOOD), "its answer ends early"),
    "reset": (reset, "cannot be reached"),
    "closed": (bytes_of(b""), "cannot be reached"),
    "no HTTP": (bytes_of(b"SSH-2.0-OpenSSH_9.6\r\n"), "cannot be reached"),
    "endless headers": (bytes_of(b"HTTP/1.1 200 OK\r\n", b"X: y\r\n" * 100, times=99), "cannot be reached"),
    "endless body": (bytes_of(OK + b"\r\n", b" " * (1 << 16), times=99), "its answer does not end"),
    "not UTF-8": (bytes_of(OK + b'\r\n{"choices": "\xff\xfe"}'), "its answer is no JSON"),
    "wrong JSON": (says('{"choices": [}'), "its answer is no JSON"),
    "deep JSON": (says("[" * 100_000), "its answer is no JSON"),
    "JSON list": (says([]), "its answer has no translation"),
    "JSON text": (says('"text"'), "its answer has no translation"),
    "empty object": (says({}), "its answer has no translation"),
    "error with 200": (says({"error": {"message": "overloaded"}}), "it reports an error"),
    "error text with 200": (says({"error": "overloaded"}), r"it reports an error \(overloaded\)"),
    "no choices": (says({"choices": []}), "its answer has no translation"),
    "null choices": (says({"choices": None}), "its answer has no translation"),
    "choice of text": (says({"choices": ["text"]}), "its answer has no translation"),
    "no message": (says({"choices": [{"message": None}]}), "its answer has no text"),
    "number as content": (message(content=3), "its answer has no text"),
    "parts without sense": (message(content=[{"type": "text", "text": None}, 3]), "its answer has no t"),
    "stream that ends early": (stream("Toutes les", end=""), "its answer ends early"),
    "stream with an error": (stream("Toutes", {"error": {"message": "gone"}}), r"it reports an error"),
    "stream of lists": (stream([1]), "its answer has no translation"),
    "stream of nulls": (stream(b"data: null\n\n"), "its answer has no translation"),
    "stream of other pieces": (stream({"choices": [{"delta": {"content": [1]}}]}), "its answer has no translation"),
    "stream without JSON": (stream(b"data: {x\n\n"), "its answer is no JSON"),
    "stream not UTF-8": (stream(b"data: \xff\n\n"), "its answer is no JSON"),
}
TOO_SLOW = {
    "slow": (bytes_of(b"", pause=3), "no answer within 0.5 s"),
    "body in drops": (bytes_of(OK + b"\r\n", b" ", pause=0.05, times=60), "no answer within 0.5 s"),
    "header in drops": (bytes_of(b"HTTP/1.1 200 OK\r\nX: ", b"x", pause=0.05, times=60), "no answer within 0.5 s"),
    "status in drops": (bytes_of(b"HTTP/1.1 100 Continue\r\n\r\n", pause=0.05, times=60), "no answer within 0.5 s"),
    "chunk length in drops": (bytes_of(CHUNKED + b"1;", b"x", pause=0.05, times=60), "no answer within 0.5 s"),
    "error in drops": (bytes_of(b"HTTP/1.1 500 No\r\n\r\n", b"x", pause=0.05, times=60), "it answers 500"),
}
NOT_FOR_US = {
    "401": (status(401, '{"error": "no such key"}'), "it answers 401, no such key: correct url, model and key"),
    "402": (status(402, '{"detail": "pay"}'), "it answers 402, pay: "),
    "403": (status(403, "<p>no"), "it answers 403: correct"),
    "404": (status(404, '{"message": "no such model"}'), "it answers 404, no such model: "),
}
THINKING = f"<think>\nThey left, in small letters.\nAll < some.\n</think>\n\n{TARGETS[1]}"
LONG = " ".join([TARGETS[1]] * 20)
BAD_ANSWERS = {
    "400": (status(400, '{"error": {"message": "too long"}}'), "it answers 400, too long"),
    "413": (status(413), "it answers 413"),
    "422": (status(422, '{"detail": [{"msg": "no"}]}'), "it answers 422"),
    "null": (message(content=None), "it is empty"),
    "only reasoning": (message(content=None, reasoning_content="They left."), "it is empty"),
    "refusal field": (
        message(content=None, refusal="I'm sorry, I can't do that."),
        "it is a remark instead of a translation",
    ),
    "empty": ("", "it is empty"),
    "spaces": (" \n\t ", "it is empty"),
    "no words": ("...", "it has no words"),
    "lines": (f"{TARGETS[1]}\n{TARGETS[2]}", "it has 2 lines instead of one"),
    "line separator": (f"{TARGETS[1]}\u2028{TARGETS[2]}", "it has 2 lines instead of one"),
    "control characters": (f"{TARGETS[1]}\x00\x1b[2J", "it has control or broken characters"),
    "lone surrogates": (f"{TARGETS[1]} \ud83d", "it has control or broken characters"),
    "replacement characters": (f"{TARGETS[1]} \ufffd", "it has control or broken characters"),
    "unclosed thinking": (f"<think>\nThey left. {TARGETS[1]}", "it has thoughts in place of a translation"),
    "thinking alone": ("<think>They left.</think>", "it is empty"),
    "marks of a prompt": (f"{TARGETS[1]}<|im_end|>", "it has marks of a prompt"),
    "other language": (
        "Alle Schiffe haben ihn in der Nacht verlassen, und das war nicht gut für die Stadt.",
        r"it is in another language \(de\)",
    ),
    "source and translation": (f"{SOURCES[1]} {TARGETS[1]}", "it repeats the sentence"),
    "prompt": (f"Translate into French: {SOURCES[1]}", "it repeats the sentence"),
    "twenty times too long": (LONG, "it is much longer than the sentence"),
    "refusal": ("I'm sorry, but I can't help with that.", "it is a remark instead of a translation"),
    "cut": (lambda handler: handler.say("Toutes les", {}, "length"), "the answer was cut off"),
    "filtered": (lambda handler: handler.say("Toutes les", {}, "content_filter"), "the answer was cut off"),
    "stream that is cut": (
        stream("Toutes les", {"choices": [{"delta": {}, "finish_reason": "length"}]}),
        "the answer was cut off",
    ),
}
half = len(TARGETS[1]) // 2
PIECES = TARGETS[1][:half], TARGETS[1][half:]
ANSWER = {"choices": [{"message": {"content": TARGETS[1]}, "logprobs": [1]}]}
FINE = {
    "parts": message(content=[{"type": "text", "text": text} for text in PIECES]),
    "several choices": says({"choices": [{"message": {"content": text}} for text in (TARGETS[1], "autre", "")]}),
    "thinking": THINKING,
    "end of thinking": THINKING.partition("\n")[2],
    "thinking in brackets": f"[THINK]They left.[/THINK]{TARGETS[1]}",
    "code fence": f"```text\n{TARGETS[1]}\n```",
    "quotation marks": f"« {TARGETS[1]} »",
    "straight quotation marks": f'"{TARGETS[1]}"',
    "spaces around": f"\n  {TARGETS[1]} \n\n",
    "usage without sense": says(ANSWER | {"usage": [10**400], "error": None}),
    "huge usage": says(ANSWER | {"usage": {"prompt_tokens": 10**400, "completion_tokens": -1}}),
    "infinite usage": says(ANSWER | {"usage": {"prompt_tokens": 1e999, "completion_tokens": "7"}}),
    "body without length": bytes_of(OK + b"\r\n" + GOOD),
    "other type": bytes_of(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n" + GOOD),
    "stream": stream(*PIECES, STOP, {"choices": [], "usage": None}),
    "stream with comments": stream(b": keep-alive\n\n", b"event: x\ndata:\n\n", TARGETS[1], b": ping\n\n", STOP),
    "stream of several choices": stream(
        *({"choices": [{"index": n, "delta": {"content": text}}]} for text in PIECES for n in (1, 0)),
        {"choices": [{"index": 1, "finish_reason": "length"}]},
        STOP,
    ),
    "stream with CRLF": stream(*PIECES, STOP, ending="\r\n"),
    "stream with null errors": stream({"error": None, "choices": [{"delta": {"content": TARGETS[1]}}]}, STOP),
    "stream without DONE": stream(TARGETS[1], STOP, end=""),
    "stream in single bytes": bytes_of(
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n",
        *[bytes([byte]) for byte in f"data: {json.dumps(STOP | {'choices': [{'text': TARGETS[1]}]})}\n\n".encode()],
        b"data: [DONE]\n\n",
    ),
}
AWAY = (
    *("502 with a web page", "503 with a reason", "429 for seconds", "429 until a date", "429 without sense"),
    *("cut in a chunk", "cut between chunks", "chunks without sense", "reset", "closed", "no HTTP", "endless headers"),
)
ENDS = {name: NO_SERVER[name] for name in AWAY} | NOT_FOR_US
FAILS = {name: each for name, each in NO_SERVER.items() if name not in AWAY}


def profile(tmp_path, fake, **settings):
    """Write a profile of a server that is asked three times."""
    return write_profile(tmp_path / "p.yaml", fake.url, **{"limits": {"attempts": 3, "seconds": 30.0}} | settings)


@pytest.mark.parametrize("name", ENDS)
def test_a_server_that_stays_away_ends_the_work_with_one_sentence(name, tmp_path):
    answer, reason = ENDS[name]
    with serving(misbehaving(answer)) as fake:
        outcome = translate(profile(tmp_path, fake))
    assert outcome.targets == [TARGETS[0], None, None]
    assert not outcome.errors
    assert outcome.end.startswith("p")
    assert re.search(reason, outcome.end), outcome.end
    assert len(outcome.end) < 300 and "Errno" not in outcome.end
    assert len(fake.requests) == (2 if name in NOT_FOR_US else 4)


@pytest.mark.parametrize("name", FAILS)
def test_a_server_that_fails_at_a_sentence_goes_on_with_the_next(name, tmp_path):
    answer, reason = FAILS[name]
    with serving(misbehaving(answer)) as fake:
        outcome = translate(profile(tmp_path, fake))
    assert outcome.targets == [TARGETS[0], None, TARGETS[2]]
    assert re.search(reason, outcome.errors[1]), outcome.errors
    assert len(outcome.errors[1]) < 400 and "Errno" not in outcome.errors[1]
    assert len(fake.requests) == 11  # three questions, each three times


def test_a_server_that_fails_at_two_sentences_in_succession_ends_the_work(tmp_path):
    with serving(lambda text, number: translate_words(text) if number == 1 else status(500)) as fake:
        outcome = translate(profile(tmp_path, fake))
    assert outcome.targets == [TARGETS[0], None, None] and list(outcome.errors) == [1]
    assert "fails again and again: it answers 500" in outcome.end
    assert len(fake.requests) == 19


@pytest.mark.parametrize("name", NO_SERVER)
def test_a_server_that_comes_back_is_asked_again(name, tmp_path):
    with serving(misbehaving(NO_SERVER[name][0], times=2)) as fake:
        assert translate(profile(tmp_path, fake)) == (TARGETS, {}, "", [])
    assert len(fake.requests) == 5


@pytest.mark.full
@pytest.mark.parametrize("name", TOO_SLOW)
def test_an_answer_that_takes_too_long_ends_after_the_time_of_a_request(name, tmp_path):
    answer, reason = TOO_SLOW[name]
    with serving(misbehaving(answer, times=2)) as fake:
        outcome = translate(profile(tmp_path, fake, limits={**SLOW, "seconds": 0.5}))
        assert reason in outcome.end or (name == "error in drops" and outcome.targets == TARGETS)  # asked otherwise
        assert translate(profile(tmp_path, fake)).targets == TARGETS


@pytest.mark.full
def test_an_answer_after_a_slow_one_is_taken(tmp_path):
    with serving(misbehaving(TOO_SLOW["body in drops"][0], times=1)) as fake:
        assert translate(profile(tmp_path, fake, limits=SLOW)) == (TARGETS, {}, "", [])


@pytest.mark.parametrize("name", BAD_ANSWERS)
def test_a_sentence_without_a_right_answer_is_an_error_and_its_neighbours_stay(name, tmp_path):
    answer, reason = BAD_ANSWERS[name]
    with serving(misbehaving(answer)) as fake:
        outcome = translate(profile(tmp_path, fake))
    assert outcome.targets == [TARGETS[0], None, TARGETS[2]]
    assert outcome.end == ""
    assert list(outcome.errors) == [1]
    assert re.fullmatch(f"p gives no translation of it in [123] requests: {reason}.*", outcome.errors[1])
    assert 4 <= len(fake.requests) <= 5


@pytest.mark.parametrize("name", BAD_ANSWERS)
def test_a_bad_answer_is_asked_for_again_alone(name, tmp_path):
    with serving(misbehaving(BAD_ANSWERS[name][0], times=1)) as fake:
        assert translate(profile(tmp_path, fake)) == (TARGETS, {}, "", [])
    assert len(fake.requests) == 4
    first, second = fake.requests[1:3]
    assert len(first["messages"]) == 4 and len(second["messages"]) == 2
    assert "Your last answer was wrong" in second["messages"][-1]["content"]
    assert second["seed"] == first["seed"] + 1


@pytest.mark.parametrize("name", FINE)
def test_what_stands_around_a_translation_is_taken_off(name, tmp_path):
    with serving(misbehaving(FINE[name])) as fake:
        assert translate(profile(tmp_path, fake)) == (TARGETS, {}, "", [])
    assert len(fake.requests) == 3


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
def test_no_text_goes_to_another_address(code, tmp_path):
    with serving() as other:
        for url in (f"{other.url}/chat/completions", "/elsewhere", ""):
            with serving(misbehaving(status(code, Location=url))) as fake:
                outcome = translate(profile(tmp_path, fake))
            assert outcome.targets == [TARGETS[0], None, None]
            assert f"p: it sends the request on to another address ({url})" in outcome.end
            assert fake.paths == [CHAT] * 2
    assert not other.requests


def test_a_port_where_nobody_listens(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as closed:
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
    model = write_profile(tmp_path / "p.yaml", url, limits={"attempts": 2})
    outcome = translate(model)
    assert outcome.targets == [None] * 3
    assert re.search("p does not answer after 2 attempts: it cannot be reached .*refused", outcome.end)


@pytest.mark.parametrize(
    ("value", "least", "most"),
    [("7", 7, 14), ("1e9", 60, 60), ("-3", 0, 2), ("nan", 0, 2), ("soon", 0, 2), ("date", 8, 20), ("", 0, 2)],
)
def test_a_server_says_when_it_is_asked_again(value, least, most, tmp_path, monkeypatch):
    class Cancelled(Event):
        def wait(self, timeout=None):
            waits.append(timeout)
            return super().is_set()

    waits = []
    monkeypatch.setattr(http_client, "_FIRST_WAIT", 0.5)
    monkeypatch.setattr(http_client, "_LONGEST_WAIT", 60.0)
    value = formatdate(time.time() + 10, usegmt=True) if value == "date" else value
    with serving(misbehaving(status(429, Retry_After=value), times=1)) as fake:
        client = HttpClient(EndpointTranslator(profile(tmp_path, fake)).profile)
        messages = [{"role": "user", "content": SOURCES[1]}]
        assert client.post(CHAT, {"messages": messages}, Cancelled()).text == TARGETS[1]
    assert len(waits) == 1 and least <= waits[0] <= most


GUARDED = "Send {name} to https://example.org/a?b=1 before 10:30 on 4 May, and wait for an answer."


@pytest.mark.parametrize("lost", ["{name}", "https://example.org/a?b=1", "10:30"])
def test_an_answer_without_protected_text_is_asked_for_again_and_reported(lost, tmp_path):
    def answer(times):
        seen = []

        def choose(text, number):
            seen.append(number)
            right = translate_words(text)
            return right.replace(lost, "") if len(seen) <= times else right

        return choose

    for times, missing in ((1, []), (9, [0])):
        with serving(answer(times)) as fake:
            outcome = translate(profile(tmp_path, fake), [GUARDED])
        assert not outcome.errors and outcome.missing == missing
        assert (lost in outcome.targets[0]) is (times == 1)
        assert len(fake.requests) == (2 if times == 1 else 3)
        assert f"it lacks or adds {lost}" in fake.requests[1]["messages"][-1]["content"]


def test_a_sentence_that_stays_as_it_is_is_reported(tmp_path):
    for times, target, missing in ((1, TARGETS[1], []), (9, SOURCES[1], [1])):
        with serving(misbehaving(SOURCES[1], times)) as fake:
            outcome = translate(profile(tmp_path, fake))
        assert outcome == ([TARGETS[0], target, TARGETS[2]], {}, "", missing)
        assert "it lacks or adds a translation" in fake.requests[2]["messages"][-1]["content"]
        assert len(fake.requests) == (4 if times == 1 else 5)


def test_a_number_that_is_added_is_asked_for_again(tmp_path):
    with serving(lambda text, number: f"La maison de 1901 est vieille{', dans 1955' * (number == 1)}.") as fake:
        outcome = translate(profile(tmp_path, fake), ["The house of 1901 is old."])
    assert outcome == (["La maison de 1901 est vieille."], {}, "", [])
    assert "it lacks or adds 1955" in fake.requests[1]["messages"][-1]["content"]


def test_the_better_of_two_bad_answers_is_kept(tmp_path):
    answers = ["Envoie rien du tout avant 10:30 le 4 mai.", "Envoie {name} rien du tout avant 10:30 le 4 mai.", ""]
    with serving(lambda text, number: answers[min(number, 3) - 1]) as fake:
        outcome = translate(profile(tmp_path, fake), [GUARDED])
    assert outcome == ([answers[1]], {}, "", [0])


@pytest.mark.parametrize(
    ("path", "value", "reason"),
    [
        ("deepl", {"translations": [{"text": "Un"}, {"text": "Deux"}]}, "it gives 2 translations for one sentence"),
        ("deepl", {"translations": []}, "its answer has no translation"),
        ("deepl", {"translations": [{"text": None}]}, "its answer has no translation"),
        ("docmt", {"sentences": [{"target": "Un"}, {"target": "Deux"}]}, "it gives 2 translations for one sentence"),
        ("docmt", {"sentences": {}}, "its answer has no translation"),
        ("libretranslate", {"translatedText": ["Un"]}, "its answer has no translation"),
        ("libretranslate", {"error": "Invalid request"}, r"it reports an error \(Invalid request\)"),
    ],
)
def test_answers_of_other_services(path, value, reason, tmp_path):
    with serving(misbehaving(says(value))) as fake:
        settings = {"profile": path, "model": ""} | ({"key_variable": ""} if path == "deepl" else {})
        outcome = translate(profile(tmp_path, fake, **settings))
    assert outcome.targets == [TARGETS[0], None, TARGETS[2]]
    assert re.search(reason, outcome.errors[1]), outcome.errors


@pytest.mark.parametrize(
    ("source", "answer", "languages"),
    [
        ("Je suis désolé, je ne peux pas vous aider.", "I'm sorry, I can't help you.", ("fr", "en")),
        ("He said: « I'm sorry, as an AI I can't help. »", "Il a dit : « I'm sorry, as an AI… »", ("en", "fr")),
        ("<think> opens the thoughts of a model.", "<think> ouvre les pensées d'un modèle.", ("en", "fr")),
        ("Je pense, donc je suis, dans le monde.", "Je pense, donc je suis, dans le monde.", ("en", "fr")),
        ('"It is late."', '"Il est tard."', ("en", "fr")),
        ("天高皇帝远，" * 10, "The sky is high and the emperor is far away, as they say. " * 10, ("zh", "en")),
        ("The water of life is cold.", "'L'eau de vie est froide.'", ("en", "fr")),
        ("One.", "1", ("en", "fr")),
    ],
)
def test_right_answers_are_not_refused(source, answer, languages, tmp_path):
    with serving(lambda text, number: answer) as fake:
        codes = dict(zip(("source_language", "target_language"), languages, strict=True))
        outcome = translate(profile(tmp_path, fake, prompt={"turn": "{text}"}, **codes), [source])
    assert outcome.errors == {} and len(fake.requests) == 1
    assert outcome.targets == [answer.strip().strip("'" if "'L" in answer else " ")]


@pytest.mark.full
@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes a certificate")
def test_certificates_are_checked(tmp_path, monkeypatch):
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    names = ("-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1")
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", certificate, *names]
    subprocess.run(command, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with serving(misbehaving(TOO_SLOW["body in drops"][0], times=1), context) as fake:
        outcome = translate(profile(tmp_path, fake))
        assert outcome.targets == [None] * 3 and not fake.requests
        assert re.search("cannot be reached .*certificate", outcome.end, re.IGNORECASE)
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        assert translate(profile(tmp_path, fake, limits=SLOW)) == (TARGETS, {}, "", [])


@pytest.mark.parametrize(
    ("source", "answer", "languages"),
    [
        ("Il travaille comme ingénieur IA.", "He works as an AI engineer.", ("fr", "en")),
        ("En tant qu'IA, je ne peux pas vous aider.", "As an AI, I cannot help you.", ("fr", "en")),
        ("Voici la traduction du contrat.", "Here is the translation of the contract.", ("fr", "en")),
        ("Photo: John Smith, Mary Jones, Peter Brown", "Photo: John Smith, Mary Jones, Peter Brown.", ("en", "fr")),
        ("Bread & water and/or wine / beer.", "Pain et eau et/ou vin ou bière.", ("en", "fr")),
        ("It was built in the 19th century.", "Il fut construit au XIXe siècle.", ("en", "fr")),
        ("It costs 10,000 dollars.", "这要一万美元。", ("en", "zh")),
        ("About 1.5 billion people live there.", "约15亿人住在那里。", ("en", "zh")),
        ("人民大会堂和国家博物馆", "人民大会堂和国家博物馆", ("zh", "ja")),
        (
            "Er rief »What is it that you and the others would have?« laut.",
            "Il cria « What is it that you and the others would have? »",
            ("de", "fr"),
        ),
    ],
)
def test_right_answers_that_look_wrong_are_taken_at_once(source, answer, languages, tmp_path):
    with serving(lambda text, number: answer) as fake:
        codes = dict(zip(("source_language", "target_language"), languages, strict=True))
        outcome = translate(profile(tmp_path, fake, prompt={"turn": "{text}"}, **codes), [source])
    assert outcome == ([answer], {}, "", []) and len(fake.requests) == 1


@pytest.mark.parametrize(
    ("source", "answer", "languages", "reason"),
    [
        ("天高皇帝远，海阔凭鱼跃。", "翻译：天高皇帝远，海阔凭鱼跃。", ("zh", "en"), "it repeats the sentence"),
        ("Elle est là.", "Here is the translation: She is there.", ("fr", "en"), "it is a remark"),
        ("Elle est là.", "As an AI language model, I cannot translate it.", ("fr", "en"), "it is a remark"),
    ],
)
def test_wrong_answers_of_other_languages_are_refused(source, answer, languages, reason, tmp_path):
    with serving(lambda text, number: answer) as fake:
        codes = dict(zip(("source_language", "target_language"), languages, strict=True))
        outcome = translate(profile(tmp_path, fake, **codes), [source])
    assert outcome.targets == [None] and reason in outcome.errors[0]


def test_a_server_that_takes_no_request_ends_the_work(tmp_path):
    answer = status(400, '{"error": {"message": "Unsupported parameter: max_tokens"}}')
    with serving(lambda text, number: answer) as fake:
        outcome = translate(profile(tmp_path, fake), SOURCES * 50)
    assert len(fake.requests) == 12 and 3 <= len(outcome.errors) <= 5
    assert outcome.end.startswith("p takes no request: it answers 400, Unsupported parameter: max_tokens: see what")


@pytest.mark.parametrize(
    "source", ["天高皇帝远，海阔凭鱼跃。", "これは新しい本です。", "هذا كتاب جديد عن تاريخ المدينة"]
)
def test_copies_in_scripts_without_capitals_are_reported(source, tmp_path):
    with serving(lambda text, number: source) as fake:
        codes = {"source_language": {"天": "zh", "こ": "ja", "ه": "ar"}[source[0]], "target_language": "en"}
        outcome = translate(profile(tmp_path, fake, **codes), [source])
    assert outcome == ([source], {}, "", [0]) and len(fake.requests) == 3
