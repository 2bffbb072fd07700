"""Profiles: the requests that servers expect, and one sentence for what is wrong in a file."""

import json
import re

import pytest
from fake_server import serving, write_profile

from docmt.core.errors import DocmtError
from docmt.documents import Document
from docmt.engines import EndpointTranslator, read_profile
from docmt.engines.profile import list_profiles

SENTENCES = ["The house is old.", "It has a door."]
TARGETS = ["La maison est vieille.", "Elle a une porte."]
SAMPLING = {"model": "m", "temperature": 0.0, "seed": 1, "max_tokens": 162, "stream": False}


def ask(tmp_path, name, terms=None, **settings):
    """Return the last of the two requests for two sentences, and its path."""
    with serving(lambda text, number: TARGETS["door" in text]) as fake:
        values = {"profile": name, "limits": {"requests": 1}} | settings
        if name == "deepl":
            values["key_variable"] = ""
        translator = EndpointTranslator(write_profile(tmp_path / "p.yaml", fake.url, **values))
        if terms:
            translator = translator.with_terms(terms)
        found = translator.translate(Document.from_sentences(SENTENCES))
        assert [each.target for each in found] == TARGETS
    assert len(fake.requests) == 2
    return fake.requests[-1], fake.paths[-1]


def user(content):
    """A message."""
    return {"role": "user", "content": content}


def test_all_packaged_profiles_are_tested():
    names = {"chat", "hy-mt2", "salamandra", "tower", "translategemma", "seed-x", "libretranslate", "deepl", "docmt"}
    assert names == set(list_profiles())


def test_chat(tmp_path):
    body, path = ask(tmp_path, "chat", {"door": "porte"})
    system, *messages = body.pop("messages")
    assert (path, body) == ("/chat/completions", SAMPLING | {"max_tokens": 128 + 2 * len(SENTENCES[1])})
    assert system["role"] == "system"
    assert system["content"].startswith("You translate a document from English into French. ")
    shown = system["content"].partition("\n\nThe document:\n\n")[2]
    assert shown.split() == " ".join(SENTENCES).split()
    assert messages == [
        user(f"Translate into French:\n{SENTENCES[0]}"),
        {"role": "assistant", "content": TARGETS[0]},
        user(f"Translate into French:\n{SENTENCES[1]}\n\n(Use these words: door = porte)"),
    ]


@pytest.mark.parametrize(
    ("name", "content", "others"),
    [
        (
            "hy-mt2",
            "Translate the following segment into French, without additional explanation.\n\nIt has a door."
            "\n\nReference translations:\ndoor translates to porte",
            {"temperature": 0.7, "top_p": 0.6, "top_k": 20, "repetition_penalty": 1.05},
        ),
        (
            "salamandra",
            "Translate the following text from English into French.\nEnglish: It has a door."
            "\n\n(Use these words: door = porte) \nFrench:",
            {},
        ),
        (
            "tower",
            "Translate the following English source text to French:\nEnglish: It has a door."
            "\n\n(Use these words: door = porte)\nFrench: ",
            {},
        ),
        (
            "translategemma",
            [{"type": "text", "source_lang_code": "en", "target_lang_code": "fr", "text": "It has a door."}],
            {},
        ),
    ],
)
def test_models_of_single_turns(name, content, others, tmp_path):
    body, path = ask(tmp_path, name, {"door": "porte"})
    assert path == "/chat/completions"
    assert body == SAMPLING | {"max_tokens": 156, "messages": [user(content)]} | others


def test_seed_x(tmp_path):
    body, path = ask(tmp_path, "seed-x", {"door": "porte"})
    prompt = "Translate the following English sentence into French:\nIt has a door. <fr>"
    assert (path, body) == ("/completions", SAMPLING | {"max_tokens": 156, "prompt": prompt})


def test_terms_of_other_completions(tmp_path):
    body, _ = ask(
        tmp_path, "seed-x", {"door": "porte"}, prompt={"turn": "{text} =>", "terms": " [{terms}]", "term": "{source}!"}
    )
    assert body["prompt"] == "It has a door. [door!] =>"


def test_libretranslate(tmp_path):
    body, path = ask(tmp_path, "libretranslate")
    assert (path, body) == ("/translate", {"q": SENTENCES[1], "source": "en", "target": "fr", "format": "text"})


@pytest.mark.parametrize(
    ("languages", "codes"), [(("en-GB", "pt-BR"), ("EN", "PT-BR")), (("zh-Hans", "en-us"), ("ZH", "EN-US"))]
)
def test_deepl(languages, codes, tmp_path):
    body, path = ask(
        tmp_path, "deepl", source_language=languages[0], target_language=languages[1], extra={"formality": "more"}
    )
    assert path == "/v2/translate"
    assert body == {
        "text": [SENTENCES[1]],
        "source_lang": codes[0],
        "target_lang": codes[1],
        "context": SENTENCES[0],
        "formality": "more",
    }


def test_docmt(tmp_path):
    body, path = ask(tmp_path, "docmt", model="en-fr")
    assert path == "/v1/translate"
    assert body == {
        "sentences": [SENTENCES[1]],
        "source": "en",
        "target": "fr",
        "context": [SENTENCES[0]],
        "context_targets": [TARGETS[0]],
        "model": "en-fr",
    }


def test_fields_that_a_server_refuses_are_left_out(tmp_path):
    body, _ = ask(tmp_path, "tower", extra={"max_tokens": None, "temperature": None, "max_completion_tokens": 99})
    assert not {"max_tokens", "temperature"} & body.keys() and body["max_completion_tokens"] == 99


def test_texts_may_have_braces(tmp_path):
    with serving(lambda text, number: "Un {text} {document} {0} {.") as fake:
        translator = EndpointTranslator(write_profile(tmp_path / "p.yaml", fake.url))
        source = "A {text} and {document} and {0} and {."
        translator.translate(Document.from_sentences([source]))
    assert fake.requests[0]["messages"][-1]["content"] == f"Translate into French:\n{source}"


def test_fields_of_the_request_have_the_types_of_yaml(tmp_path):
    path = tmp_path / "p.yaml"
    path.write_text(
        "profile: hy-mt2\nurl: http://localhost\nmodel: m\nsource_language: en\ntarget_language: no\n"
        'extra: {stop: ["\\n", "123", a], top_k: 3, min_p: 5.0e-2, flag: true, none: null, inner: {a: "1"}}\n'
    )
    profile = read_profile(f"endpoint:{path}")
    assert profile.target_language == "no"
    assert profile.extra == {
        "top_p": 0.6,
        "top_k": 3,
        "repetition_penalty": 1.05,
        "stop": ["\n", "123", "a"],
        "min_p": 0.05,
        "flag": True,
        "none": None,
        "inner": {"a": "1"},
    }


BASE = "profile: chat\nurl: http://localhost:1/v1\nmodel: m\nsource_language: en\ntarget_language: fr\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "p.yaml is no profile: write `option: value` lines"),
        ("- a\n- b\n", "p.yaml is no profile"),
        ("a: [", "p.yaml, line 1: not valid YAML"),
        (BASE + "modle: x\n", "modle"),
        (BASE + "prompt: {sytem: x}\n", "sytem"),
        (BASE + "limits: {seconds: soon}\n", "limits.seconds"),
        (BASE + "limits: {requests: 0}\n", "limits.requests"),
        (BASE + "limits: 3\n", "limits"),
        (BASE + "limits: {seconds: .nan}\n", "limits.seconds"),
        (BASE + "context: {sentences: 2.5}\n", "context.sentences"),
        (BASE + "temperature: hot\n", "temperature"),
        (BASE + "stream: perhaps\n", "stream"),
        (BASE + "kind: babel\n", "kind.*chat.*completion.*libretranslate"),
        (BASE.replace("chat", "babel"), "profile is 'babel': choose one of chat, deepl, docmt, hy-mt2"),
        (BASE.replace("url: http://localhost:1/v1\n", ""), "url"),
        (BASE.replace("target_language: fr\n", ""), "target_language"),
        (BASE.replace("target_language: fr", "target_language: ''"), "target_language is empty: give the code"),
        (BASE.replace("model: m\n", ""), "model is empty: give the name of the model on the server"),
        (BASE.replace("http://localhost:1/v1", "localhost:1"), "give an address such as http://localhost:11434/v1"),
        (BASE.replace("http://localhost:1/v1", "file:///etc/passwd"), "give an address such as"),
        (BASE.replace("localhost:1/v1", "localhost:99999/v1"), "give an address such as"),
        (BASE.replace("localhost:1/v1", "localhost:port/v1"), "give an address such as"),
        (BASE.replace("localhost:1/v1", "[::1/v1"), "give an address such as"),
        (BASE.replace("localhost:1/v1", "a..b/v1"), "give an address such as"),
        (BASE.replace("localhost:1/v1", "localhost/ü v1"), "give an address such as"),
        (BASE.replace("localhost:1/v1", "me:secret@localhost/v1"), "url has more than host and path.*key_variable"),
        (BASE.replace("localhost:1/v1", "localhost/v1?key=secret"), "url has more than host and path"),
        (BASE + "key: secret\n", "key does not belong in a file: set key_variable"),
        (BASE + "API-Key: secret\n", "API-Key does not belong in a file"),
        (BASE + "extra: {api_key: secret}\n", "api_key does not belong in a file"),
        (BASE + "extra: 3\n", "extra is 3: give fields of the request"),
        (BASE + "extra: {day: 2026-01-02}\n", "extra has a value that JSON does not have: write text in quotes"),
        (BASE + "extra: {day: 2026-13-42}\n", "extra has a value that JSON does not have"),
        (BASE + "extra: {p: .nan}\n", "extra has a value that JSON does not have"),
        (BASE + "prompt: {turn: Translate}\n", "prompt.turn has no place for text: add {text}"),
        (BASE + "prompt: {turn: ''}\n", "prompt.turn has no place for text: add {text}"),
        (BASE + "prompt: {turn: [{type: text, text: x}]}\n", "prompt.turn has no place for text: add {text}"),
        (BASE + "prompt: {terms: 'Use words'}\n", "prompt.terms has no place for terms: add {terms}"),
        (BASE + "prompt: {document: 'Read'}\n", "prompt.document has no place for document: add {document}"),
        (BASE + "kind: completion\n", "prompt.system has no effect with kind completion: leave it out"),
        (BASE.replace("chat", "deepl") + "temperature: 0.5\n", "temperature has no effect with kind deepl"),
        (BASE.replace("chat", "docmt") + "prompt: {system: x}\n", "prompt.system has no effect with kind docmt"),
        (BASE.replace("chat", "libretranslate") + "context: {sentences: 3}\n", "context.sentences has no effect"),
        (BASE.replace("chat", "deepl") + "log_probabilities: true\n", "log_probabilities has no effect"),
        (BASE.replace("chat", "seed-x") + "context: {sentences: 3}\n", "context.sentences has no effect"),
        (BASE.replace("chat", "deepl") + "prices: {input: 3}\n", "prices.input has no effect"),
    ],
)
def test_a_wrong_profile_is_one_sentence(text, message, tmp_path):
    path = tmp_path / "p.yaml"
    path.write_text(text)
    with pytest.raises(DocmtError) as failure:
        read_profile(f"endpoint:{path}")
    assert re.search(message, str(failure.value)), failure.value
    assert "p.yaml" in str(failure.value) and "\n" not in str(failure.value)
    assert "secret" not in str(failure.value)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("endpoint:http://host/v1", "endpoint:http://host/v1 names no profile: write a YAML file with profile: chat"),
        ("endpoint:a.yaml,en-fr", "an ensemble with commas has models of docmt only"),
        ("endpoint:", "endpoint: names no profile: write a YAML file with profile: chat"),
        ("endpoint:nowhere.yaml", "nowhere.yaml"),
        ("endpoint:/", "/"),
        ("endpoint:chat", "endpoint:chat names no profile: write a YAML file with profile: chat, url, source_language"),
    ],
)
def test_a_profile_that_is_no_file(model, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DocmtError, match=re.escape(message)):
        read_profile(model)


@pytest.mark.parametrize("kind", ["deepl", "docmt", "libretranslate"])
def test_a_kind_without_a_profile_has_that_of_its_name(kind, tmp_path):
    path = tmp_path / "p.yaml"
    path.write_text(BASE.replace("profile: chat", f"kind: {kind}"))
    other = tmp_path / "other.yaml"
    other.write_text(BASE.replace("chat", f"{kind}\nname: p"))
    assert read_profile(f"endpoint:{path}") == read_profile(f"endpoint:{other}")


def test_a_profile_is_described_in_json(tmp_path):
    with serving() as fake:
        profile = read_profile(write_profile(tmp_path / "p.yaml", fake.url, extra={"stop": ["\n"]}))
    assert json.loads(json.dumps(profile.describe())) == profile.describe()
