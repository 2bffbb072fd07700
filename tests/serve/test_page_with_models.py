"""The page in a browser, with the whole server and a tiny random model."""

import re

import docx
import pytest

pytest.importorskip("starlette", reason="starlette, which serves the page, is not installed")
from tiny_model import save_tiny_model
from tiny_service import READS_CONTEXT, running_server

pytestmark = pytest.mark.browser

SENTENCES = ["A few words.", "A few more words.", "More words, a few.", "Words are few."]
DONE = "#delete:not([hidden])"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A model that reads context, so that what follows an edit can be translated again."""
    return save_tiny_model(tmp_path_factory.mktemp("model") / "en-fr", **READS_CONTEXT)


@pytest.fixture
def report(tmp_path):
    """A Word file of two paragraphs."""
    document = docx.Document()
    for start in (0, 2):
        document.add_paragraph(" ".join(SENTENCES[start : start + 2]))
    document.save(tmp_path / "report.docx")
    return tmp_path / "report.docx"


def show(page, selector):
    page.locator(selector).first.wait_for()


def test_a_word_file_is_translated_mended_and_downloaded(model, report, open_page, tmp_path):
    with running_server(model, data=tmp_path / "data") as url:
        page = open_page(f"{url}/")
        page.set_input_files("#file", report)
        page.click("#start button.main")
        show(page, DONE)
        sources = page.locator(".source .sentence").all_inner_texts()
        assert sources[:4] == SENTENCES
        page.hover(".target [data-number='1']")
        assert page.locator(".source .lit").all_inner_texts() == [SENTENCES[1]]
        page.click(".target [data-number='1']")
        page.click("#panel [data-do=alternatives]")
        page.click(".alternative >> nth=0")
        page.fill("#panel textarea", "Quelques mots.")
        page.click("#panel button[value=retranslate]")
        page.locator(".edited", has_text="Quelques mots.").wait_for()
        show(page, DONE)
        page.click("#download summary")
        with page.expect_download() as download:
            page.click("[data-format=original]")
        assert download.value.suggested_filename == "report.fr.docx"
        translated = docx.Document(download.value.path())
        first, second = [paragraph.text for paragraph in translated.paragraphs]
        assert first.endswith("Quelques mots.") and second
        page.click("#download summary")
        with page.expect_download() as download:
            page.click("[data-format=tmx]")
        assert "Quelques mots." in download.value.path().read_text(encoding="utf-8")


def test_a_restart_loses_nothing(model, open_page, tmp_path):
    text = "\n\n".join(SENTENCES * 40)
    with running_server(model, data=tmp_path / "data") as url:
        page = open_page(f"{url}/", expected_errors="ERR_")
        page.fill("#text", text)
        page.click("#start button.main")
        show(page, ".target .sentence")
    port = int(url.rpartition(":")[2])
    with running_server(model, data=tmp_path / "data", port=port):
        show(page, DONE)
        assert page.locator(".source .sentence").all_text_contents() == SENTENCES * 40
        assert page.locator(".edited").count() == 0 and page.locator(".stale").count() == 0


@pytest.mark.full
def test_a_reviewed_file_is_uploaded_told_of_and_undone(model, report, open_page, tmp_path):
    with running_server(model, data=tmp_path / "data") as url:
        page = open_page(f"{url}/", expected_errors="422")
        page.set_input_files("#file", report)
        page.click("#start button.main")
        show(page, DONE)
        page.click("#download summary")
        with page.expect_download() as download:
            page.click("[data-format=xlf12]")
        assert download.value.suggested_filename == "report.en-fr.xliff12.xlf"
        text = download.value.path().read_text(encoding="utf-8")
        first = re.search("<target .*?</target>", text)[0]
        text = text.replace(first, '<target state="final">Quelques mots.</target>').replace("Words are", "Worlds are")
        reviewed = tmp_path / "reviewed.xlf"
        reviewed.write_text(text, encoding="utf-8")
        page.set_input_files("#reviewed", reviewed)
        page.locator(".confirmed", has_text="Quelques mots.").wait_for()
        notice = page.locator("#notice span")
        assert notice.inner_text().startswith("Sentences with another translation: 1; confirmed: 1.\nLeft out: 1\n")
        assert "is not the source of the document" in notice.inner_text()
        page.click("#undo")
        page.locator(".confirmed").wait_for(state="detached")
        reviewed.write_text(text[:900], encoding="utf-8")
        page.set_input_files("#reviewed", reviewed)
        page.locator("#notice span", has_text="reviewed.xlf, line").wait_for()
        assert page.locator(".edited").count() == 0
