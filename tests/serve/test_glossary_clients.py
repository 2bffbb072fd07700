"""Glossaries and memories of the deepl package, unchanged, against a running server, in the order of its own tests."""

import io

import pytest

pytest.importorskip("uvicorn")
pytest.importorskip("deepl")

import deepl
import httpx
from deepl.api_data import MultilingualGlossaryDictionaryEntries as Dictionary
from tiny_model import save_tiny_model
from tiny_service import running_server

from docmt.decoding import SearchConfig
from docmt.serve.access_keys import AccessKeys

UNKNOWN = ("no id", "96ab91fd-e715-41a1-adeb-5d701f84a483")
ENTRIES = {"house": "Haus", "a lamp": "eine Lampe", "A%=&": "B&=%", "Δぁ": "深", "\U0001faa8": "\U0001fab5"}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """The URL of a server, and two keys."""
    folder = tmp_path_factory.mktemp("server")
    pairs = [("en", "mt"), ("mt", "en")]
    models = [save_tiny_model(folder / "-".join(pair), *pair, seed=seed) for seed, pair in enumerate(pairs)]
    keys = AccessKeys(folder / "data")
    secrets = [keys.create(name)[0] for name in ("one", "other")]
    search = SearchConfig(beam=1, max_length_ratio=1.0, max_length_extra=8.0)
    unit = '<tu><tuv xml:lang="en"><seg>It is old.</seg></tuv><tuv xml:lang="mt"><seg>Es ist alt.</seg></tuv></tu>'
    (folder / "sentences.tmx").write_text(f'<tmx version="1.4"><header srclang="en"/><body>{unit}</body></tmx>')
    memory = str(folder / "sentences.tmx")
    with running_server(*models, data=folder / "data", keys=keys, search=search, memory=[memory]) as url:
        yield url, *secrets


@pytest.fixture
def client(server):
    client = deepl.DeepLClient(server[1], server_url=server[0], send_platform_info=False)
    yield client
    for glossary in client.list_multilingual_glossaries():
        client.delete_multilingual_glossary(glossary)
    client.close()


def test_glossaries_of_one_pair(client):
    assert {(each.source_lang, each.target_lang) for each in client.get_glossary_languages()} >= {("en", "mt")}
    made = client.create_glossary("one", "EN", "MT", ENTRIES)
    assert (made.name, made.source_lang, made.target_lang, made.entry_count) == ("one", "EN", "MT", 5) and made.ready
    found = client.get_glossary(made.glossary_id)
    assert (found.creation_time, found.entry_count) == (made.creation_time, 5)
    table = client.create_glossary_from_csv("table", "EN", "MT", 'lamp,"Lampe, f.",en,mt\nold,"a ""b"""\n')
    assert client.get_glossary_entries(table) == {"lamp": "Lampe, f.", "old": 'a "b"'}
    many = {f"Source-${i}": f"Target-${i}" for i in range(10_000)}
    assert client.get_glossary_entries(client.create_glossary("large", "EN", "MT", many)) == many
    assert client.get_glossary_entries(made) == client.get_glossary_entries(made.glossary_id) == ENTRIES
    assert [each.name for each in client.list_glossaries()] == ["one", "table", "large"]
    client.delete_glossary(made)
    for id in (*UNKNOWN, made.glossary_id):
        for call in (client.get_glossary, client.get_glossary_entries, client.delete_glossary):
            with pytest.raises(deepl.GlossaryNotFoundException):
                call(id)
    for pair in (("EN", "XX"), ("EN", "EN")):
        with pytest.raises(deepl.DeepLException):
            client.create_glossary("wrong", *pair, {"Hello": "Hallo"})


def test_glossaries_of_several_pairs(client):
    there, back = Dictionary("EN", "MT", {"house": "Haus"}), Dictionary("MT", "EN", {"Haus": "house"})
    made = client.create_multilingual_glossary("both", [back, there])
    sizes = [(each.source_lang, each.target_lang, each.entry_count) for each in made.dictionaries]
    assert sizes == [("MT", "EN", 1), ("EN", "MT", 1)]
    found = client.get_multilingual_glossary(made.glossary_id)
    assert found.creation_time == made.creation_time and len(found.dictionaries) == 2
    more = {"house": "Häuschen", "lamp": "Lampe"}
    merged = client.update_multilingual_glossary_dictionary(made, Dictionary("EN", "MT", more))
    assert [each.entry_count for each in merged.dictionaries] == [1, 2]
    assert client.update_multilingual_glossary_name(made, "new name").name == "new name"
    replaced = client.replace_multilingual_glossary_dictionary(made, Dictionary("EN", "MT", {"old": "alt"}))
    assert replaced.entry_count == 1
    (entries,) = client.get_multilingual_glossary_entries(made, "EN-GB", "MT").dictionaries
    assert entries.entries == deepl.util.convert_dict_to_tsv({"old": "alt"})
    assert [each.name for each in client.list_multilingual_glossaries()] == ["new name"]
    assert client.list_glossaries() == []  # of one pair
    with pytest.raises(deepl.GlossaryNotFoundException, match="version 3"):
        client.get_glossary(made.glossary_id)
    client.delete_multilingual_glossary_dictionary(made, source_lang="EN", target_lang="MT")
    (rest,) = client.get_multilingual_glossary(made.glossary_id).dictionaries
    assert (rest.source_lang, rest.target_lang) == ("MT", "EN")
    assert [each.source_lang for each in client.list_glossaries()] == ["MT"]
    for id in UNKNOWN:
        for call, *arguments in (
            (client.get_multilingual_glossary,),
            (client.get_multilingual_glossary_entries, "EN", "MT"),
            (client.update_multilingual_glossary_name, "x"),
            (client.delete_multilingual_glossary_dictionary, None, "EN", "MT"),
            (client.delete_multilingual_glossary,),
        ):
            with pytest.raises(deepl.GlossaryNotFoundException):
                call(id, *arguments)


def test_texts_with_glossaries(client, server):
    there = client.create_glossary("there", "EN", "MT", {"Apple": "Apfel", "Banana": "Banane"})
    back = client.create_glossary("back", "MT", "EN", {"Apfel": "Apple", "Banane": "Banana"})
    english, german = ["Apple", "Banana"], ["Apfel", "Banane"]
    assert [each.text for each in client.translate_text_with_glossary(english, there)] == german
    assert [each.text for each in client.translate_text_with_glossary(german, back)] == english
    for glossary in (back, back.glossary_id):
        made = client.translate_text(german, source_lang="MT", target_lang="EN-US", glossary=glossary)
        assert [each.text for each in made] == english
    both = client.create_multilingual_glossary("both", [Dictionary("EN", "MT", {"Apple": "Boskop", "Pear": "Birne"})])
    for ids, targets in (([there, both], ["Apfel", "Birne"]), ([both, there], ["Boskop", "Birne"])):
        made = client.translate_text(["Apple", "Pear"], source_lang="EN", target_lang="MT", glossary_ids=ids)
        assert [each.text for each in made] == targets
    with pytest.raises(deepl.DeepLException, match="has no dictionary for mt to en"):
        client.translate_text("Apfel", source_lang="MT", target_lang="EN-GB", glossary=there.glossary_id)
    with pytest.raises(deepl.DeepLException, match="no such glossary"):
        client.translate_text("Apple", source_lang="EN", target_lang="MT", glossary=UNKNOWN[1])
    stranger = deepl.DeepLClient(server[2], server_url=server[0], send_platform_info=False)
    assert stranger.list_glossaries() == []
    with pytest.raises(deepl.DeepLException, match="no such glossary"):
        stranger.translate_text("Apple", source_lang="EN", target_lang="MT", glossary=there.glossary_id)
    headers = {"authorization": f"DeepL-Auth-Key {server[1]}"}
    values = {"text": english, "target_lang": "MT", "source_lang": "EN", "glossary_id": there.glossary_id}
    answer = httpx.post(f"{server[0]}/v2/translate", json=values, headers=headers)
    assert answer.headers["x-docmt-terms"] == "asked=2 met=2 refused=0 lost=0 forbidden=0 protected=0"
    without = httpx.post(f"{server[0]}/v2/translate", json={**values, "source_lang": ""}, headers=headers)
    assert without.status_code == 400 and "source_lang" in without.json()["message"]


@pytest.mark.usefixtures("files_here")
def test_documents_with_glossaries(client, server):
    glossary = client.create_multilingual_glossary(
        "words", [Dictionary("EN", "MT", {"artist": "Maler", "prize": "Gewinn"})]
    )
    for named in ({"glossary": glossary}, {"glossary_ids": [glossary, glossary]}):
        file, output = io.BytesIO(b"artist\nprize"), io.BytesIO()
        handle = client.translate_document_upload(file, source_lang="EN", target_lang="MT", filename="a.txt", **named)
        client.delete_multilingual_glossary(glossary) if "glossary_ids" in named else None
        headers = {"authorization": f"DeepL-Auth-Key {server[1]}"}
        httpx.get(f"{server[0]}/v1/documents/{handle.document_id}/events", headers=headers, timeout=60)
        client.translate_document_download(handle, output)
        assert output.getvalue().decode() == "Maler\nGewinn"


def test_translation_memories(client):
    listed = {each.source_language: each for each in client.list_translation_memories()}
    memory = listed["en"]
    assert (memory.name, memory.target_languages, memory.segment_count) == ("sentences.tmx", ["mt"], 1)
    assert client.get_translation_memory(memory).segment_count == 1
    assert len(client.list_translation_memories(page=0, page_size=1)) == 1
    assert client.list_translation_memories(page=len(listed), page_size=1) == []
    for named in ({"translation_memory": memory}, {"translation_memory": memory, "translation_memory_threshold": 80}):
        assert client.translate_text("It is old.", source_lang="EN", target_lang="MT", **named).text == "Es ist alt."
    with pytest.raises(deepl.DeepLException, match="no such translation memory"):
        client.translate_text("It is old.", target_lang="MT", translation_memory=UNKNOWN[1])
    with pytest.raises(deepl.DeepLException, match="no translations into EN-US"):
        client.translate_text("Es ist alt.", source_lang="MT", target_lang="EN-US", translation_memory=memory)
