"""Codes and names of languages, and how well one fits another."""

import pytest

from docmt.formats.language_codes import find_language, is_same_language, language_distance


@pytest.mark.parametrize(
    ("code", "wanted", "distance"),
    [
        ("de", "de", 0),
        ("ger", "de", 0),
        ("deu_Latn", "ger", 0),
        ("DE_at", "de-AT", 0),
        ("de", "de-AT", 1),
        ("de-AT", "de", 1),
        ("de-CH", "de-AT", 2),
        ("", "de", 0),
        ("de", "", 0),
        ("nds", "de", None),
        ("dut", "ger", None),
    ],
)
def test_how_well_a_code_fits(code, wanted, distance):
    assert language_distance(code, wanted) == distance
    assert is_same_language(code, wanted) == (distance is not None)


def test_every_code_of_iso_639_2_for_libraries_is_that_of_a_language():
    codes = """
        alb=sq arm=hy baq=eu bur=my chi=zh cze=cs dut=nl fre=fr geo=ka ger=de gre=el ice=is mac=mk mao=mi may=ms per=fa
        rum=ro slo=sk tib=bo wel=cy
    """
    assert {language_distance(*pair.split("=")) for pair in codes.split()} == {0}


CODES = {"de": "de", " de-AT ": "de-AT", "ger": "ger", "zh_Hans": "zh_Hans", "German": "de", "FRENCH (Canada)": "fr"}
CODES |= {"anglais": "en", "Englisch": "en", "Deutsch": "de", "français": "fr", "ESPAÑOL": "es", "日本語": "ja"}


@pytest.mark.parametrize(
    ("text", "code"), [*CODES.items(), *dict.fromkeys(["cat food", "xx", "dog", "", "de-"], "").items()]
)
def test_the_language_that_a_text_names(text, code):
    assert find_language(text) == code
