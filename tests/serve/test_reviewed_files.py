"""XLIFF that goes out of a document, is edited, and comes back."""

import io
import re

import docx
import pytest
from lxml import etree
from service_fixtures import running_service

from docmt.serve import job_translation

pytestmark = pytest.mark.usefixtures("files_here")


def make_document():
    file = docx.Document()
    paragraph = file.add_paragraph("Anna bought a ")
    paragraph.add_run("red lamp").bold = True
    paragraph.add_run(" in town. It was cheap. She left.")
    data = io.BytesIO()
    file.save(data)
    return data.getvalue()


def read_document(data):
    paragraph = docx.Document(io.BytesIO(data)).paragraphs[0]
    return paragraph.text, [run.text for run in paragraph.runs if run.bold]


class Document:
    """A document of the service."""

    def __init__(self, client, path):
        self.client, self.path = client, path

    @classmethod
    def translate(cls, client, data, name="a.docx", fields=""):
        answer = client.post("/v1/documents", files={"file": (name, data)}, data={"model": "fake", "fields": fields})
        document = cls(client, f"/v1/documents/{answer.json()['id']}")
        client.get(document.path + "/events")
        return document

    def get(self, format="original"):
        answer = self.client.get(f"{self.path}/result?format={format}")
        assert answer.status_code == 200
        return answer.content

    def upload(self, data, status=200):
        data = data.encode() if isinstance(data, str) else data
        answer = self.client.post(self.path + "/xliff", files={"file": ("../r.xlf", data)})
        assert answer.status_code == status, answer.text
        return answer.json()

    def sentences(self):
        return self.client.get(self.path + "/sentences").json()["sentences"]


@pytest.mark.parametrize("format", ["xlf", "xlf12"])
def test_a_reviewed_file_is_one_change_and_the_document_has_it(tmp_path, format):
    with running_service(tmp_path / "data") as client:
        document = Document.translate(client, make_document())
        path, before, text = document.path, document.sentences(), document.get(format).decode()
        namespace, root = re.search('xmlns="(.*?)"', text)[1], etree.fromstring(text.encode())
        targets = [
            each for each in root.iter(f"{{{namespace}}}target") if each.getparent().tag.endswith(("segment", "unit"))
        ]
        targets[0][1].text = "une lampe rouge"
        targets[1].text = "Elle était 7 fois moins chère."
        (targets[2] if format == "xlf12" else targets[2].getparent()).set("state", "final")
        answer = document.upload(etree.tostring(root).replace(b">She left.", b"> She\n left."))
        assert (answer["changed"], answer["confirmed"], answer["problems"]) == (2, 1, [])
        assert (answer["status"], answer["edited"]) == ("done", 2)
    with running_service(tmp_path / "data") as client:
        document = Document(client, path)
        rows = document.sentences()
        assert [(row["edited"], row["confirmed"]) for row in rows[:3]] == [(True, False), (True, False), (False, True)]
        paragraph, bold = read_document(document.get())
        assert "Elle était 7 fois moins chère. «She left." in paragraph and bold == ["une lampe rouge"]
        assert client.post(path + "/undo").json()["status"] == "done"
        assert [row | {"version": 1} for row in document.sentences()] == before
        assert document.upload(document.get(format))["changed"] == 0


@pytest.mark.parametrize("format", ["xlf", "xlf12"])
@pytest.mark.full
def test_the_file_of_an_edited_document_changes_nothing_after_a_restart(tmp_path, format):
    with running_service(tmp_path / "data") as client:
        document = Document.translate(client, make_document())
        old = document.get(format)
        client.post(document.path + "/sentences/0", json={"target": "Un deux la lampe rouge six."})
        new = document.get(format)
    with running_service(tmp_path / "data") as client:
        document = Document(client, document.path)
        answer = document.upload(new)
        assert (answer["changed"], answer["replaced"], answer["edited"]) == (0, 0, 1)
        answer = document.upload(old)  # it changes nothing of what it was written with
        assert (answer["changed"], answer["problems"], answer["edited"]) == (0, [], 1)
        other = Document.translate(client, make_document())
        client.post(other.path + "/sentences/0", json={"target": "Un deux la lampe rouge six."})
        answer = other.upload(old)  # it was written for a document that only has the same content
        assert (answer["changed"], answer["replaced"], answer["edited"]) == (1, 1, 0)
        root = etree.fromstring(old)
        targets = (each for each in root.iter("{*}target") if each.getparent().tag.endswith(("segment", "unit")))
        before, bold = next(targets)[:2]
        word, bold.text = bold.text.split(" ", 1)
        before.tail = f"{before.tail or ''}{word} "
        client.post(other.path + "/sentences/0", json={"target": "Un deux la lampe rouge six."})
        answer = other.upload(etree.tostring(root))  # the machine's words, with bold elsewhere
        assert (answer["changed"], answer["edited"]) == (1, 1)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"<xliff", "r.xlf, line 1: broken XML"),
        (make_document(), "r.xlf, line 1: broken XML"),
        (b"<!DOCTYPE xliff [<!ENTITY a 'b'>]><xliff/>", "r.xlf has a DOCTYPE"),
        (b"<xliff>" + 300 * b"<file>" + 300 * b"</file>" + b"</xliff>", "r.xlf"),
        (b"<xliff><file original='b.docx'/></xliff>", r"r.xlf is of another document \(b.docx\)"),
    ],
)
def test_other_files_are_refused_and_nothing_changes(tmp_path, data, message):
    with running_service(tmp_path / "data") as client:
        document = Document.translate(client, b"One cat. Two cats.\n", "a.txt")
        before = document.sentences()
        assert document.upload(data, 422)["error"].startswith(message.replace("\\", ""))
        assert document.sentences() == before
        assert not [*(tmp_path / "data" / "uploads").iterdir()]
        assert "send the reviewed XLIFF" in client.post(document.path + "/xliff").json()["error"]
        answer = client.post("/v1/documents/none/xliff", files={"file": ("r.xlf", data)})
        assert answer.status_code == 404 and "docmt merge" in answer.json()["error"]


def test_both_versions_tell_states_origins_matches_and_notes(tmp_path):
    with running_service(tmp_path / "data") as client:
        document = Document.translate(client, b"One cat. Two cats. FAIL. See {name}.\n", "a.txt")
        client.post(document.path + "/sentences/3", json={"target": "Voir {0}."})
        client.post(document.path + "/sentences/1", json={"confirmed": True})
        new, old = (document.get(format).decode() for format in ("xlf", "xlf12"))
        assert re.findall(r'<segment id="s\d" state="(\w+)"', new) == ["translated", "final", "initial", "translated"]
        assert re.findall(r'type="origin">(\w+)', new) == ["machine", "machine", "person"]
        assert '<mtc:match ref="#s7" type="mt" origin="docmt" matchQuality=' in new
        assert "<target>«See {name}.» (Two)</target></mtc:match>" in new
        assert '<note appliesTo="target" category="docmt">s7: placeholder: ' in new
        raw = 'state="needs-review-translation" state-qualifier="mt-suggestion"'
        assert re.findall("<target (.*?)>", old) == [raw, 'state="final"', 'state="translated"']
        assert 'id="u1-s3" approved="yes"' in old and '<note from="docmt" annotates="target">placeholder: ' in old
        assert 'origin="docmt" tool-id="docmt"><target>«See {name}.» (Two)</target></alt-trans>' in old
        assert re.findall(r'x-origin">(\w+)', document.get("tmx").decode()) == ["machine", "machine", "person"]
        # what failed is translated by hand
        answer = document.upload(old.replace("<source>FAIL.</source>", "<source>FAIL.</source><target>Raté.</target>"))
        assert (answer["changed"], answer["edited"], answer["error"]) == (1, 2, "")
        assert document.get().decode() == "«One cat.» () «Two cats.» (One) Raté. Voir {0}.\n"


@pytest.mark.parametrize("format", ["xlf", "xlf12"])
def test_a_reviewer_may_move_placeholders_and_is_told_which_are_missing(tmp_path, format):
    missing = "placeholder: “{a}” not in the translation"
    with running_service(tmp_path / "data") as client:
        document = Document.translate(client, b'["Page {a} of {b} is new."]', "a.json", "*")
        text = document.get(format).decode()
        target = re.search(r"<target[^>]*>(«Page <.*?)</target>", text)[1]
        first, second = re.findall("<[^>]*>", target)
        document.upload(text.replace(target, f"La page {first} sur {second} est neuve."))
        (row,) = document.sentences()
        assert (row["target"], row["findings"]) == ("La page {a} sur {b} est neuve.", [])
        assert document.get() == b'["La page {a} sur {b} est neuve."]'
        document.upload(re.sub("(<target[^>]*>La page )<[^>]*>", r"\1", document.get(format).decode()))
        (row,) = document.sentences()
        assert (row["target"], row["findings"]) == ("La page sur {b} est neuve.", [missing])
        assert sorted(re.findall(r"\{\w}", document.get().decode())) == ["{a}", "{b}"]


def test_a_stopped_document_takes_translations_of_what_is_missing(tmp_path):
    with running_service(tmp_path / "data") as client:
        client.engine.hold, client.engine.step = 1, 1
        answer = client.post("/v1/documents", json={"text": "One cat. Two cats.\n"})
        document = Document(client, f"/v1/documents/{answer.json()['id']}")
        while document.sentences()[0]["target"] is None:
            pass
        assert "wait until it is done" in document.upload(b"", 409)["error"]
        client.delete(document.path)
        text = document.get("xlf").decode()
        answer = document.upload(text.replace("Two cats.</source>", "Two cats.</source><target>Deux chats.</target>"))
        assert (answer["status"], answer["changed"], answer["finished"]) == ("done", 1, 2)
        assert document.get().decode() == "«One cat.» () Deux chats.\n"
        client.engine.hold = 1000
        client.delete(document.path + "/sentences/1")  # the machine has no version yet
        client.get(document.path + "/events")
        assert document.sentences()[1]["target"] == "«Two cats.» (One)"


def test_a_document_that_is_edited_meanwhile_keeps_the_edit(tmp_path, monkeypatch):
    with running_service(tmp_path / "data") as client:
        document = Document.translate(client, b"One cat. Two cats.\n", "a.txt")
        text = document.get("xlf").decode().replace("<target>«Two", "<target>X «Two")
        check = job_translation.check_pairs

        def edit_meanwhile(*arguments):
            client.post(document.path + "/sentences/0", json={"confirmed": True})
            return check(*arguments)

        monkeypatch.setattr(job_translation, "check_pairs", edit_meanwhile)
        assert "changed meanwhile" in document.upload(text, 409)["error"]
        assert [(row["edited"], row["confirmed"]) for row in document.sentences()] == [(False, True), (False, False)]


@pytest.mark.parametrize("format", ["xlf", "xlf12"])
def test_what_was_changed_since_a_file_was_written_stays_and_is_told_if_the_file_changes_it(tmp_path, format):
    with running_service(tmp_path / "data") as client:
        document = Document.translate(client, b"One cat. Two dogs. Three birds. Four fish.", "a.txt")
        file = document.get(format).decode()
        for number, target in ((0, "Un chat."), (1, "Deux chiens."), (3, "Quatre.")):
            client.post(f"{document.path}/sentences/{number}", json={"target": target})
        client.post(document.path + "/undo")
    for source, target in (("Two dogs.", "Deux chiots."), ("Three birds.", "Trois."), ("Four fish.", "4.")):
        file = re.sub(rf"(<target[^>]*>)«{source}».*?<", rf"\g<1>{target}<", file)
    with running_service(tmp_path / "data") as client:
        document = Document(client, document.path)
        answer = document.upload(file)
        assert (answer["changed"], answer["replaced"]) == (2, 0)
        reason = "“Two dogs.” was changed since this file was downloaded, so it stays; the file has “Deux chiots.”"
        assert answer["problems"] == [f"r.xlf: {reason}"]
        assert [row["target"] for row in document.sentences()] == ["Un chat.", "Deux chiens.", "Trois.", "4."]


@pytest.mark.parametrize("format", ["xlf", "xlf12"])
def test_placeholders_stand_where_a_reviewer_put_them(tmp_path, format):
    file = b'msgid ""\nmsgstr ""\n\nmsgid "{a}, see %s of {b} <b>today</b>: %s. {x} Bye."\nmsgstr ""\n'
    with running_service(tmp_path / "data") as client:
        document = Document.translate(client, file, "a.po")
        text = document.get(format).decode()
        assert document.upload(text)["changed"] == 0
        target = next(each for each in re.findall("<target[^>]*>(.*?)</target>", text) if 'id="c1"' in each)
        codes = re.findall(r"<(?:ph|x) [^>]*/>", target)
        bold = re.sub(">[^<]+<", ">maintenant<", re.search(r"<(pc|g) .*?</\1>", target)[0])
        new = f"{codes[2]} et {codes[3]} : {bold} voir {codes[1]}, {codes[0]} !"
        reviewed = text.replace(f">{target}<", f">{new}<")
        assert document.upload(reviewed)["changed"] == 1
        assert document.sentences()[0]["target"] == "{b} et %s : maintenant voir %s, {a} !"
        assert b'msgstr "{b} et %s : <b>maintenant</b> voir %s, {a} !' in document.get()
        assert document.upload(document.get(format))["changed"] == document.upload(reviewed)["changed"] == 0
