"""The engine of the service: the same translations as the translator's, whoever else asks, and whatever fails."""

import asyncio
import logging
import math
import random
import threading
import time
from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch

import docmt
from docmt.checkpoint.model_directory import save_model
from docmt.core.errors import DocmtError
from docmt.decoding.search_config import between_steps
from docmt.decoding.translation_results import ResumePoint
from docmt.documents import Document
from docmt.model import ModelConfig, TranslationModel
from docmt.model.systems import Group, Hierarchical
from docmt.serve import engine as engine_module
from docmt.serve import model_pool
from docmt.serve.engine import Engine, Overloaded
from docmt.serve.model_pool import ModelNotLoaded, ModelPool, UnknownModel, estimate_bytes
from docmt.serve.work_queue import Work, WorkQueue
from docmt.terms import Glossary
from docmt.terms.matching import TermMatcher
from docmt.text import BpeTokenizer

SEARCH = docmt.SearchConfig(beam=2, max_length_ratio=0.0, max_length_extra=4.0)
WORDS = ["Anna", "bought", "a", "lamp", "it", "is", "cheap", "and", "here", "near", "the", "old", "house"]


def save(directory, languages=("en", "fr"), seed=0, **options):
    """Write a tiny model with random weights."""
    torch.manual_seed(seed)
    sizes = {"width": 16, "feed_forward": 24, "heads": 2, "encoder_layers": 1, "decoder_layers": 1}
    model = TranslationModel(ModelConfig(vocabulary_size=264, **{**sizes, "instance_tokens": 40, **options}))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    card = {"source_language": languages[0], "target_language": languages[1]}
    save_model(directory, model, BpeTokenizer.train(["a few words", "a few more words"], 264), card)
    return directory


SYSTEMS = {
    "sentence": {"system": "sentence"},
    "group": {"group": Group(encoder_layers=1, decoder_layers=1, cross_layers=1)},
    "document": {"system": "document"},
    "hierarchical": {"system": "hierarchical", "hierarchical": Hierarchical(side="decoder", sentences=1)},
}


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    return {name: save(folder / name, **options) for name, options in SYSTEMS.items()}


def make_engine(models, max_waiting_seconds=30.0, **settings):
    return Engine(ModelPool(models, **settings), max_waiting_seconds)


def add_work(engine, *arguments, align=False, **options):
    return engine.submit(Work(*arguments, align=lambda number: align, **options))


@contextmanager
def running(*models, **options):
    """A started engine of these models."""
    engine = make_engine([str(model) for model in models], search=SEARCH, **options)
    engine.start()
    try:
        yield engine
    finally:
        engine.stop()


def sentences(count, seed=0):
    """Return random sentences of one to eight words."""
    numbers = random.Random(seed)
    return [" ".join(numbers.choices(WORDS, k=numbers.randint(1, 8))) + "." for _ in range(count)]


def documents():
    """Return documents of several lengths, with empty ones and empty sentences."""
    sizes = [1, 12, 2, 0, 1, 30, 3, 1]
    made = [Document.from_sentences(sentences(size, seed)) for seed, size in enumerate(sizes)]
    return [*made, Document.from_text("Anna is here.\n\nIt is cheap."), Document(("", "It is."), ("", "\n", ""))]


def targets(parts):
    return [sentence.target for part in parts for sentence in part.translation]


def test_terms_of_the_server(models, tmp_path):
    """They hold for the models of their languages only."""
    (tmp_path / "terms.tsv").write_text("committee\tcomité\nmeasure\tdisposition\n")
    glossary = str(tmp_path / "terms.tsv")
    text = Document.from_sentences(["The committee adopted these measures."])

    async def scenario(engine):
        engine.start()
        (part,) = await add_work(engine, "en-fr-sentence", text).result()
        engine.stop()
        return part.translation

    made = asyncio.run(scenario(make_engine(["en-fr-sentence", str(models["group"])], terms=[glossary])))
    assert made.text().strip() == "Le comité a adopté ces dispositions."
    assert [use.status for use in made.sentences[0].terms] == ["second_search"] * 2
    (tmp_path / "other.tsv").write_text("source\ttarget\tsource_lang\ttarget_lang\nHaus\thouse\tde\ten\n")
    with pytest.raises(DocmtError, match=r"other\.tsv has no term for en to fr"):
        make_engine([str(models["group"])], terms=[str(tmp_path / "other.tsv")])


def test_a_glossary_of_windows_is_read_and_what_is_wrong_in_it_is_logged(models, tmp_path, caplog):
    back, path = save(tmp_path / "back", ("de", "en"), system="sentence"), tmp_path / "a.csv"
    path.write_bytes("source;target;colour\ncommittee;comité à\ncat;\n".encode("cp1252"))
    pool = ModelPool([str(back), str(models["group"])], terms=[str(path)])
    assert pool.terms.find("group").glossary.terms[0].targets == ("comité à",)
    assert f"{path}, line 1: is no UTF-8, and is read as Windows-1252 (all of the file)" in caplog.messages
    assert f"{path}, line 3: skipped: 'cat' has no translation: give one, or mark it with keep" in caplog.messages


@pytest.mark.full
def test_each_text_has_its_terms(models, tmp_path):
    """Texts that meet have the terms of their requests, which win over those of the server, and of nobody else."""
    (tmp_path / "terms.tsv").write_text("committee\tcomité\nmeasure\tdisposition\n")
    text = Document.from_sentences(["The committee adopted these measures."])

    async def scenario(engine):
        engine.start()
        entries = ["committee\tconseil", "measures\tdécisions", "Paris\tLutèce", ""]
        matchers = [await engine.make_matcher("en-fr-sentence", each) for each in entries]
        assert await engine.make_matcher("en-fr-sentence", entries[0]) is matchers[0] and matchers[3] is None
        works = [add_work(engine, "en-fr-sentence", text, terms=each) for each in [*matchers, matchers[0]]]
        made = [(await work.result())[0].translation for work in works]
        engine.stop()
        assert sorted(len(each) for each in taken) == [1, 1, 1, 2]
        return [[(use.wanted[0], use.status) for use in each.sentences[0].terms] for each in made]

    engine = make_engine(["en-fr-sentence"], terms=[str(tmp_path / "terms.tsv")], terms_mode="require")
    taken, translate = [], engine._translate
    engine._translate = lambda works: (taken.append(works), translate(works))
    assert asyncio.run(scenario(engine)) == [
        [(committee, "second_search"), (measure, "second_search")]
        for committee, measure in (
            ("conseil", "disposition"),
            ("comité", "décisions"),
            ("comité", "disposition"),
            ("comité", "disposition"),
            ("conseil", "disposition"),
        )
    ]


def test_glossaries_for_models_of_several_languages(models, tmp_path):
    """Each is read once, and is for the models of its languages; one for none, or that contradicts, is refused."""
    back = save(tmp_path / "back", ("fr", "en"), system="sentence")
    files = {"fr": "cat\tchat\ten\tfr\n", "en": "chat\tcat\tfr\ten\n", "de": "cat\tKatze\ten\tde\n"}
    for name, table in files.items():
        (tmp_path / f"{name}.tsv").write_text(table)
    paths = {name: str(tmp_path / f"{name}.tsv") for name in files}
    pool = ModelPool([str(models["group"]), str(back)], terms=[paths["fr"], paths["en"]])
    found = {name: pool.terms.find(name).glossary.terms[0].targets for name in ("group", "back")}
    assert found == {"group": ("chat",), "back": ("cat",)}
    with pytest.raises(DocmtError, match=r"de\.tsv has no term"):
        make_engine([str(models["group"]), str(back)], terms=[paths["fr"], paths["de"]])
    (tmp_path / "other.tsv").write_text("source\ttarget\tkeep\ncat\t\tyes\n")
    with pytest.raises(DocmtError, match="only one of them has 'keep'"):
        make_engine([str(models["group"]), str(back)], terms=[paths["fr"], paths["en"], str(tmp_path / "other.tsv")])
    sampling = docmt.SearchConfig(beam=1, sampling=True)
    with pytest.raises(DocmtError, match="terms need the beam search"):
        make_engine([str(models["group"])], terms=[paths["fr"]], search=sampling)
    with pytest.raises(DocmtError, match="terms need the beam search"):
        asyncio.run(make_engine([str(models["group"])], search=sampling).make_matcher("group", "cat\tchat"))


def test_protected_text_stays(models):
    text = "Anna bought lamps here."

    async def translate(engine):
        return await add_work(engine, "sentence", Document.from_sentences([text]), lane="jobs").result()

    for protect, stays in (([r"bought \w+"], True), (None, False)):
        with running(models["sentence"], protect=protect) as engine:
            (part,) = asyncio.run(translate(engine))
        assert ("bought lamps" in part.text()) is stays
        assert part.text().strip() == docmt.Translator(models["sentence"], search=SEARCH, protect=protect).translate(
            text
        )


@pytest.mark.parametrize(
    "name", [name if name == "group" else pytest.param(name, marks=pytest.mark.full) for name in SYSTEMS]
)
def test_all_together_equal_the_translator(models, name, monkeypatch):
    """Documents that meet in batches, in both lanes, have the translations and scores that they have alone."""
    monkeypatch.setattr(engine_module, "_FIRST_TURN_TOKENS", 40)
    monkeypatch.setattr(engine_module, "_LEAST_TURN_TOKENS", 40)
    monkeypatch.setattr(engine_module, "_MOST_TURN_TOKENS", 60)
    whole = docmt.Translator(models[name], search=SEARCH).translate_all(documents())

    async def translate(engine):
        works = [
            add_work(engine, name, document, lane=("interactive", "jobs")[number % 2], align=number % 3 == 0)
            for number, document in enumerate(documents())
        ]
        return await asyncio.gather(*(work.result() for work in works))

    with running(models[name]) as engine:
        results = asyncio.run(translate(engine))
        statistics = engine.statistics()
    for parts, document, wanted in zip(results, documents(), whole, strict=True):
        assert targets(parts) == [sentence.target for sentence in wanted]
        scores = [sentence.score for part in parts for sentence in part.translation]
        assert scores == pytest.approx([sentence.score for sentence in wanted], abs=1e-4)
        assert "".join(part.text() for part in parts) == wanted.text()
        assert [part.first for part in parts] == [0, *[part.resume_point.sentences for part in parts]][: len(parts)]
        assert parts[-1].resume_point.sentences == len(document)
        assert {part.document for part in parts} == {0}
    aligned = [sentence.alignment for part in results[0] for sentence in part.translation]
    assert None not in aligned and all(s.alignment is None for part in results[1] for s in part.translation)
    assert statistics["batches"] > 3 and statistics["waiting_tokens"] == {"interactive": 0, "jobs": 0}
    assert statistics["tokens_per_second"] > 0 and statistics["model_bytes"] > 0


def test_supplied_translations_and_resumed_works(models):
    """What follows an edit is translated with it; a resumed work goes on as if nothing had happened."""
    document = Document.from_sentences(sentences(20))

    async def translate(engine):
        whole = await add_work(engine, "group", document).result()
        first = targets(whole)[:7]
        rest = await add_work(engine, "group", document, targets=first).result()
        other = await add_work(engine, "group", document, targets=[*first[:6], "an edit"]).result()
        point = whole[0].resume_point
        resumed = await add_work(engine, "group", document, resume_point=point).result()
        with pytest.raises(DocmtError, match="20 sentences cannot have 21 translations"):
            await add_work(engine, "group", document, targets=["a"] * 21).result()
        return whole, rest, other, resumed, await add_work(engine, "group", document, targets=["a"] * 20).result()

    with running(models["group"]) as engine:
        engine.models._settings["search"] = replace(SEARCH, beam=1)
        whole, rest, other, resumed, nothing = asyncio.run(translate(engine))
    assert targets(whole)[7:] == targets(rest)
    assert (rest[0].first, rest[0].source.sentences[0]) == (7, document.sentences[7])
    assert len(targets(other)) == 13 and nothing == []
    assert targets(resumed) == targets(whole[1:])


@pytest.mark.parametrize("name", ["group", pytest.param("sentence", marks=pytest.mark.full)])
def test_one_very_long_sentence_does_not_hold_up_others(models, name):
    """A turn ends within it; it has one translation, and all that waits is counted."""
    chance = random.Random(2)
    long = Document.from_sentences([" ".join(chance.choices(WORDS, k=2000))])
    short = Document.from_sentences(["Anna is here."])

    async def translate(engine):
        first = asyncio.ensure_future(add_work(engine, name, long).result())
        while not engine.statistics()["batches"]:
            await asyncio.sleep(0.01)
        parts = await add_work(engine, name, short).result()
        assert not first.done()
        with engine._condition:
            engine._queue.close_all()  # as for another model
        return parts, await first

    with running(models[name]) as engine:
        parts, (whole,) = asyncio.run(translate(engine))
        statistics = engine.statistics()
    assert targets(parts) and (whole.first, len(whole.translation), whole.resume_point.sentences) == (0, 1, 1)
    assert statistics["batches"] > 3 and statistics["waiting_tokens"] == {"interactive": 0, "jobs": 0}


def test_n_best_and_links_of_given_pairs(models):
    document = Document.from_sentences(["Anna is here.", "It is cheap."])

    async def translate(engine):
        (part,) = await add_work(engine, "sentence", document, n_best=3).result()
        pairs = [(sentence.source, sentence.target) for sentence in part.translation]
        return part.translation, await engine.align("sentence", pairs)

    with running(models["sentence"]) as engine:
        translation, links = asyncio.run(translate(engine))
    translator = docmt.Translator(models["sentence"], search=replace(SEARCH, beam=3, n_best=3))
    wanted = translator.translate(document)
    assert [str(each) for each in translation.alternatives] == [str(each) for each in wanted.alternatives]
    assert len(translation.alternatives) == 2
    assert links == [tuple(each) for each in translator.align([wanted])[0].alignments()]


def test_addresses_come_out_as_they_are(models):
    """In the sentence, its alternatives, and its word links."""
    address = "https://example.org/a?b=c"
    document = Document.from_sentences([f"Anna is at {address} here."])

    async def translate(engine):
        return await add_work(engine, "sentence", document, n_best=2, align=True).result()

    with running(models["sentence"]) as engine:
        (part,) = asyncio.run(translate(engine))
    (sentence,) = part.translation
    assert sentence.source == document.sentences[0] and address in sentence.target
    assert address in part.translation.alternatives[0].text()
    linked = {sentence.target[slice(*link.target)] for link in sentence.alignment}
    assert {"example", "org"} <= linked


def test_cancelled_work_is_dropped_and_others_go_on(models, monkeypatch):
    for name in ("_FIRST_TURN_TOKENS", "_LEAST_TURN_TOKENS", "_MOST_TURN_TOKENS"):
        monkeypatch.setattr(engine_module, name, 20)

    async def translate(engine):
        long = add_work(engine, "sentence", Document.from_sentences(sentences(200)), lane="jobs")
        parts = long.parts()
        await anext(parts)
        await parts.aclose()
        other = await add_work(engine, "sentence", Document.from_sentences(["It is."]), lane="jobs").result()
        return long, other, engine.statistics()

    with running(models["sentence"]) as engine:
        long, other, statistics = asyncio.run(translate(engine))
    assert long.is_cancelled and 0 < long.finished < 100
    assert len(targets(other)) == 1 and statistics["waiting_sentences"] == {"interactive": 0, "jobs": 0}


def test_a_long_document_is_cut_into_instances_once(models, monkeypatch):
    """Not again for each turn: the time of a book would grow with the square of its length."""
    for name in ("_FIRST_TURN_TOKENS", "_LEAST_TURN_TOKENS", "_MOST_TURN_TOKENS"):
        monkeypatch.setattr(engine_module, name, 20)
    opened, original = [], docmt.Translator.open
    monkeypatch.setattr(docmt.Translator, "open", lambda *values: opened.append(values) or original(*values))

    async def translate(engine):
        return await add_work(engine, "group", Document.from_sentences(sentences(24))).result(), engine.statistics()

    with running(models["group"]) as engine:
        parts, statistics = asyncio.run(translate(engine))
    assert len(targets(parts)) == 24 and statistics["batches"] > 3 and len(opened) == 1


def test_a_search_for_terms_ends_whose_caller_has_left(models, monkeypatch):
    def search(self, *arguments):
        started.set()
        while True:
            between_steps()

    async def leave(engine):
        terms = TermMatcher(Glossary.from_pairs({"lamp": "lampe"}))
        searching = asyncio.ensure_future(engine.search_terms("sentence", SHORT, [], {}, terms))
        await asyncio.to_thread(started.wait)
        searching.cancel()
        return await engine.align("sentence", [("a lamp", "it is")])

    started = threading.Event()
    monkeypatch.setattr(docmt.Translator, "search_terms", search)
    with running(models["sentence"]) as engine:
        assert len(asyncio.run(leave(engine))) == 1


def test_a_caller_who_leaves_during_an_alignment_stops_nothing(models, monkeypatch):
    """Callers leave before the call, and while it runs. The thread goes on."""

    async def leave(engine):
        calls = [asyncio.ensure_future(engine.align("sentence", [("a lamp", "it is")])) for _ in range(2)]
        await asyncio.to_thread(started.wait)
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        go_on.set()
        (links,) = await asyncio.wait_for(engine.align("sentence", [("a lamp", "it is")]), 60)
        return links

    started, go_on = threading.Event(), threading.Event()
    with running(models["sentence"]) as engine:
        load = engine.models.load

        def load_slowly(name):
            started.set()
            go_on.wait()
            return load(name)

        monkeypatch.setattr(engine.models, "load", load_slowly)
        assert len(asyncio.run(leave(engine))) == 2
        assert engine._thread.is_alive()


def test_too_much_that_waits_is_refused(models):
    """By the seconds that it would wait; documents wait in their own lane."""
    engine = make_engine([str(models["sentence"])], search=SEARCH, max_waiting_seconds=0.1)

    async def submit():
        long = Document.from_sentences(sentences(40))
        engine.check_room("sentence")  # nothing waits: a request of any size is taken
        first = add_work(engine, "sentence", long)
        with pytest.raises(Overloaded, match="too many texts are waiting") as refusal:
            engine.check_room("sentence")
        assert refusal.value.retry_after >= 1
        job = add_work(engine, "sentence", long, lane="jobs")
        engine.start()
        return [len(targets(await work.result())) for work in (first, job)]

    assert asyncio.run(submit()) == [40, 40]
    engine.stop()


def test_the_count_of_what_waits_is_exact(models):
    """It is kept, not counted for each of a thousand texts; cancelled works do not count."""
    engine = make_engine([str(models["sentence"])], search=SEARCH)
    queue, numbers = WorkQueue(), random.Random(3)

    async def check():
        waiting = []
        for step in range(300):
            document = Document.from_sentences(sentences(numbers.randint(1, 9), step))
            waiting.append(add_work(engine, "sentence", document, lane=numbers.choice(["interactive", "jobs"])))
            queue.add(waiting[-1])
            if step % 3 == 2:
                numbers.choice(waiting).cancel()
            if step % 4 == 3:
                lane = numbers.choice(["interactive", "jobs"])
                taken = queue.take(lane, lambda model, lane: 100)
                for work in taken:
                    work.resume_point = ResumePoint(numbers.randint(0, len(work.document)))
                unfinished = [work for work in taken if work.finished < len(work.document)]
                queue.put_back(unfinished, unfinished[::2], 20)
            for lane in ("interactive", "jobs"):
                count = queue.count_tokens(lane)
                assert not queue.is_above(lane, count) and queue.is_above(lane, count - 1)
                assert queue.is_above(lane, -1)
        queue.drop_cancelled()
        assert queue._tokens == {lane: queue.count_tokens(lane) for lane in ("interactive", "jobs")}

    asyncio.run(check())


def test_single_short_texts_say_nothing_of_the_speed_of_many():
    """They take as long as a full turn. A list after them is not refused for it."""
    speed = engine_module._Speed()
    for _ in range(5):
        speed.add(10, 0.5, 1.0)
    assert (speed.tokens_per_second, speed.full_speed) == (20.0, 0.0)
    speed.add(400, 0.5, 1.0)
    assert speed.full_speed == 800.0
    speed.add(10, 2.0, 1.0)  # a slow model
    assert speed.full_speed < 800.0


def test_a_stopped_engine_fails_what_waits(models):
    engine = make_engine([str(models["sentence"])], search=SEARCH)

    async def submit():
        work = add_work(engine, "sentence", Document.from_sentences(["It is."]))
        aligned = asyncio.ensure_future(engine.align("sentence", [("a", "b")]))
        await asyncio.sleep(0)
        engine.stop()
        for waiting in (work.result(), aligned):
            with pytest.raises(DocmtError, match="the service is stopping"):
                await waiting

    asyncio.run(submit())


def test_one_fault_does_not_reach_others(models, monkeypatch, caplog):
    """An error of docmt, and one that nobody expected, fail one work alone; the engine goes on."""
    original = docmt.Translator.translate_next

    def failing(self, opened, *options):
        texts = [each.prepared.document.sentences[0] for each in opened]
        if "bad" in texts:
            raise DocmtError("it is bad.")
        if "worse" in texts:
            raise ZeroDivisionError("it is secret")
        return original(self, opened, *options)

    monkeypatch.setattr(docmt.Translator, "translate_next", failing)

    async def translate(engine):
        texts = ["bad", "It is.", "worse", "Anna is."]
        works = [add_work(engine, "sentence", Document.from_sentences([text])) for text in texts]
        return await asyncio.gather(*(work.result() for work in works), return_exceptions=True)

    with running(models["sentence"]) as engine, caplog.at_level(logging.ERROR):
        bad, first, worse, second = asyncio.run(translate(engine))
    assert str(bad) == "it is bad." and str(worse) == "the service has failed. Its log says why."
    assert len(targets(first)) == len(targets(second)) == 1
    assert "a fault in the engine" in caplog.text


def test_a_model_that_cannot_be_loaded_is_tried_once_a_turn(models, monkeypatch, caplog):
    loads, reasons = [], [MemoryError(), DocmtError("/srv/model is damaged"), DocmtError("/srv/model is damaged")]

    def fail(path, **settings):
        loads.append(path.name)
        raise reasons.pop(0)

    async def translate(engine):
        works = [add_work(engine, "sentence", Document.from_sentences(["It is."])) for _ in range(20)]
        engine.start()
        errors = await asyncio.gather(*(work.result() for work in works), return_exceptions=True)
        for ask in (add_work(engine, "sentence", SHORT).result(), engine.align("sentence", [("a", "b")])):
            with pytest.raises(ModelNotLoaded) as error:
                await ask
            errors.append(error.value)
        assert (engine.models.unloadable, engine.statistics()["failed_loads"]) == ({"sentence"}, 3)
        monkeypatch.undo()
        await add_work(engine, "sentence", SHORT).result()
        assert engine.models.unloadable == set()
        return errors

    engine = make_engine([str(models["sentence"])], search=SEARCH)
    monkeypatch.setattr(model_pool, "Translator", fail)
    errors = asyncio.run(translate(engine))
    engine.stop()
    message = "the model sentence cannot be loaded now. Try again later, or tell who runs the server."
    assert {str(error) for error in errors} == {message} and {type(error) for error in errors} == {ModelNotLoaded}
    assert loads == ["sentence"] * 3
    assert caplog.messages == [
        "the model sentence cannot be loaded: there is not enough memory",
        *["the model sentence cannot be loaded: /srv/model is damaged"] * 2,
    ]


def test_a_model_that_was_damaged_since_the_start(tmp_path):
    path = save(tmp_path / "model")
    weights = path / "model.safetensors"
    whole = weights.read_bytes()

    async def translate(engine):
        weights.write_bytes(whole[:1000])
        with pytest.raises(ModelNotLoaded):
            await add_work(engine, "model", SHORT).result()
        weights.write_bytes(whole)
        return await add_work(engine, "model", SHORT).result()

    with running(path) as engine:
        assert len(targets(asyncio.run(translate(engine)))) == 1


def test_how_long_texts_wait(models, monkeypatch):
    """Each since its last turn."""
    now = 10.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    queue = WorkQueue()

    async def check():
        nonlocal now
        engine = make_engine([str(models["sentence"])], search=SEARCH)
        works = [add_work(engine, "sentence", SHORT) for _ in range(2)]
        assert engine.statistics()["longest_waiting_seconds"] == {"interactive": 0.0, "jobs": 0.0}
        for work in works:
            now += 1.0
            queue.add(work)
        now += 1.0
        assert queue.longest_wait("interactive") == 2.0
        taken = queue.take("interactive", lambda model, lane: 1)
        queue.put_back(taken, taken, 0)
        assert queue.longest_wait("interactive") == 1.0 and queue.longest_wait("jobs") == 0.0
        works[1].cancel()
        assert queue.longest_wait("interactive") == 0.0

    asyncio.run(check())


def test_scores_that_are_no_numbers_are_errors(models, tmp_path):
    path = save(tmp_path / "broken", system="sentence")
    translator = docmt.Translator(path)
    with torch.no_grad():
        next(translator.model.parameters()).fill_(float("nan"))

    async def translate(engine):
        engine.models._loaded["broken"] = translator
        return await add_work(engine, "broken", Document.from_sentences(["It is."])).result()

    with running(path) as engine:
        (part,) = asyncio.run(translate(engine))
    assert part.translation is None and "not finite numbers" in str(part.error)


def test_models_by_name_language_and_memory(models, tmp_path):
    german = save(tmp_path / "german", ("en", "de_DE"))
    engine = make_engine([str(models["sentence"]), str(german), str(models["group"])], search=SEARCH)
    assert engine.models.find() == engine.models.find(source="en-GB") == "sentence"
    assert engine.models.find(target="de") == engine.models.find("en-de") == engine.models.find(target="DE") == "german"
    assert engine.models.find("group", "en", "FR") == "group"
    for asked in (("none",), ("group", "de"), ("", "", "es")):
        with pytest.raises(UnknownModel, match=r"there is no model .* The service has sentence \(en-fr\), german"):
            engine.models.find(*asked)
    assert [model.loaded for model in engine.models.describe()] == [False] * 3
    assert [model.reads_context for model in engine.models.describe()] == [False, True, True]
    one = engine.models.describe()[0]
    assert (one.name, one.source_language, one.target_language, one.system) == ("sentence", "en", "fr", "sentence")
    size = one.parameters * 4
    engine.models._max_bytes = 2 * size + size // 2
    for name in ("sentence", "german", "sentence", "group"):
        engine.models.load(name)
    loaded = {model.name for model in engine.models.describe() if model.loaded}
    assert "german" not in loaded and "group" in loaded and engine.models.loaded_bytes() <= engine.models._max_bytes
    with pytest.raises(DocmtError, match="have one name"):
        make_engine([str(german), str(save(tmp_path / "other" / "german"))])


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "int8"])
def test_the_bytes_of_a_model_are_those_of_its_precision(tmp_path, precision):
    sizes = {"width": 64, "feed_forward": 512, "encoder_layers": 3, "decoder_layers": 3}
    path = save(tmp_path / "model", system="sentence", **sizes)
    estimate = estimate_bytes(path, precision)
    share = {"float32": 1, "bfloat16": 0.5, "int8": 0.25}[precision]
    assert estimate == pytest.approx(share * estimate_bytes(path, "float32"), rel=0.2)
    try:
        model = docmt.Translator(path, precision=precision, device="cpu").model
    except DocmtError as error:
        pytest.skip(str(error))
    values = [value for module in model.modules() for value in (*vars(module).values(), *module.parameters(False))]
    tensors = {
        id(value) if value.layout is torch._mkldnn else value.data_ptr(): value
        for value in values
        if isinstance(value, torch.Tensor) and value.numel()
    }
    measured = sum(math.prod(each.shape) * each.element_size() for each in tensors.values())
    assert measured == pytest.approx(estimate, rel=0.15)


def test_owners_take_turns(models):
    """Whoever has many texts waits for their own; a rest that fits into the next turn is the next."""
    engine, queue = make_engine([str(models["sentence"])]), WorkQueue()

    async def take_all():
        for owner in "aaaaabbc":
            queue.add(add_work(engine, "sentence", SHORT, owner=owner))
        order = []
        while works := queue.take("interactive", lambda model, lane: 1):
            order += [work.owner for work in works]
            if len(order) == 2:
                queue.put_back(works, (), 1)  # it was interrupted, and is the next one
        return "".join(order)

    assert asyncio.run(take_all()) == "abbcabaaa"


@pytest.mark.full
def test_a_slow_book_is_no_reason_to_refuse_a_list(models):
    """The speed of documents says nothing of short texts, and an empty queue takes every request."""
    texts = [Document.from_sentences(["Anna bought an old house near the old house. " * 4]) for _ in range(20)]

    async def check(engine):
        await add_work(engine, "sentence", Document.from_sentences(sentences(60)), lane="jobs").result()
        assert engine._speeds["sentence", "jobs"].tokens_per_second > 0
        engine._speeds["sentence", "jobs"].full_speed = 10.0
        for _ in range(2):
            engine.check_room("sentence")
            works = [add_work(engine, "sentence", text) for text in texts]
            engine.check_room("sentence")
            await asyncio.gather(*(work.result() for work in works))
        engine._speeds["sentence", "interactive"].full_speed = 10.0
        engine.check_room("sentence")

    with running(models["sentence"]) as engine:
        asyncio.run(check(engine))


def test_who_has_less_than_a_fair_share_is_let_in(models):
    engine = make_engine([str(models["sentence"])], search=SEARCH, max_waiting_seconds=0.1)

    async def check():
        for _ in range(40):
            add_work(engine, "sentence", SHORT, owner="a")
        engine.check_room("sentence", "b")
        with pytest.raises(Overloaded):
            engine.check_room("sentence", "a")
        add_work(engine, "sentence", SHORT, owner="b")
        engine.check_room("sentence", "b")
        for _ in range(40):
            add_work(engine, "sentence", SHORT, owner="b")
        with pytest.raises(Overloaded):
            engine.check_room("sentence", "b")

    asyncio.run(check())


def test_a_turn_is_of_one_lane(models):
    """Who was served goes to the end; a rest that fits into the next turn is the next."""
    engine, queue, order = make_engine([str(models["sentence"])]), WorkQueue(), []

    async def fill():
        engine._queue = queue
        for number in range(3):
            for lane in ("interactive", "jobs"):
                add_work(engine, "sentence", Document.from_sentences(["It is."], id=f"{lane[0]}{number}"), lane=lane)

    asyncio.run(fill())
    assert queue.list_waiting() == ["interactive", "jobs"]
    for _ in range(4):
        (work,) = queue.take("interactive", lambda model, lane: 1)
        order.append(work.document.id)
        queue.put_back([work], [work], 1)
    assert order == ["i0", "i1", "i2", "i0"]
    taken = queue.take("jobs", lambda model, lane: 10**6)
    first = [work.document.id for work in taken]
    assert first == ["j0", "j1", "j2"] and queue.list_waiting() == ["interactive"]
    queue.put_back(taken, taken[:1], 1)
    taken = queue.take("jobs", lambda model, lane: 10**6)
    assert [work.document.id for work in taken] == [*first[1:], first[0]]
    queue.put_back(taken, taken[:1], 100)
    assert queue._lanes["jobs"][0] is taken[0]


class Steps:
    """A search whose steps last until they are let go, for texts with these words."""

    def __init__(self, monkeypatch, word):
        self.started, self.go_on, original = threading.Event(), threading.Event(), docmt.Translator.translate_next
        self.finished = 0

        def translate_next(translator, opened, *options):
            if any(word in each.prepared.document.sentences[0] for each in opened):
                self.started.set()
                while not self.go_on.is_set():
                    time.sleep(0.001)
                    between_steps()
            parts = original(translator, opened, *options)
            self.finished += 1
            return parts

        monkeypatch.setattr(docmt.Translator, "translate_next", translate_next)

    async def wait(self):
        await asyncio.to_thread(self.started.wait)


BOOK, SHORT = Document.from_sentences(["book one", "It is."]), Document.from_sentences(["Anna is here."])


def test_short_texts_and_alignments_interrupt_a_document(models, monkeypatch):
    """Its turn goes on after them, with the same translation, and gets a share of the time."""
    steps, whole = Steps(monkeypatch, "book"), docmt.Translator(models["group"], search=SEARCH).translate(BOOK)

    async def translate(engine):
        book = asyncio.ensure_future(add_work(engine, "group", BOOK, lane="jobs").result())
        await steps.wait()
        parts = [await add_work(engine, "group", SHORT).result() for _ in range(3)]
        links = await engine.align("group", [("a lamp", "it is")])
        other = await add_work(engine, "sentence", SHORT, n_best=2).result()
        assert not book.done() and len(engine._turns) == 1
        assert steps.finished == 4
        steps.go_on.set()
        return parts, links, other, await book

    with running(*models.values()) as engine:
        parts, links, other, book = asyncio.run(translate(engine))
    assert len({tuple(targets(each)) for each in parts}) == len(links) == len(other[0].translation.alternatives) == 1
    assert targets(book) == [sentence.target for sentence in whole]


def test_no_text_interrupts_whose_model_would_unload_that_of_the_turn(models, monkeypatch):
    """Both would be in memory then; it waits for the end of the turn."""
    steps = Steps(monkeypatch, "book")

    async def translate(engine):
        book = asyncio.ensure_future(add_work(engine, "group", BOOK, lane="jobs").result())
        await steps.wait()
        other = asyncio.ensure_future(add_work(engine, "sentence", SHORT).result())
        await asyncio.sleep(0.1)
        assert not other.done() and list(engine.models._loaded) == ["group"]
        steps.go_on.set()
        return targets(await book), targets(await other)

    with running(models["group"], models["sentence"], max_bytes=2**20) as engine:
        engine.models._max_bytes = (
            2 * min(estimate_bytes(models[name], "float32") for name in ("group", "sentence")) - 1
        )
        book, other = asyncio.run(translate(engine))
    assert (len(book), len(other)) == (2, 1)


def test_a_text_that_takes_too_long_waits_for_others(models, monkeypatch):
    monkeypatch.setattr(engine_module, "_SHORT_TURN_SECONDS", 0.01)
    monkeypatch.setattr(engine_module, "_LONG_TURN_SECONDS", 0.01)
    steps = Steps(monkeypatch, "book")

    async def translate(engine):
        long = asyncio.ensure_future(add_work(engine, "sentence", BOOK).result())
        await steps.wait()
        parts = await add_work(engine, "sentence", SHORT).result()
        assert not long.done()
        steps.go_on.set()
        return targets(parts), targets(await long)

    with running(models["sentence"]) as engine:
        short, long = asyncio.run(translate(engine))
    assert (len(short), len(long)) == (1, 2)


@pytest.mark.parametrize("lane", ["jobs", "interactive"])
def test_a_turn_that_nobody_wants_ends(models, monkeypatch, lane):
    """The others of a turn are tried again."""
    steps = Steps(monkeypatch, "book")

    async def translate(engine):
        work = add_work(engine, "sentence", BOOK, lane=lane)
        await steps.wait()
        waiting = asyncio.ensure_future(add_work(engine, "sentence", SHORT, lane=lane).result())
        work.cancel()
        return await waiting

    with running(models["sentence"]) as engine:
        assert len(targets(asyncio.run(translate(engine)))) == 1
    assert steps.finished == 1


@pytest.mark.parametrize("lane", ["jobs", "interactive"])
def test_a_stop_ends_a_turn(models, monkeypatch, lane):
    """Of documents at once, of short texts after some seconds; those who wait are told."""
    monkeypatch.setattr(engine_module, "_STOP_SECONDS", 0.2)
    steps = Steps(monkeypatch, "book")

    async def translate(engine):
        work = asyncio.ensure_future(add_work(engine, "sentence", BOOK, lane=lane).result())
        await steps.wait()
        started = time.monotonic()
        await asyncio.to_thread(engine.stop)
        with pytest.raises(DocmtError, match="the service is stopping"):
            await work
        return time.monotonic() - started

    with running(models["sentence"]) as engine:
        seconds = asyncio.run(translate(engine))
    assert (seconds >= 0.2) is (lane == "interactive") and not engine._thread.is_alive()


def test_documents_get_a_share_of_the_time_beside_many_short_texts(models, monkeypatch):
    """Short texts are always there, and the book becomes ready."""

    async def translate(engine):
        book = asyncio.ensure_future(
            add_work(engine, "sentence", Document.from_sentences(sentences(60)), lane="jobs").result()
        )

        async def flood():
            while not book.done():
                await add_work(engine, "sentence", SHORT).result()

        await asyncio.gather(*(flood() for _ in range(4)))
        return await book

    with running(models["sentence"]) as engine:
        assert len(targets(asyncio.run(translate(engine)))) == 60


def test_only_the_engine_thread_translates(models, monkeypatch):
    names, original = set(), docmt.Translator.translate_next
    monkeypatch.setattr(
        docmt.Translator,
        "translate_next",
        lambda self, *arguments, **options: (
            names.add(threading.current_thread().name) or original(self, *arguments, **options)
        ),
    )

    async def translate(engine):
        work = add_work(engine, "sentence", Document.from_sentences(["It is."]), resume_point=ResumePoint(0))
        return await work.result()

    with running(models["sentence"]) as engine:
        assert len(targets(asyncio.run(translate(engine)))) == 1
    assert names == {"docmt-engine"}


def test_others_of_a_failed_turn_go_on_when_nobody_wants_one_of_them(models, monkeypatch):
    """Each is tried alone after the failure of all; one ends early, because its caller has gone away."""
    steps, original = Steps(monkeypatch, "book"), docmt.Translator.translate_next

    def fail_together(translator, opened, *options):
        if len(opened) > 1:
            raise DocmtError("too much at once.")
        return original(translator, opened, *options)

    monkeypatch.setattr(docmt.Translator, "translate_next", fail_together)

    async def translate(engine):
        unwanted, *works = (add_work(engine, "sentence", document) for document in (BOOK, SHORT, SHORT))
        engine.start()
        await steps.wait()
        unwanted.cancel()
        return await asyncio.wait_for(asyncio.gather(*(work.result() for work in works)), 30)

    engine = make_engine([str(models["sentence"])], search=SEARCH)
    try:
        assert [len(targets(each)) for each in asyncio.run(translate(engine))] == [1, 1]
    finally:
        engine.stop()


def test_what_waits_is_counted_under_the_lock(models, monkeypatch):
    """Others submit meanwhile, and a deque that changes cannot be counted."""
    engine, original = make_engine([str(models["sentence"])], search=SEARCH), WorkQueue.is_above

    def is_above(queue, *arguments):
        assert engine._condition._is_owned()
        return original(queue, *arguments)

    monkeypatch.setattr(WorkQueue, "is_above", is_above)

    async def translate():
        engine.start()
        await engine.align("sentence", [("a lamp", "it is")])
        return await add_work(engine, "sentence", SHORT).result()

    try:
        assert len(targets(asyncio.run(translate()))) == 1
    finally:
        engine.stop()
