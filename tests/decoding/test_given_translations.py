"""Translations that are given in the middle of documents: they stay, are not searched, and are context of others."""

import pytest
from test_prefixes import OVERLAP, SHORT_LIMITS, build, documents, open_gates
from test_repair import VARIANTS

from docmt.decoding import ContextConfig, SearchConfig, beam_search
from docmt.decoding.document_stream import DocumentStream
from docmt.text import SpecialTokens
from variants import ONE_OF_EACH_ORDER, SYSTEMS, in_tiers

SPECIALS = SpecialTokens(60)
SOURCES = documents(5, count=3, sentences=7, words=4)
CONTEXTS = {"whole": {}, "overlap": OVERLAP}


def translate(model, given, context=(), **settings):
    config = SearchConfig(**{"beam": 1, **SHORT_LIMITS, **settings})
    options = {"context": ContextConfig(**dict(context)), "given": given, "drafts": SOURCES}  # most read no drafts
    stream = DocumentStream(model, SOURCES, SPECIALS, config, **options)
    spans = [span for group in stream.translate() for span in group]
    found = [[] for _ in SOURCES]
    for span in spans:
        found[span.document] += span.hypotheses[0].sentences
    return found


def give(found, change=lambda words: words):
    """Return every other sentence, and all of the last document."""
    last = len(found) - 1
    return [{n: change(words) for n, words in enumerate(row) if n % 2 or d == last} for d, row in enumerate(found)]


@pytest.mark.parametrize("beam", [1, 5])
@pytest.mark.parametrize("name", ONE_OF_EACH_ORDER)
def test_given_translations_stay(name, beam):
    model = open_gates(build(1, **SYSTEMS[name]))
    given = give(translate(model, ()), lambda words: [*words, 7, 9])
    made = translate(model, given, beam=beam)
    assert [len(row) for row in made] == [len(row) for row in SOURCES]
    if name != "document":  # it has no borders of sentences: the text is put into place afterwards
        assert all(made[d][n] == list(words) for d, row in enumerate(given) for n, words in row.items())
    assert made[-1] == list(map(list, given[-1].values()))  # nothing of it is searched


@pytest.mark.parametrize("name", in_tiers(VARIANTS, ["positions by sentence", "windows"], also=["linear, fading"]))
def test_a_models_own_translations_change_nothing(name):
    model = open_gates(build(2, **VARIANTS[name]))
    plain = translate(model, ())
    assert translate(model, give(plain)) == plain


@pytest.mark.parametrize("context", CONTEXTS)
def test_other_sentences_see_them_as_the_sequential_search_does(context):
    model = open_gates(build(7))
    plain = translate(model, (), CONTEXTS[context])
    given = give(plain, lambda words: [*words[::-1], 11])
    made = translate(model, given, CONTEXTS[context])
    assert made == translate(model, given, CONTEXTS[context], sequential=True)
    assert any(made[d][n] != plain[d][n] for d, row in enumerate(plain) for n in range(len(row)) if n not in given[d])


@pytest.mark.parametrize("name", ["sentence", "group"])
def test_they_are_not_searched(name, monkeypatch):
    model, rows = build(5, **SYSTEMS[name]), []
    given = give(translate(model, ()))
    real = beam_search.BeamSearch.__init__
    monkeypatch.setattr(
        beam_search.BeamSearch,
        "__init__",
        lambda self, *args, **more: rows.extend(args[2]) or real(self, *args, **more),
    )
    translate(model, given)
    assert rows and {tuple(row.lengths) for row in rows} <= {
        (len(words),) for d, row in enumerate(SOURCES) for n, words in enumerate(row) if n not in given[d]
    }
