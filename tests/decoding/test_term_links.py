"""Links of words that stand for terms."""

from docmt.decoding.translation_results import TermUse, TranslatedSentence, link_terms
from docmt.documents.words import WordLink

SOURCE, TARGET = "read the annual report", "le compte rendu annuel"
READ, REPORT, ANNUAL = (0, 4), (16, 22), (9, 15)


def translate(target, *uses):
    return TranslatedSentence(SOURCE, target, 0.0, (0, len(SOURCE)), (0, len(target)), terms=uses)


def link(target, *pairs):
    return [WordLink(source, (at := target.index(word), at + len(word)), 0.5, True) for word, source in pairs]


def test_words_of_a_term_lead_to_its_words():
    links = link(TARGET, ("le", READ), ("compte", READ), ("rendu", READ), ("annuel", ANNUAL))
    use = TermUse((9, 22), "annual report", ("compte rendu annuel",), "compte rendu annuel", "second_search")
    assert [each.source for each in link_terms(translate(TARGET, use), links)] == [READ, REPORT, REPORT, ANNUAL]
    assert link_terms(translate(TARGET), links) == tuple(links)


def test_terms_without_a_place_leave_the_links():
    links = link(TARGET, ("le", READ), ("annuel", READ))
    lost = TermUse((9, 22), "annual report", ("x",), "", "lost")
    assert link_terms(translate(TARGET, lost), links) == tuple(links)
    twice = TermUse((9, 22), "annual report", ("x",), "e", "met")
    assert link_terms(translate(TARGET, twice), links) == tuple(links)
