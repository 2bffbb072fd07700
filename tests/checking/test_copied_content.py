"""Numbers that a translation writes otherwise are no findings; other numbers are."""

import pytest

from docmt.checking.checks import find_unmatched_numbers

SAME = [
    # Hours.
    ("en", "fr", "at 3 p.m.", "à 15h00"),
    ("en", "fr", "at 3.30 p.m.", "à 15 h 30"),
    ("en", "fr", "at 8.30", "à 8 heures 30"),
    ("en", "fr", "from 18:30", "dès 18h30"),
    ("en", "fr", "at 7.45 in the evening", "à 19 h 45"),
    ("en", "de", "3 in the afternoon", "15 Uhr"),
    ("en", "fr", "at 12.15 a.m.", "à 0 h 15"),
    ("en", "de", "at 12.05 a.m.", "um 0.05 Uhr"),
    ("en", "fr", "12:30 AM", "00:30"),
    # Decimals and parts.
    ("en", "fr", "99.900 %", "99,9 %"),
    ("en", "fr", ".5 per cent", "0,5 %"),
    ("en", "fr", "p < .001", "p < 0,001"),
    ("en", "fr", "Article 4.5", "article 4, paragraphe 5"),
    ("en", "fr", "Articles 50, 100 and 150", "les articles 50, 100 et 150"),
    # Dates.
    ("en", "fr", "05.06.2004", "5/6/2004"),
    ("en", "fr", "on 5/6/2004 it", "le 5 juin 2004"),
    ("en", "de", "9/11", "am 11.9. war es"),
    ("en", "de", "He came on July 1.", "Er kam am 1.7."),
]
POSSIBLE = [
    # Words for numbers up to 12.
    ("en", "fr", "at 8:00", "à huit heures"),
    ("en", "fr", "at 12 a.m.", "à minuit"),
    ("en", "fr", "a dozen", "12"),
    ("en", "de", "Rule 12", "Beim Mittagessen"),
    # Words of scale.
    ("en", "fr", "2.5 billion", "2 500 millions"),
    ("en", "fr", "EUR 0.5 m", "500 000 euros"),
    ("en", "fr", "€2.5k", "2 500 euros"),
]
OTHER = [
    ("en", "fr", "90", "quatre-vingt-dix"),
    ("en", "fr", "10,000", "dix mille"),
    ("en", "fr", "1,000 votes", "1,00 voix"),
    ("en", "fr", "2,000", "2"),
    ("en", "fr", "1.5 per cent", "15 pour\u00a0cent"),
    ("en", "nl", "It rose 1.5 per cent", "Het steeg met 15 procent"),
    ("en", "fr", "2.05 %", "2,5 %"),
    ("en", "fr", "0.05", "0,5"),
    ("en", "fr", "0.5 %", "5 %"),
    ("en", "fr", "2.5 %", "vingt-cinq pour cent"),
    ("en", "fr", "The family of 20 members", "La famille de 200 membres"),
    ("en", "fr", "The military bill of 5 euros", "La loi militaire de 500 euros"),
    ("en", "fr", "5 million", "50 000 000"),
    ("en", "fr", "EUR 1.2 billion", "12 milliards"),
    ("en", "fr", "at 8 a.m.", "à 20 h"),
    ("en", "fr", "at 12.30 p.m.", "à 0 h 30"),
    ("en", "fr", "18:30", "18,3"),
    ("en", "de", "It grew by 1.5.", "Es wuchs um 1,6."),
    ("en", "de", "10 people came.", "12/05/2004 kamen Leute."),
    ("en", "de", "5.6.2004", "5.7.2004"),
    ("en", "de", "9/11", "9/12"),
    ("en", "de", "Pages 4-8", "Seiten 4-9"),
]


@pytest.mark.parametrize(
    ("case", "certainties"),
    [
        *((case, ()) for case in SAME),
        *((case, ("possible",)) for case in POSSIBLE),
        *((case, ("sure", "likely")) for case in OTHER),
    ],
    ids=str,
)
def test_numbers(case, certainties):
    *languages, source, target = case
    for texts, codes in (((source, target), languages), ((target, source), languages[::-1])):
        missing, added, certainty = find_unmatched_numbers(*texts, tuple(codes), 12)
        assert bool(missing or added) == bool(certainties), (missing, added)
        assert not certainties or certainty in certainties
