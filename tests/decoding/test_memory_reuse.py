"""Translations with a memory: its sentences word for word, the others as without it, and what is told of each."""

import json

import pytest

import docmt
from docmt.terms import Glossary, Memory

TEXTS = [
    "Nothing here is new.",
    "The committee adopted these measures.",
    "It is a good report of 3 pages.",
    "We thank the citizens.",
    "The programme is old.",
]
PAIRS = [(TEXTS[1], "Le comité a  pris ces mesures-là…"), ("Another one.", "Un autre."), (TEXTS[3], "Merci à tous !")]


@pytest.fixture(scope="module", params=["en-fr-sentence", pytest.param("en-fr", marks=pytest.mark.full)])
def translator(request):
    return docmt.Translator(request.param, search=docmt.SearchConfig(beam=2))


@pytest.fixture(scope="module")
def plain(translator):
    return translator.translate(docmt.Document.from_sentences(TEXTS))


def targets(translation):
    return [sentence.target for sentence in translation]


def test_a_memory_is_obeyed_and_the_rest_stays(translator, plain):
    made = translator.with_memory(Memory.from_pairs(PAIRS)).translate(docmt.Document.from_sentences(TEXTS))
    assert [sentence.memory for sentence in made] == ["", "exact", "", "exact", ""]
    assert targets(made)[1::2] == ["Le comité a pris ces mesures-là…", "Merci à tous !"]
    assert made.text() == "\n".join(targets(made)) + "\n"
    if translator.model.config.system == "sentence":
        assert targets(made)[::2] == targets(plain)[::2]
    records = [sentence.to_json() for sentence in made]
    assert [records[1][name] for name in ("origin", "match", "score")] == ["memory", 100, 0.0]
    assert "origin" not in records[0] and json.dumps(records)
    assert translator.with_memory(None).translate(docmt.Document.from_sentences(TEXTS)) == plain


def test_without_a_sentence_of_it_a_text_is_the_same(translator, plain):
    memory = Memory.from_pairs([("The zebra sleeps.", "Le zèbre dort.")])
    made = translator.with_memory(memory).translate(docmt.Document.from_sentences(TEXTS))
    assert made == plain and made.score == plain.score


def test_a_model_that_reads_context_sees_what_is_reused(translator):
    if translator.model.config.system == "sentence":
        pytest.skip("it reads none")
    source = docmt.Document.from_sentences(TEXTS)
    greedy = translator.with_search(docmt.SearchConfig(beam=1))
    made = greedy.with_memory(Memory.from_pairs(PAIRS)).translate(source)
    scored = greedy.score(source, docmt.Document.from_sentences(targets(made)))
    for number in (0, 2, 4):
        assert made.sentences[number].score == pytest.approx(scored.sentences[number].score, abs=1e-3)


def test_translations_that_contradict_each_other_are_told(translator, plain):
    memory = Memory.from_pairs([(TEXTS[1], "a b"), ("x y", "z"), (TEXTS[1], "c d")])
    made = translator.with_memory(memory).translate(docmt.Document.from_sentences(TEXTS))
    assert [sentence.memory for sentence in made] == ["", "conflict", "", "", ""]
    assert targets(made) == targets(plain) and "origin" not in made.sentences[1].to_json()


def test_terms_are_reported_but_not_put_into_what_is_reused(translator):
    glossary = Glossary.from_pairs({"committee": "commission", "measure": "mesure", "programme": "plan"})
    both = translator.with_terms(glossary, "require").with_memory(Memory.from_pairs(PAIRS))
    made = both.translate(docmt.Document.from_sentences(TEXTS))
    assert targets(made)[1] == "Le comité a pris ces mesures-là…"
    assert [(use.term, use.status) for use in made.sentences[1].terms] == [
        ("committee", "lost"),
        ("measure", "other_form"),
    ]
    assert "plan" in made.sentences[4].target


def test_numbers_and_missing_text_of_a_memory_are_its_own(translator):
    memory = Memory.from_pairs([(f"{TEXTS[2][:-1]} and it has many words about trade and energy in Europe.", "Oui 7.")])
    made = translator.with_memory(memory).translate(docmt.Document.from_sentences([next(iter(memory.entries))]))
    assert targets(made) == ["Oui 7."] and made.warnings() == [[]]


def test_alternatives_have_it_too(translator):
    search = docmt.SearchConfig(beam=3, n_best=3)
    made = (
        translator.with_search(search)
        .with_memory(Memory.from_pairs(PAIRS))
        .translate(docmt.Document.from_sentences(TEXTS))
    )
    assert [targets(each)[1] for each in (made, *made.alternatives)] == ["Le comité a pris ces mesures-là…"] * 3
    assert len({targets(each)[2] for each in (made, *made.alternatives)}) > 1


def test_a_sentence_that_would_be_cut_is_reused_whole(translator):
    short = translator.with_search(docmt.SearchConfig(beam=1, sentence_tokens=12))
    long = "The committee adopted these measures, and it thanked the citizens, because the programme is very old."
    memory = Memory.from_pairs([(long, "Une seule phrase, entière.")])
    source = docmt.Document.from_sentences([TEXTS[0], long, f"Again, {long}"])
    made, parts = short.with_memory(memory).translate(source), short.with_memory(memory).stream_parts([source])
    assert made.sentences[1].target == "Une seule phrase, entière." and len(made) == 3
    assert targets(made)[::2] == targets(short.translate(source))[::2] or translator.model.config.system != "sentence"
    assert "".join(part.text() for group in parts for part in group) == made.text()


@pytest.mark.parametrize("supply", ["resume", "memory"])
def test_a_model_sees_protected_text_of_what_is_supplied_as_its_own(translator, supply):
    text = "See https://example.org/a/b for the report of {name}."
    source = docmt.Document.from_sentences([text, TEXTS[1]])
    (own, _), decode = translator.translate(source), translator.tokenizer.decode_batch
    assert "https://example.org/a/b" in own.target and "https" not in decode([own.token_ids], "target")[0]
    if supply == "resume":
        (ids,) = translator.resume_after(translator.prepare(source), [own.target]).history[0]
    else:
        ids = translator.with_memory(Memory.from_pairs([(text, own.target)])).open(source).prepared.given[0]
    assert decode([ids], "target") == decode([own.token_ids], "target")


def test_it_resumes_where_it_stopped(translator):
    source = docmt.Document.from_sentences(TEXTS)
    reuse = translator.with_memory(Memory.from_pairs(PAIRS))
    supplied = ["Rien.", "Autre chose.", "Un rapport."]
    point = reuse.resume_after(reuse.prepare(source), supplied)
    ((part,),) = reuse.stream_parts([source], resume_points={0: point}, look_ahead=10_000)
    assert part.first == 3 and targets(part.translation)[0] == "Merci à tous !"
