"""The interfaces of LibreTranslate and DeepL: values, lists, markup, languages, documents, refusals."""

import re

import pytest

pytest.importorskip("starlette")

from service_fixtures import ServiceEngine, expect, running_service

from docmt.serve.access_keys import AccessKeys

pytestmark = pytest.mark.usefixtures("files_here")

FRENCH = "Le chat est dans la maison, et il ne veut pas que le chien soit avec lui."
ENGLISH = "The cat is in the house, and it does not want that the dog is with it."


@pytest.fixture
def client(tmp_path):
    with running_service(tmp_path / "data") as client:
        yield client


@pytest.mark.parametrize("kind", ["json", "data", "params"])
def test_libretranslate_takes_json_forms_and_queries(client, kind):
    values = {"q": "One cat. Two dogs.", "source": "en", "target": "fr", "format": "text", "api_key": ""}
    answer = client.post("/translate", **{kind: values})
    assert answer.json() == {"translatedText": " ".join(expect("One cat.", "Two dogs."))}


def test_texts_of_a_list_are_independent_and_submitted_together(client):
    values = {"q": ["One cat.", "", "Two dogs."], "source": "en", "target": "fr"}
    assert client.post("/translate", json=values).json() == {
        "translatedText": [*expect("One cat."), "", *expect("Two dogs.")]
    }
    assert [document.sentences for document, *_ in client.engine.requests] == [("One cat.",), ("Two dogs.",)]
    answer = client.post("/translate", json=values, headers={"x-docmt-document": "1"})
    first, second = expect("One cat.", "Two dogs.")
    assert answer.json()["translatedText"] == [first, "", second]
    assert len(client.engine.requests) == 3


def test_a_list_of_one_is_answered_as_a_list(client):
    values = {"q": ["One cat."], "source": "en", "target": "fr", "alternatives": 2}
    first = expect("One cat.")[0]
    answer = {"translatedText": [first], "alternatives": [[f"{first}1", f"{first}2"]]}
    assert client.post("/translate", json=values).json() == answer
    values["q"] = "One cat."
    assert client.post("/translate", json=values).json() == {name: value[0] for name, value in answer.items()}


def test_markup_stays(client):
    text = '<p id="a">One <b>cat</b> &amp; more.</p><script>x = 1</script>\n<p>Two dogs.'
    answer = client.post("/translate", json={"q": text, "source": "en", "target": "fr", "format": "html"})
    assert answer.json()["translatedText"] == (
        '<p id="a">«One <b>cat</b> &amp; more.» ()</p><script>x = 1</script>\n<p>«Two dogs.» (One)'
    )
    assert client.engine.requests[0][3]["align"](0) and not client.engine.requests[0][3]["align"](1)


def test_the_source_is_detected_among_the_languages_of_models(client):
    def translate(q, target):
        return client.post("/translate", json={"q": q, "source": "auto", "target": target}).json()

    answer = translate([ENGLISH, "Hello"], "fr")
    assert [each["language"] for each in answer["detectedLanguage"]] == ["en", "en"]
    assert answer["detectedLanguage"][0]["confidence"] > 60 and answer["detectedLanguage"][1]["confidence"] == 0
    assert answer["translatedText"][1] == "«Hello» ()"
    assert translate(FRENCH, "en")["translatedText"].startswith("«Le chat")
    assert translate(ENGLISH, "en")["translatedText"] == ENGLISH  # it is English already
    assert client.post("/detect", data={"q": FRENCH}).json()[0]["language"] == "fr-FR"  # as in /languages
    assert (
        client.post("/detect", json={"q": "Der Hund ist nicht in dem Haus und die Katze"}).json()[0]["language"] == "de"
    )


GERMAN = "Der Hund ist nicht in dem Haus und die Katze"


@pytest.mark.parametrize(
    ("path", "values"),
    [
        ("/translate", {"q": GERMAN, "source": "auto", "target": "fr"}),
        ("/translate", {"q": f"<p><b>{GERMAN}</b></p>", "source": "auto", "target": "fr", "format": "html"}),
        ("/v2/translate", {"text": [GERMAN], "target_lang": "FR"}),
        ("/v1/translate", {"text": GERMAN, "target": "fr"}),
    ],
)
def test_a_text_in_a_language_of_no_model_is_refused(client, path, values):
    answer = client.post(path, json=values)
    assert answer.status_code == 400
    assert "in German (de), but the models translate from English (en)" in answer.text
    assert client.engine.requests == []
    values |= {"/v1/translate": {"source": "en"}, "/v2/translate": {"source_lang": "EN"}}.get(path, {"source": "en"})
    assert client.post(path, json=values).status_code == 200


@pytest.mark.parametrize(
    "text",
    [
        "Hallo Welt",
        "12.5",
        "El Camino de la Costa",
        "<a>A</a> <i>B</i> <a>C</a> <o>D</o> <e>E</e>",
        f"{ENGLISH} {GERMAN}",
    ],
)
def test_a_text_without_clear_evidence_is_translated(client, text):
    answer = client.post("/translate", json={"q": text, "source": "auto", "target": "fr", "format": "html"})
    assert answer.status_code == 200


def test_the_model_that_a_caller_names_translates_any_text(client):
    answer = client.post("/v1/translate", json={"text": GERMAN, "model": "fake"})
    assert answer.json()["source_language"] == "en"


def test_languages_and_settings_of_libretranslate(client):
    answer = client.request("GET", "/languages", content=b"ignored=1")
    assert answer.json() == [
        {"code": "en", "name": "English", "targets": ["fr"]},
        {"code": "fr-FR", "name": "French", "targets": ["en"]},
        {"code": "fr", "name": "French", "targets": []},
    ]
    settings = client.get("/frontend/settings").json()
    assert settings["keyRequired"] is False and ".docx" in settings["supportedFilesFormat"]


def test_a_file_of_libretranslate_is_translated_and_downloaded(client):
    files = {"file": ("page.html", b"<p>One cat.")}
    url = client.post("/translate_file", files=files, data={"source": "en", "target": "fr"}).json()["translatedFileUrl"]
    answer = client.get(url)
    assert answer.text == "<p>«One cat.» ()" and answer.headers["content-disposition"].startswith("attachment")
    assert client.get("/download_file/none/page.html").status_code == 404
    assert client.post("/translate_file", files={"file": ("a.docx", b"no zip")}).status_code == 400
    broken = client.post("/translate_file", files={"file": ("a.docx", b"no zip")}, data={"target": "fr"})
    assert broken.status_code == 422


@pytest.mark.parametrize("name", ["a b.txt", "?.txt", "a#b.txt", "É ü.txt", ".."])
def test_the_url_of_a_file_has_no_characters_that_urls_have_not(client, name):
    files = {"file": (name, b"One cat.")}
    url = client.post("/translate_file", files=files, data={"target": "fr"}).json()["translatedFileUrl"]
    assert re.fullmatch(r"http://localhost:5000/download_file/[\w-]+/[\w.~%-]+", url, re.ASCII)
    assert client.get(url).text == "«One cat.» ()"


@pytest.mark.parametrize(
    ("values", "code"),
    [
        ({"source": "en", "target": "fr"}, 400),
        ({"q": "x", "source": "en"}, 400),
        ({"q": "x", "source": "en", "target": "de"}, 400),
        ({"q": "x", "source": "en", "target": "fr", "format": "pdf"}, 400),
        ({"q": "x", "source": "en", "target": "fr", "alternatives": 10_000}, 400),
        ({"q": ["x"] * 2000, "source": "en", "target": "fr"}, 413),
    ],
)
def test_what_libretranslate_refuses(client, values, code):
    answer = client.post("/translate", json=values)
    assert answer.status_code == code and set(answer.json()) == {"error"}


def test_keys_of_both_interfaces(tmp_path):
    keys = AccessKeys(tmp_path)
    secret = keys.create("one")[0]
    with running_service(tmp_path, keys=keys) as client:
        values = {"q": "One cat.", "source": "en", "target": "fr"}
        assert client.post("/translate", json=values).status_code == 403
        assert client.post("/translate", json={**values, "api_key": secret}).status_code == 200
        values = {"text": ["One cat."], "target_lang": "FR"}
        answer = client.post("/v2/translate", json=values)
        assert answer.status_code == 403 and set(answer.json()) == {"message"}
        headers = {"authorization": f"DeepL-Auth-Key {secret}"}
        assert client.post("/v2/translate", json=values, headers=headers).status_code == 200
        assert client.get("/v2/usage", headers=headers).json()["character_count"] == 16
        files = {"file": ("a.txt", b"One cat.")}
        answer = client.post("/translate_file", files=files, data={"api_key": secret, "target": "fr"})
        assert client.get(answer.json()["translatedFileUrl"]).status_code == 200  # without a key
    with running_service(tmp_path, keys=keys) as client:
        assert client.get("/v2/usage", headers=headers).json()["character_count"] == 24  # with those before the restart


def test_deepl_takes_lists_with_context(client):
    values = {"text": ["One cat. Two dogs.", "Three birds."], "target_lang": "FR", "context": "A cow."}
    answer = client.post("/v2/translate", json=values).json()["translations"]
    assert answer == [
        {
            "detected_source_language": "EN",
            "text": " ".join(expect("One cat.", "Two dogs.", context=["A cow."])),
            "billed_characters": 18,
        },
        {
            "detected_source_language": "EN",
            "text": expect("Three birds.", context=["A cow."])[0],
            "billed_characters": 12,
        },
    ]
    form = {"text": ["One cat.", "Two dogs."], "target_lang": "en-GB", "source_lang": "FR"}
    answer = client.post("/v2/translate", data=form).json()["translations"]
    assert [each["text"] for each in answer] == [*expect("One cat."), *expect("Two dogs.")]
    assert answer[0]["detected_source_language"] == "FR"


def test_context_counts_for_each_text_that_is_translated_with_it(tmp_path):
    with running_service(tmp_path, max_characters=100) as client:
        values = {"text": ["One."] * 10, "target_lang": "FR", "context": "A cow is here."}
        assert client.post("/v2/translate", json=values).status_code == 413
        assert client.post("/v2/translate", json={**values, "text": ["One."] * 5}).status_code == 200


@pytest.mark.parametrize(
    ("split", "sentences"),
    [
        ("1", ["One", "cat.", "Two"]),
        ("0", ["One cat. Two dogs."]),
        ("nonewlines", ["One cat.", "Two dogs."]),
        (0, None),
    ],
)
def test_deepl_says_what_a_sentence_is(client, split, sentences):
    text = {"1": "One\ncat. Two", "nonewlines": "One\ncat. Two\ndogs."}.get(split, " One cat.\nTwo dogs. ")
    values = {"text": [text], "target_lang": "FR", "split_sentences": split}
    assert client.post("/v2/translate", json=values).status_code == 200
    assert list(client.engine.requests[0][0].sentences) == (sentences or ["One cat. Two dogs."])


def test_deepl_keeps_tags(client):
    values = {"text": ["One <x id='1'/>big <b>cat</b>."], "target_lang": "FR", "tag_handling": "xml"}
    text = client.post("/v2/translate", json=values).json()["translations"][0]["text"]
    assert text == "«One <x id='1'/>big <b>cat</b>.» ()"


@pytest.mark.parametrize(
    ("rules", "sentences"),
    [
        ({}, ["One cat.", "Two", "red dogs."]),
        ({"splitting_tags": ["g"]}, ["One", "cat", "Two", "red dogs."]),
        ({"splitting_tags": "g, x", "outline_detection": "1"}, ["One", "cat", "Two", "red dogs."]),
        ({"non_splitting_tags": ["y,z"]}, ["One cat.", "Two red dogs."]),
        ({"outline_detection": False}, ["One cat.", "Two red dogs."]),
        ({"outline_detection": "0", "splitting_tags": ["z"]}, ["One cat.", "Two", "red dogs."]),
    ],
)
def test_deepl_says_which_tags_end_a_sentence(client, rules, sentences):
    text = "<d><x>One <g>cat</g>.</x><x><y>Two</y> <z>red dogs.</z></x></d>"
    values = {"text": [text], "source_lang": "EN", "target_lang": "FR", "tag_handling": "xml", **rules}
    assert client.post("/v2/translate", json=values).status_code == 200
    assert list(client.engine.requests[0][0].sentences) == sentences


@pytest.mark.parametrize(
    "extra",
    [
        {"formality": "more"},
        {"tag_handling": "html", "splitting_tags": ["x"]},
        {"tag_handling": "html", "outline_detection": False},
        {"non_splitting_tags": "x"},
        {"tag_handling": "xml", "splitting_tags": 7},
        {"tag_handling": "xml", "outline_detection": "maybe"},
        {"glossary_id": "x"},
        {"glossary_ids": list("uvwxyz")},
        {"glossary_ids": ["x"], "glossary_id": "x", "source_lang": "EN"},
        {"style_id": "x"},
        {"custom_instructions": ["be kind"]},
        {"translation_memory_threshold": 101},
        {"ignore_tags": ["x"]},
        {"split_sentences": 7},
        {"tag_handling": "docx"},
        {"target_lang": "DE"},
        {"target_lang": ""},
        {"text": {}},
    ],
)
def test_what_deepl_refuses(client, extra):
    answer = client.post("/v2/translate", json={"text": ["x"], "target_lang": "FR", **extra})
    assert answer.status_code == 400 and set(answer.json()) == {"message"}


def test_deepl_grants_what_is_only_preferred(client):
    for word in ("default", "prefer_more", "PREFER_LESS"):
        values = {"text": "x", "target_lang": "FR", "formality": word, "preserve_formatting": True}
        assert client.post("/v2/translate", json=values).status_code == 200


def test_languages_usage_and_glossaries_of_deepl(client):
    assert [each["language"] for each in client.get("/v2/languages").json()] == ["EN", "FR"]
    targets = client.get("/v2/languages?type=target").json()
    assert [each["language"] for each in targets] == ["FR", "EN-GB", "EN-US"]
    assert targets[1]["name"] == "English (British)" and targets[1]["supports_formality"] is False
    assert client.request("GET", "/v2/languages", data={"type": "target"}).json() == targets
    assert client.get("/v2/glossaries").json() == client.get("/v3/glossaries").json() == {"glossaries": []}
    pairs = client.get("/v2/glossary-language-pairs").json()["supported_languages"]
    assert pairs == [{"source_lang": "en", "target_lang": "fr"}, {"source_lang": "fr", "target_lang": "en"}]
    assert client.post("/v3/glossaries", json={}).status_code == 400
    assert client.get("/v2/usage").json()["character_count"] == 0


def test_a_document_of_deepl(tmp_path):
    with running_service(tmp_path, ServiceEngine(hold=0)) as client:
        files, form = {"file": ("a.txt", b"One cat. Two dogs.")}, {"target_lang": "FR"}
        assert client.post("/v2/document", files=files, data={**form, "output_format": "pdf"}).status_code == 400
        handle = client.post("/v2/document", files=files, data=form).json()
        path, key = f"/v2/document/{handle['document_id']}", {"document_key": handle["document_key"]}
        assert client.post(path, json=key).json()["status"] in ("queued", "translating")
        assert client.post(f"{path}/result", json=key).status_code == 503
        for wrong in ("x", "É", ""):
            assert client.post(path, json={"document_key": wrong}).status_code == 404
        client.engine.hold = 100
        client.get(f"/v1/documents/{handle['document_id']}/events")
        assert client.post(path, json=key).json() == {
            "document_id": handle["document_id"],
            "status": "done",
            "billed_characters": 17,
        }
        answer = client.post(f"{path}/result", data=key)
        assert answer.text == " ".join(expect("One cat.", "Two dogs."))
        assert answer.headers["content-disposition"] == 'attachment; filename="a.fr.txt"'
