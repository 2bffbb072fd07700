"""The packages that people use for LibreTranslate and DeepL, unchanged, against a running server."""

import io
import json
import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import docx
import pytest

pytest.importorskip("uvicorn")
pytest.importorskip("httpx")

import httpx
from tiny_model import save_tiny_model
from tiny_service import SEARCH, running_server

import docmt
from docmt.cli.commands.serve import ServeOptions, make_engine, make_server
from docmt.core.errors import DocmtError
from docmt.serve.access_keys import AccessKeys
from docmt.serve.application import open_socket

TEXT = "Anna bought a lamp. It is cheap.\n\nThe house is old."


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    pairs = [("en", "fr"), ("fr", "en"), ("en", "pt")]
    return [save_tiny_model(folder / "-".join(pair), *pair, seed=seed) for seed, pair in enumerate(pairs)]


@pytest.fixture(scope="module")
def translators(models):
    return [docmt.Translator(model, search=SEARCH, device="cpu") for model in models]


@pytest.fixture(scope="module")
def server(models, tmp_path_factory):
    with running_server(*models, data=tmp_path_factory.mktemp("data")) as url:
        yield url


@pytest.fixture(scope="module")
def guarded(models, tmp_path_factory):
    """The URL of a server that asks for keys, and a key."""
    data = tmp_path_factory.mktemp("data")
    keys = AccessKeys(data)
    secret, _ = keys.create("client")
    with running_server(models[0], data=data, keys=keys) as url:
        yield url, secret


def test_libretranslatepy(server, guarded, translators):
    api = pytest.importorskip("libretranslatepy")
    client = api.LibreTranslateAPI(server)
    assert client.translate(TEXT, "en", "fr") == translators[0].translate(TEXT)
    assert client.translate("Où est-il ?", "fr", "en") == translators[1].translate("Où est-il ?")
    assert {each["code"] for each in client.languages()} == {"en", "fr", "pt"}
    assert client.detect("the house and the lamp")[0]["language"] == "en"
    url, key = guarded
    assert api.LibreTranslateAPI(url, key).translate("It is.", "en", "fr") == translators[0].translate("It is.")
    with pytest.raises(api.api.request.HTTPError, match="403"):
        api.LibreTranslateAPI(url, "wrong").translate("It is.", "en", "fr")


def test_deep_translator(server, guarded, translators, tmp_path):
    package = pytest.importorskip("deep_translator")
    client = package.LibreTranslator(source="en", target="fr", custom_url=f"{server}/", api_key="none")
    assert client.translate(TEXT) == translators[0].translate(TEXT)
    texts = ["Anna is here.", "It is cheap & old."]
    assert client.translate_batch(texts) == [translators[0].translate(text) for text in texts]
    (tmp_path / "a.txt").write_text(TEXT)
    assert client.translate_file(str(tmp_path / "a.txt")) == translators[0].translate(TEXT)
    url, _ = guarded
    with pytest.raises(package.exceptions.AuthorizationException):
        package.LibreTranslator(source="en", target="fr", custom_url=f"{url}/", api_key="wrong").translate("It is.")


def test_deepl_texts(server, guarded, translators):
    deepl = pytest.importorskip("deepl")
    client = deepl.Translator("any", server_url=server, send_platform_info=False)
    results = client.translate_text(["It is cheap.", "Anna is here."], source_lang="EN", target_lang="FR")
    assert [each.text for each in results] == [translators[0].translate(t) for t in ("It is cheap.", "Anna is here.")]
    assert [each.billed_characters for each in results] == [12, 13]
    result = client.translate_text("The house and the lamp", target_lang="PT-BR", context="Anna is here.")
    assert result.detected_source_lang == "EN" and result.text
    markup = client.translate_text("It <b>is</b> here.", target_lang="FR", tag_handling="html").text
    assert "<b>" in markup and "</b>" in markup
    whole = client.translate_text("It is. It is old.", target_lang="FR", split_sentences="0", formality="prefer_more")
    assert whole.text and whole.billed_characters == 17
    with pytest.raises(deepl.DeepLException, match="formality"):
        client.translate_text("It is.", target_lang="FR", formality="more")
    with pytest.raises(deepl.DeepLException, match="no model"):
        client.translate_text("It is.", target_lang="DE")
    assert {each.code for each in client.get_source_languages()} == {"EN", "FR"}
    assert {each.code for each in client.get_target_languages()} == {"FR", "EN-GB", "EN-US", "PT-BR", "PT-PT"}
    assert client.get_usage().character.count > 0 and not client.get_usage().any_limit_reached
    assert client.list_glossaries() == []
    url, key = guarded
    assert deepl.Translator(key, server_url=url).translate_text("It is.", target_lang="FR").text
    with pytest.raises(deepl.AuthorizationException):
        deepl.Translator("wrong", server_url=url).translate_text("It is.", target_lang="FR")


@pytest.mark.full
def test_deepl_documents(server, translators, tmp_path):
    deepl = pytest.importorskip("deepl")
    client = deepl.Translator("any", server_url=server, send_platform_info=False)
    document = docx.Document()
    for text in ("Anna is here.", "It is cheap."):
        document.add_paragraph(text)
    document.save(str(tmp_path / "a.docx"))
    handle = client.translate_document_upload((tmp_path / "a.docx").open("rb"), source_lang="EN", target_lang="FR")
    httpx.get(f"{server}/v1/documents/{handle.document_id}/events", timeout=60)
    status = client.translate_document_get_status(handle)
    assert status.done and status.billed_characters >= 25
    output = io.BytesIO()
    client.translate_document_download(handle, output)
    targets = [paragraph.text for paragraph in docx.Document(io.BytesIO(output.getvalue())).paragraphs]
    whole = docmt.Document.from_sentences(["Anna is here.", "It is cheap."])
    assert targets == [each.target for each in translators[0].translate(whole)]
    with pytest.raises(deepl.DeepLException, match="document_key"):
        client.translate_document_get_status(deepl.DocumentHandle(handle.document_id, "wrong"))


@pytest.mark.full
def test_libretranslate_files(server, tmp_path):
    files = {"file": ("a.html", b"<p>It <i>is</i> here.</p>")}
    answer = httpx.post(f"{server}/translate_file", files=files, data={"source": "en", "target": "fr"}, timeout=60)
    result = httpx.get(answer.json()["translatedFileUrl"])
    assert result.text.startswith("<p>") and "<i>" in result.text
    assert result.headers["content-disposition"] == 'attachment; filename="a.fr.html"'


@pytest.mark.skipif(not shutil.which("curl"), reason="curl is not installed")
@pytest.mark.full
def test_commands_of_curl_in_the_guide(server, translators, tmp_path):
    document = docx.Document()
    document.add_paragraph(TEXT.split("\n")[0])
    document.save(str(tmp_path / "report.docx"))
    (tmp_path / "words.csv").write_text("lamp,lampe\n", encoding="utf-8")
    guide = (Path(__file__).parents[2] / "docs" / "serving.md").read_text(encoding="utf-8")
    commands, id = re.findall(r"^curl .*/v1/documents.*$", guide, re.MULTILINE), ""
    assert len(commands) == 6
    for command in commands:
        words = command.replace("127.0.0.1:5000", server.removeprefix("http://")).replace("ID", id).split()
        done = subprocess.run([*words, "--silent"], cwd=tmp_path, capture_output=True, text=True, check=True)
        id = id or json.loads(done.stdout)["id"]
    whole = docmt.Document.from_sentences(["Anna bought a lamp.", "It is cheap."])
    [paragraph] = docx.Document(str(tmp_path / "report.fr.docx")).paragraphs
    assert paragraph.text == " ".join(each.target for each in translators[0].translate(whole))


@pytest.mark.full
def test_many_clients_get_the_answers_that_one_gets(server, translators):
    texts = [f"Anna bought {'the old house ' * (number % 7)}here {number}." for number in range(40)]

    def ask(text):
        answer = httpx.post(f"{server}/translate", json={"q": text, "source": "en", "target": "fr"}, timeout=120)
        return answer.json()["translatedText"]

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(ask, texts))
    assert answers == [translators[0].translate(text) for text in texts]


def test_a_second_server_on_one_directory_says_so(models, tmp_path):
    with running_server(models[0], data=tmp_path):
        options = ServeOptions(models=[str(models[0])])
        server = make_server(options, make_engine(options), tmp_path, None, frozenset())
        with pytest.raises(DocmtError, match="is used"):
            server.serve_forever(open_socket("127.0.0.1", 0))
