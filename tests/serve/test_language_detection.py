"""Detection of the language of short texts: placeholders, names and letters tell nothing, two function words do."""

import pytest

pytest.importorskip("starlette")

from types import SimpleNamespace

from service_fixtures import expect, running_service

from docmt.serve.text_translation import ForeignTextError, choose_model, detect_source

pytestmark = pytest.mark.usefixtures("files_here")

ENGLISH = """
Copied %d files to %s | Opened by %s | Section D | Size L | John D. Smith | Son of Adam | En route | Delete %s
%d of %d | {count} items | Page %d | Log in as {{user}} | Hello, %s! | New message from %s | Last seen %d min ago
Plan C | Point S | Los Angeles | El Paso | La Paz | Rio de Janeiro | Carlos de la Cruz | Leonardo da Vinci
Ludwig van der Rohe | Le Monde | Café au lait | Pain au chocolat | Tour de France | Der Spiegel | Die Hard | Das Boot
Per se | Come in | Mon | Plus one | I am also here | More than a man | Die in a war | Pour water | No comment
Has been | By me | On sale | Over it | At %s | %s %s | %1$s, %2$s | <b>%s</b> | L | c d s l | Jeanne d'Arc | D'Angelo
O'Brien | A to Z | Van Gogh | Des Moines | EST | La La Land | Un Security Council | DES keys | Par 3 | [y/n] | C:\\D
Undo (%s) | {count} de {la} | :de :la | <de la>x</de>
"""
FRENCH = """
Cette page n'existe pas | Êtes-vous sûr de vouloir supprimer ce fichier ? | Le fichier %s a été copié | C'est fini
Vous êtes connecté | Il n'y a pas de résultat | Une erreur est survenue dans la page | Je ne sais pas
Ajouter à la liste
"""
GERMAN = """
Die Datei %s wurde kopiert | Möchten Sie die Datei löschen? | Es gibt keine Ergebnisse | Sie sind nicht angemeldet
Wählen Sie eine Sprache | Diese Seite ist nicht vorhanden | Ein Fehler ist aufgetreten | Ich weiß es nicht
"""


def cut(rows: str) -> list[str]:
    return [text.strip() for row in rows.strip().splitlines() for text in row.split("|")]


class Models:
    """English into one language, or back."""

    def __init__(self, *pairs):
        self.models = self
        self.listed = [SimpleNamespace(name=each, source_language=each[:2], target_language=each[3:]) for each in pairs]

    def describe(self):
        return self.listed

    def find(self, name="", source="", target=""):
        return f"{source}-{target}"


@pytest.mark.parametrize("target", ["fr", "de", "es", "it", "pt", "nl"])
def test_no_short_english_text_is_taken_for_another_language(target):
    models = Models(f"en-{target}")
    assert {text: choose_model(models, "auto", target, text).name for text in cut(ENGLISH)} == dict.fromkeys(
        cut(ENGLISH), f"en-{target}"
    )


@pytest.mark.parametrize(("language", "rows"), [("fr", FRENCH), ("de", GERMAN)])
def test_two_function_words_tell_the_language(language, rows):
    for text in cut(rows):
        chosen = choose_model(Models(f"en-{language}", f"{language}-en"), "auto", language, text)
        assert (text, chosen.name, chosen.source) == (text, "", language)
        assert choose_model(Models("en-es", f"{language}-es"), "auto", "es", text).source == language


def test_confidence_grows_with_the_evidence():
    texts = ["Hello", "the cat and the dog", "the cat and the dog are not in it, but they will be with us"]
    confidences = [detect_source(text, ["en", "fr"])[1] for text in texts]
    assert confidences[0] == 0 and sorted(set(confidences)) == confidences and confidences[-1] < 100


FOREIGN = "Der Hund ist nicht in dem Haus und die Katze"


def test_a_foreign_text_of_a_list_stays_and_the_others_are_translated(tmp_path):
    with running_service(tmp_path / "data") as client:
        values = {"q": ["One cat.", FOREIGN, "%s of %d"], "source": "auto", "target": "fr"}
        answer = client.post("/translate", json=values).json()
        assert answer["translatedText"] == [*expect("One cat."), FOREIGN, *expect("%s of %d")]
        assert [each["language"] for each in answer["detectedLanguage"]] == ["en", "de", "en"]
        assert [each["confidence"] > 50 for each in answer["detectedLanguage"]] == [False, True, False]
        values = {"text": ["One cat.", FOREIGN], "target_lang": "FR", "context": "A cow is here."}
        answer = client.post("/v2/translate", json=values).json()["translations"]
        assert [each["detected_source_language"] for each in answer] == ["EN", "DE"]
        assert answer[1]["text"] == FOREIGN and answer[0]["text"] != "One cat."
        assert client.post("/v2/translate", json={**values, "text": [FOREIGN] * 2}).status_code == 400


def test_a_foreign_text_is_named_where_it_is_refused():
    with pytest.raises(ForeignTextError, match=r"in German \(de\), but the models translate from English \(en\)"):
        choose_model(Models("en-fr"), "auto", "fr", FOREIGN)
