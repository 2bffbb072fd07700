"""Addresses, placeholders, codes and signs are translated as years, or taken out, and put back."""

import random
import re
from collections import Counter

import pytest

from docmt.core.errors import DocmtError
from docmt.decoding.translation_results import WordLink
from docmt.documents.protected_text import Protection, find_protected, load_kinds, read_patterns
from docmt.documents.words import find_words

PROTECTION = Protection(("en", "fr"))
WORDS = ["the", "report", "of", "a", "committee", "is", "not", "ready", "for", "members"]
KINDS = {kind["name"]: kind for kind in load_kinds()}


def contents(text, language="en", kind=None, **options):
    """The protected parts of a text, of one kind or of all."""
    found = find_protected(text, language, **options)
    return [text[slice(*each.span)] for each in found if each.kind == (kind or each.kind)]


@pytest.mark.parametrize("name", KINDS)
def test_each_kind_finds_its_examples_whole_and_nothing_that_looks_alike(name):
    options = {"in_messages": KINDS[name].get("in") == "messages"}
    for example in KINDS[name]["examples"]:
        for text in (example, f"The {example} is.", f"See {example}!", f"({example}), a"):
            assert contents(text, **options) == [example], text
    for other in KINDS[name]["others"]:
        for text in (other, f"The {other} is."):
            assert contents(text, kind=name, **options) == [], text


def test_kinds_of_other_languages_and_of_messages_are_not_found():
    assert contents("Le «Parlement» :name %s", "fr") == ["%s"]
    assert contents("Слово Москва", "ru") == contents("Слово Москва", "") == []


def test_patterns_of_the_user_come_first():
    assert contents("Acme Corp of Acme", extra=[r"Acme(?: Corp)?"]) == ["Acme Corp", "Acme"]
    assert Protection(patterns=["Acme"]).hide("The Acme is.") == "The 1857 is."


def test_patterns_of_the_user_may_have_flags_and_groups_and_match_nothing():
    patterns = ["(?i)acme", r"(o)\1+", "(?P<k0>x)y", "(?P<k0>x)z", "q*"]
    text = "The ACME xy ooo xz {a} https://a.org/xy."
    assert contents(text, extra=patterns) == ["ACME", "xy", "ooo", "xz", "{a}", "https://a.org/xy"]


def test_patterns_are_read_from_a_file(tmp_path):
    path = tmp_path / "own.txt"
    path.write_text("# names\nAcme( Corp)?\n\n")
    assert read_patterns(str(path)) == ["Acme( Corp)?"] and read_patterns("none") is None and read_patterns("") == []
    assert contents("Acme Corp %s", extra=read_patterns(str(path))) == ["Acme Corp", "%s"]
    path.write_text("a\n(b\n")
    with pytest.raises(DocmtError, match=r"own\.txt, line 2: .* in '\(b': give a regular expression"):
        read_patterns(str(path))


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
    parts = find_protected(text)
    assert [text[slice(*each.span)] for each in parts if each.kind in ("address", "path")] == found


def test_long_texts_of_slashes_take_linear_time():
    for piece in ("a/+", "a.", "0-", "a@", "ab:", "1 ", "{"):
        text = piece * 20_000
        assert [text[slice(*part.span)] for part in find_protected(text, "en", in_messages=True)] in ([], [text])


def test_long_sums_take_linear_time():
    assert len(contents("1+" * 50_000 + "x")) <= 1 and not contents("1−" * 50_000 + "x")


def test_many_signs_and_tags_come_back_in_linear_time():
    for piece in ("a → ", "*a* ", "<b>a</b> "):
        text = piece * 5000
        assert PROTECTION.restore(PROTECTION.hide(text), text).split() == text.split()


def test_a_long_number_takes_linear_time():
    digits = "1" * 100_000
    assert contents(digits) == [digits]


def test_years_stand_for_addresses():
    assert PROTECTION.hide(SENTENCE) == HIDDEN
    assert PROTECTION.hide("In 1857, see www.a.org.") == "In 1857, see 1868."


@pytest.mark.parametrize(
    ("target", "restored"),
    [
        ("À 1868 ou 1857.", "À me@b.org ou https://a.org/b?c=d."),
        ("Le 1868e, 1868!", "Le me@b.org e, https://a.org/b?c=d!"),
        ("در ١٨٦٨ یا ۱۸۵۷.", "در me@b.org یا https://a.org/b?c=d."),
        ("Rien 18570.", "Rien https://a.org/b?c=d me@b.org."),
        ("À 1857, 1868 ou 1857.", "À https://a.org/b?c=d, me@b.org ou."),
        ("À 1857, 1857, 1868.", "À https://a.org/b?c=d, me@b.org."),
        ("", "https://a.org/b?c=d me@b.org"),
    ],
)
def test_every_address_comes_back(target, restored):
    assert PROTECTION.restore(target, SENTENCE) == restored


@pytest.mark.parametrize("number", ["1857", "1,857", "۱۸۵۷", "18 57"])
def test_numbers_of_the_sentence_are_no_stand_ins(number):
    assert PROTECTION.hide(f"It sold {number} copies at www.a.org.") == f"It sold {number} copies at 1868."


def test_a_year_touches_no_digit():
    assert Protection().hide("第5http://a.b/c章，www.a.org５") == "第1857章，1868"


@pytest.mark.parametrize(
    ("source", "hidden", "target", "restored"),
    [
        ("{% if a %}It is.{% endif %}", "1857 It is.1868", "1857 C'est.1868", "{% if a %}C'est.{% endif %}"),
        ("See [a file](http://a.b/c_(d)).", "See a file.", "Voir un dossier.", "Voir [un dossier](http://a.b/c_(d))."),
        ("A _very good_ file.", "A very good file.", "Un très bon dossier.", "Un _très bon_ dossier."),
        ("The {n}th file.", "The 1857 th file.", "Le 1857 dossier.", "Le {n} dossier."),
        ("Set file{s} now.", "Set file 1857 now.", "Mettez le dossier 1857.", "Mettez le dossier{s}."),
        ("{a}{b} is.", "1857 is.", "1857 est.", "{a}{b} est."),
        ("{a} {b} is.", "1857 1868 is.", "", "{a} {b}"),
        ("Thanks 🎉 for it.", "Thanks for it.", "Merci pour ça.", "Merci 🎉 pour ça."),
        ("✓ It is ☐", "It is", "C'est", "✓ C'est ☐"),
        ("Move {0} 100 files.", "Move 1857 100 files.", "Déplacez 1857 100 fichiers.", "Déplacez {0} 100 fichiers."),
        ("{a}→{b} is.", "1857 is.", "1857 est.", "{a}→{b} est."),
        ("A [i]%s[/i] house.", "A 1857 house.", "Une maison.", "Une [i]%s[/i] maison."),
        ("{a}1️⃣ is.", "1857 is.", "1857 est.", "{a}1️⃣ est."),
        ("It costs $5 million.", "It costs $5 million.", "Ça coûte 5 millions.", "Ça coûte 5 millions\u00a0$."),
        ("Yes→no", "Yes no", "Oui non", "Oui→non"),
        ("The law §12 is.", "The law 12 is.", "La loi 12 est.", "La loi §12 est."),
        ("At −2.5 °C now.", "At 2.5 °C now.", "Maintenant, à 2,5 °C.", "Maintenant, à −2,5 °C."),
        ("It is −1,234.5 now.", "It is 1,234.5 now.", "Il est à 1234,5.", "Il est à −1234,5."),
        ("It has 5 m² now.", "It has 1857 now.", "Il a 1857.", "Il a 5 m²."),
        ("It has 2.5 m² now.", "It has 2.5 m now.", "Il a 2,5 m.", "Il a 2,5 m²."),
        ("The CO₂ is here.", "The 1857 is here.", "Le 1857 est ici.", "Le CO₂ est ici."),
        ("A <b>big</b> house.", "A big house.", "Une grande maison.", "Une <b>grande</b> maison."),
        ("The price* is.", "The price is.", "Le prix est.", "Le prix* est."),
        ("🎉Thanks!", "Thanks!", "Merci!", "🎉Merci!"),
        ("It is late.", "It is late.", "Il est\ufffd tard.", "Il est tard."),
        ("In 1,234 days.", "In 1,234 days.", "En 12,344 jours.", "En 1\u00a0234 jours."),
        ("Of {0} (%d%) for $%.2f", "Of 1857 (1868) for 1879", "De 1857 pour 1879 (1868)", "De {0} pour $%.2f (%d%)"),
        ("It costs £6 now.", "It costs £6 now.", "Ça coûte 6.", "Ça coûte 6\u00a0£."),
        ("It costs £6 now.", "It costs £6 now.", "Ça coûte 6 livres.", "Ça coûte 6 livres."),
        ("From £6 or €7.", "From £6 or €7.", "De 6 £ ou $ EUR7.", "De 6 £ ou EUR7."),
        ("From £6 to £12.50.", "From £6 to £12.50.", "De 6 à 12,50.", "De 6\u00a0£ à 12,50\u00a0£."),
        ("Has twenty; see {a}.", "Has twenty; see 1857.", "A 20; voir.", "A 20 {a}; voir."),
        ("Has twenty; see {a}.", "Has twenty; see 1857.", "A 2000; voir.", "A {a}; voir."),
        ("🎉 12", " 12", "Douze.", "🎉 12"),
    ],
)
def test_what_the_model_reads_and_what_becomes_of_it(source, hidden, target, restored):
    assert PROTECTION.hide(source).strip() == hidden.strip()
    assert PROTECTION.restore(target, source) == restored


@pytest.mark.parametrize("seed", range(10))
def test_whatever_a_model_does_to_the_years_nothing_is_lost(seed):
    chance = random.Random(seed)
    examples = [text for kind in KINDS.values() if kind.get("in") != "messages" for text in kind["examples"]]
    for _ in range(100):
        words = [chance.choice(WORDS) for _ in range(8)]
        for _ in range(chance.choice([1, 1, 2, 5])):
            words.insert(chance.randrange(len(words) + 1), chance.choice(examples))
        source = " ".join(words) + chance.choice([".", "", "!"])
        tokens = PROTECTION.hide(source).split(" ")
        for _ in range(chance.choice([0, 1, 2, 3])):
            place = chance.randrange(len(tokens))
            damage = chance.choice(["lost", "twice", "spelled", "order"])
            if damage == "lost":
                tokens[place] = ""
            elif damage == "twice":
                tokens.insert(0, tokens[place])
            elif damage == "spelled":
                tokens[place] = re.sub(r"\d", lambda digit: chance.choice([digit[0], "7", ""]), tokens[place])
            else:
                chance.shuffle(tokens)
        restored = PROTECTION.restore(" ".join(tokens), source)
        for item, count in Counter(contents(source)).items():
            assert restored.count(item) >= count, (source, tokens, restored)


def test_a_sentence_of_addresses_is_copied():
    assert PROTECTION.restore("Ein Satz.", "(www.a.org, www.b.org)") == "(www.a.org, www.b.org)"
    source = "+1 23: www.a.org, www.b.org"
    links = (WordLink((3, 5), (7, 10), 0.5, True),)  # of words that are not in the copy
    assert PROTECTION.restore("12: 1857 or 1868", source) == source
    restored = PROTECTION.restore_links(links, source, source)
    assert [each.source for each in restored] == find_words(source)
    assert all(each.source == each.target for each in restored)


def test_links_are_moved_and_join_equal_words_of_addresses():
    source, target = "Visit www.a.org now.", "Nun zu www.a.org!"
    assert PROTECTION.restore("Nun zu 1857!", source) == target
    assert PROTECTION.hide_pair(source, target) == ("Visit 1857 now.", "Nun zu 1857!")
    links = (WordLink((11, 14), (0, 3), 0.5, True), WordLink((6, 10), (7, 11), 0.5, True))
    restored = PROTECTION.restore_links(links, source, target)
    assert [(each.source, each.target) for each in restored] == [
        ((16, 19), (0, 3)),
        *(((6 + start, 6 + end), (7 + start, 7 + end)) for start, end in [(0, 3), (3, 4), (4, 5), (5, 6), (6, 9)]),
    ]
    (first, *others) = restored
    assert source[slice(*first.source)] == "now"
    assert all(source[slice(*each.source)] == target[slice(*each.target)] for each in others)


def test_addresses_of_a_translation_that_hold_each_other_are_told_apart():
    source = "See www.a.org/b or www.a.org."
    assert PROTECTION.hide_pair(source, "Voir www.a.org ou www.a.org/b.") == ("See 1857 or 1868.", "Voir 1868 ou 1857.")
    assert PROTECTION.hide_pair("It is.", "Voir www.a.org.") == ("It is.", "Voir www.a.org.")
    assert PROTECTION.hide_pair("See www.a.org.", "Voir www a.") == ("See www.a.org.", "Voir www a.")


@pytest.mark.parametrize(
    ("source", "hidden", "target", "restored"),
    [
        ("Terms & Conditions", "Terms and Conditions", "Termes et conditions", "Termes & conditions"),
        ("Yes / No", "Yes or No", "Oui ou non", "Oui / non"),
        ("A cat and a dog & a cow", "A cat and a dog and a cow", "Un et un et une", "Un et un & une"),
        ("Articles 5 & 6", "Articles 5 and 6", "Les articles 5 et 6", "Les articles 5 & 6"),
        ("The dog & the cow", "The dog and the cow", "Le chien", "Le & chien"),  # nothing is lost
        ("and/or his/her", "and/or his/her", "et/ou son", "et/ou son"),  # the model knows these
    ],
)
def test_signs_between_words_are_read_as_conjunctions(source, hidden, target, restored):
    protection = Protection(("en", "fr"))
    assert (protection.hide(source), protection.restore(target, source)) == (hidden, restored)
    assert protection.hide_pair(source, restored)[1] in (target, restored, f"{target[:2]} et{target[2:]}")


@pytest.mark.parametrize(
    ("source", "hidden", "target", "restored"),
    [
        ("It costs $7, or ¥100 (≈ 5 €).", "It costs $7, or ¥100 (5 €).", "Il coûte $7 ou ¥100 (5 €).", "(≈ 5 €)."),
        ("A red house (★ good).", "A red house (good).", "Une maison rouge (good).", "rouge (★ good)."),
    ],
)
def test_a_sign_after_a_bracket_stands_beside_the_next_word(source, hidden, target, restored):
    protection = Protection(("en", "fr"))
    assert protection.hide(source) == hidden
    assert protection.restore(target, source).endswith(restored)
