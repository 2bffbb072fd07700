"""Addresses and paths are translated as years and put back."""

import pytest

from docmt.decoding.translation_results import WordLink
from docmt.documents.addresses import find_addresses, hide_addresses, hide_pair, restore_addresses, restore_links
from docmt.documents.words import find_words

SENTENCE = "Visit https://a.org/b?c=d or write to me@b.org."
HIDDEN = "Visit 1857 or write to 1868."


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("See https://a.org/x_(y), or (www.b.org/z).", ["https://a.org/x_(y)", "www.b.org/z"]),
        ("Ask a.b+c@d.co.uk.", ["a.b+c@d.co.uk"]),
        ("Écris à josé.b@c.fr, ou été/vu.md.", ["josé.b@c.fr"]),
        ("请看https://a.org/b。或写信到me@b.org吧，www.c.org也行。", ["https://a.org/b", "me@b.org", "www.c.org"]),
        (r"Open C:\Texts\a.docx, please.", [r"C:\Texts\a.docx"]),
        ("In /srv/www/a and ~/notes.txt and ../b/c.", ["/srv/www/a", "~/notes.txt", "../b/c"]),
        ("Change src/main/config.yaml.", ["src/main/config.yaml"]),
        ("He and/or she, 5 km/h, 24/7, 1/2, n/a, w/o. On 3/4/2020 at 50 €/m2; TCP/IP v1.2.", []),
    ],
)
def test_addresses_and_paths_are_found(text, found):
    assert [text[start:end] for start, end in find_addresses(text, with_paths=True)] == found


def test_long_texts_of_slashes_take_linear_time():
    assert find_addresses("a/+" * 100_000, with_paths=True) == []


def test_years_stand_for_addresses():
    assert hide_addresses(SENTENCE) == HIDDEN
    assert hide_addresses("In 1857, see www.a.org.") == "In 1857, see 1868."


@pytest.mark.parametrize(
    ("target", "restored"),
    [
        ("À 1868 ou 1857.", "À me@b.org ou https://a.org/b?c=d."),
        ("Le 1868e, 1868!", "Le me@b.org e, me@b.org https://a.org/b?c=d!"),
        ("در ١٨٦٨ یا ۱۸۵۷.", "در me@b.org یا https://a.org/b?c=d."),
        ("Rien 18570.", "Rien 18570 https://a.org/b?c=d me@b.org."),
        ("", "https://a.org/b?c=d me@b.org"),
    ],
)
def test_every_address_comes_back(target, restored):
    assert restore_addresses(target, SENTENCE) == restored


@pytest.mark.parametrize("number", ["1857", "1,857", "۱۸۵۷", "18 57"])
def test_numbers_of_the_sentence_are_no_stand_ins(number):
    assert hide_addresses(f"It sold {number} copies at www.a.org.") == f"It sold {number} copies at 1868."


def test_an_address_beside_a_digit_stays():
    sentence = "第5http://a.b/c章，www.a.org５"
    assert hide_addresses(sentence) == sentence


def test_a_sentence_of_addresses_is_copied():
    assert restore_addresses("Ein Satz.", "(www.a.org, www.b.org)") == "(www.a.org, www.b.org)"
    source = "+1 23: www.a.org, www.b.org"
    links = (WordLink((3, 5), (7, 10), 0.5, True),)  # of words that are not in the copy
    assert restore_addresses("12: 1857 or 1868", source) == source
    restored = restore_links(links, source, source)
    assert [each.source for each in restored] == find_words(source)
    assert all(each.source == each.target for each in restored)


def test_links_are_moved_and_join_equal_words_of_addresses():
    source, target = "Visit www.a.org now.", "Nun zu www.a.org!"
    assert restore_addresses("Nun zu 1857!", source) == target
    assert hide_pair(source, target) == ("Visit 1857 now.", "Nun zu 1857!")
    links = (WordLink((11, 14), (0, 3), 0.5, True), WordLink((6, 10), (7, 11), 0.5, True))
    restored = restore_links(links, source, target)
    assert [(each.source, each.target) for each in restored] == [
        ((16, 19), (0, 3)),
        *(((6 + start, 6 + end), (7 + start, 7 + end)) for start, end in [(0, 3), (3, 4), (4, 5), (5, 6), (6, 9)]),
    ]
    (first, *others) = restored
    assert source[slice(*first.source)] == "now"
    assert all(source[slice(*each.source)] == target[slice(*each.target)] for each in others)


def test_addresses_of_a_translation_that_hold_each_other_are_told_apart():
    source = "See www.a.org/b or www.a.org."
    assert hide_pair(source, "Voir www.a.org ou www.a.org/b.") == ("See 1857 or 1868.", "Voir 1868 ou 1857.")
    assert hide_pair("It is.", "Voir www.a.org.") == ("It is.", "Voir www.a.org.")
    assert hide_pair("See www.a.org.", "Voir www a.") == ("See www.a.org.", "Voir www a.")
