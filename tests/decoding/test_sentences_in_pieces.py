"""Long sentences are translated in pieces, and missing text is searched again: all others see whole sentences."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from reference_search import SHORT_LIMITS, SPECIALS, build
from test_translator import save

import docmt
from docmt.decoding.document_stream import DocumentStream, translate_next
from docmt.decoding.second_search import complete_translations
from docmt.decoding.translation_results import PreparedDocument, TranslatedSentence, Translation
from docmt.documents import Document
from docmt.documents.protected_text import Protection
from docmt.documents.words import WordLink, find_words
from variants import SYSTEMS, in_tiers, split_settings

LONG = "the old house, near the lake and the hill; it was cheap, but nobody bought it because it had no roof"
TEXTS = [Document.from_sentences(["a lamp", LONG, "it is here", f"{LONG} {LONG}"]), Document.from_sentences(["a few"])]
SEARCH = docmt.SearchConfig(beam=2, sentence_tokens=30, max_length_ratio=1.5)

NUMBERS = [[0, 1, 1, 1, 1, 1, 2, 2, 2, 3, 4, 4, 4, 4, 4, 4, 5], [0], [0, 0, 0, 0, 0], [0, 0, 1]]
PIECES = [[[5 + n % 20, 6 + n % 7, 7][: 1 + n % 3] for n in range(len(numbers))] for numbers in NUMBERS]
STREAMS = ["sentence", "group", "concat, keep prefix", "hierarchical"]


@pytest.mark.parametrize("name", in_tiers([each for each in STREAMS if each in SYSTEMS], ["group"]))
@pytest.mark.full
def test_spans_end_with_whole_sentences_and_can_be_resumed(name):
    model = build(3, **{"instance_tokens": 16, "encoder_layers": 2, "decoder_layers": 2, **SYSTEMS[name]})
    config, options = split_settings({"beam": 2, "batch_tokens": 12, **SHORT_LIMITS})

    def make_stream(**more):
        options_and_more = {**options, "look_ahead": 10, "yield_errors": True, **more}
        return DocumentStream(model, PIECES, SPECIALS, config, **options_and_more)

    def results(lists):
        return {
            (span.document, span.first + number): span.hypotheses[0].sentences[number]
            for spans in lists
            for span in spans
            for number in range(span.last - span.first)
        }

    whole = results(make_stream().translate())
    lists = list(make_stream(numbers=NUMBERS).translate())
    assert results(lists) == whole and len(lists) > 2
    for span in (span for spans in lists for span in spans):
        numbers = NUMBERS[span.document]
        assert span.last == len(numbers) or numbers[span.last] != numbers[span.last - 1]
    for count in range(0, len(lists), 3):
        points = {span.document: span.resume_point for spans in lists[:count] for span in spans}
        rest = make_stream(numbers=NUMBERS, resume_points=points).translate()
        assert results(rest) == results(lists[count:])
    stream, turns, within = make_stream(numbers=NUMBERS), [], 0
    while stream.count_tokens():
        left = stream.count_tokens()
        turns.append([span for _, span in translate_next([stream], 8)])
        assert stream.count_tokens() < left, "every turn ends, within a long sentence too"
        within += stream.is_within_sentence
    assert results(turns) == whole and within and not stream.is_within_sentence


def test_a_fault_in_a_piece_is_the_fault_of_its_sentence(monkeypatch):
    model = build(3, instance_tokens=8, system="sentence")
    stream = DocumentStream(model, PIECES[:1], SPECIALS, docmt.SearchConfig(beam=1), numbers=NUMBERS, yield_errors=True)
    error = docmt.DocmtError("no")
    ends = stream._task.instances.last.tolist()
    pairs = [
        (i, error if last in (3, 4) else [SimpleNamespace(first=last - 1, last=last)]) for i, last in enumerate(ends)
    ]
    assert stream.join_instances(pairs[:3][1:]) is None
    span = stream.join_instances(pairs[3:6])
    assert (span.first, span.last, span.error) == (1, 6, error)


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return save(tmp_path_factory.mktemp("models") / "model", instance_tokens=33)


@pytest.fixture(scope="module")
def translator(directory):
    return docmt.Translator(directory, search=SEARCH, device="cpu")


def test_short_sentences_are_translated_as_before(directory, translator):
    document = Document.from_text("A lamp. It is here.\n\nA few words.")
    whole = docmt.Translator(directory, search=replace(SEARCH, sentence_tokens=10_000), device="cpu")
    assert translator.translate(document) == whole.translate(document)
    assert whole.prepare(TEXTS[0]).words != translator.prepare(TEXTS[0]).words
    published = translator.with_search(replace(SEARCH, implementation="gtransformer"))
    assert published.prepare(TEXTS[0]).words == whole.prepare(TEXTS[0]).words


def test_a_long_sentence_has_one_translation(translator):
    """Its pieces are sentences to the model, also for alignment; parts, spans and scores are of whole sentences."""
    prepared = translator.prepare(TEXTS[0])
    assert len(prepared.words) > len(TEXTS[0]) and max(map(len, prepared.words)) <= 30
    assert prepared.lengths()[0] == len(prepared.words[0]) and len(prepared.lengths()) == len(TEXTS[0])
    (translation,) = translator.translate([TEXTS[0]])
    (pieces,) = translator.translate([prepared.document])
    assert len(translation) == len(TEXTS[0]) and translation.document.gaps == TEXTS[0].gaps
    for sentence, source, span in zip(translation, TEXTS[0], TEXTS[0].spans(), strict=True):
        assert (sentence.source, sentence.source_span) == (source, span)
        assert translation.text()[slice(*sentence.target_span)] == sentence.target
    assert translation.sentences[2].target == pieces.sentences[prepared.numbers.index(2)].target
    scores = [0.0] * len(translation)
    for number, piece in zip(prepared.numbers, pieces, strict=True):
        scores[number] += piece.score
    assert [sentence.score for sentence in translation] == pytest.approx(scores)
    (aligned,) = translator.align([translation])
    for sentence in aligned:
        words = find_words(sentence.source)
        assert all(link.source in words for link in sentence.alignment)
        for source, target in sentence.pieces:
            links = [link for link in sentence.alignment if target[0] <= link.target[0] < target[1]]
            assert links and all(source[0] <= link.source[0] < link.source[1] <= source[1] for link in links)


@pytest.mark.full
def test_parts_and_resume_points_count_whole_sentences(translator):
    whole = translator.translate(TEXTS)
    parts = [part for group in translator.stream_parts(TEXTS, look_ahead=10) for part in group]
    assert [part.text() for part in parts if part.document == 0] != [whole[0].text()]
    assert "".join(part.text() for part in parts if part.document == 0) == whole[0].text()
    for part in parts[:-1]:
        assert part.first + len(part.source) == part.resume_point.sentences
        rest = translator.stream_parts([TEXTS[part.document]], look_ahead=10, resume_points={0: part.resume_point})
        texts = [each.text() for group in rest for each in group]
        expected = [each.text() for each in parts if each.document == part.document and each.first > part.first]
        assert texts == expected
    targets = [sentence.target for sentence in whole[0]][:2]
    point = translator.resume_after(translator.prepare(TEXTS[0]), targets)
    assert point.sentences == 2
    (group,) = translator.stream_parts([TEXTS[0]], resume_points={0: point})
    assert len(group[0].translation) == 2


def no_terms(*searched):
    raise AssertionError("a translator without terms searches none")


class LosesWords:
    """Copies at most so many words of a sentence."""

    languages, protection, patterns, terms, consistent = ("en", "fr"), Protection(), (), None, False

    def __init__(self, most, **search):
        self.most, self.searches = most, []
        self.search = docmt.SearchConfig(**search)

    def encode(self, sentences, side):
        return [list(range(len(sentence.split()))) for sentence in sentences]

    def prepare(self, document):
        words = self.encode(document.sentences, "source")
        return PreparedDocument(document, words, document, range(len(document)))

    def translate_all(self, prepared):
        self.searches.append([each.document.sentences for each in prepared])
        return [self.translate(each.document) for each in prepared]

    def translate(self, document):
        targets = [" ".join(sentence.split()[: self.most]) for sentence in document]
        sentences = tuple(
            TranslatedSentence(source, target, -1.0, (0, len(source)), (0, len(target)), tokens=len(target.split()) + 1)
            for source, target in zip(document, targets, strict=True)
        )
        return Translation(document.replace_sentences(targets), sentences, -1.0, at_limit=(1,))

    def align(self, translations, wanted):
        return [
            {n: tuple(WordLink(span, span, 1.0, True) for span in find_words(s.target)) for n, s in enumerate(each)}
            for each in translations
        ]


WORDS = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen " + "a b c d"
LOSSES = [
    (100, {}, WORDS, (), 0),
    (14, {}, " ".join(WORDS.split()[:14]), (), 0),  # six words do not count
    (12, {}, WORDS, (), 1),
    (2, {}, "one two eleven twelve", (1,), 1),
    (9, {"beam": 1, "sampling": True}, " ".join(WORDS.split()[:9]), (1,), 0),
    (9, {"implementation": "thumt"}, " ".join(WORDS.split()[:9]), (1,), 0),
]


@pytest.mark.parametrize(("most", "search", "text", "missing", "searches"), LOSSES)
def test_missing_text_is_searched_again_once_and_reported(most, search, text, missing, searches):
    translator = LosesWords(most, **search)
    source = translator.prepare(Document.from_sentences(["one two three four five", WORDS, "six"]))
    first = translator.translate(source.document)
    (translation,) = complete_translations(
        translator, [source], [first], translator.translate_all, translator.align, no_terms
    )
    assert len(translator.searches) == searches
    assert (translation.sentences[1].target, translation.missing) == (text, missing)
    assert translation.warnings()[1] == ["length_limit"] * (searches == 0 or bool(missing)) + ["missing_text"] * len(
        missing
    )
    assert translation.text().split("\n")[1] == text


class LosesNumbers(LosesWords):
    """Copies a sentence without these texts, and with others in the place of words."""

    def __init__(self, lost, replaced=None, **search):
        super().__init__(10_000, **search)
        self.lost, self.replaced = lost, replaced or {}

    def translate(self, document):
        made = super().translate(document)
        targets = [
            " ".join(self.replaced.get(word, word) for word in target.split() if word not in self.lost)
            for target in made.document
        ]
        rows = zip(made.sentences, targets, strict=True)
        return replace(
            made,
            document=document.replace_sentences(targets),
            sentences=tuple(replace(row, target=target) for row, target in rows),
        )


PRICE = "the price is $ 5 for 1,200 parts"
WRITTEN = PRICE.replace("1,200", "1\u00a0200")  # with the separator of French
NUMBER_FAULTS = [
    ("the price is $ 5", (), {}, {}, "the price is $ 5", ()),
    (PRICE, ("5",), {}, {}, WRITTEN, ()),  # small, and not in words
    (PRICE, ("1,200",), {}, {}, WRITTEN, ()),
    (PRICE, (), {"5": "cinq"}, {}, PRICE.replace("5", "cinq"), ()),
    (PRICE, (), {"parts": "parts 77"}, {}, f"{PRICE} 77", ()),  # again: no better
    ("pi is 3.14 at 10.3.14.1 or 3.14.", ("3.14", "3.14."), {}, {}, "pi is 3,14 at 10.3.14.1 or 3,14.", ()),
    ("use bzip2 now", (), {"bzip2": "beep"}, {}, "use bzip2 now", ()),
    ("row 1, column 1", (), {"column": "col", "1": "one"}, {}, "row 1, col 1", ()),
    ("it cost $3bn here", (), {"$3bn": "3 $"}, {}, "it cost $3bn here", ()),
    ("the end is .00 now", (), {"now": "now .00"}, {}, "the end is .00 now .00", ()),
    (PRICE, ("1,200",), {}, {"beam": 1, "sampling": True}, "the price is $ 5 for parts", ()),
]


@pytest.mark.parametrize(("source", "lost", "replaced", "search", "text", "missing"), NUMBER_FAULTS)
def test_lost_numbers_are_searched_again_as_protected_text(source, lost, replaced, search, text, missing):
    translator = LosesNumbers(lost, replaced, **search)
    prepared = translator.prepare(Document.from_sentences(["a lamp", source]))
    first = translator.translate(prepared.document)
    (made,) = complete_translations(
        translator, [prepared], [first], translator.translate_all, translator.align, no_terms
    )
    assert (made.sentences[1].target, made.missing) == (text, missing)
    assert made.sentences[1].source == source and made.text() == f"a lamp\n{text}\n"
    is_changed = first.sentences[1].target != text
    assert made.sentences[1].pieces == ((((0, len(source)), (0, len(text))),) if is_changed else ())
    assert bool(translator.searches) == (is_changed or "77" in text)


def test_numbers_that_a_second_search_loses_are_reported():
    translator = LosesNumbers(("5",))

    def fail(prepared):
        made = [translator.translate(each.document) for each in prepared]
        return [replace(each, sentences=(replace(each.sentences[0], score=float("nan")),)) for each in made]

    prepared = translator.prepare(Document.from_sentences([PRICE, "a lamp"]))
    first = translator.translate(prepared.document)
    (made,) = complete_translations(translator, [prepared], [first], fail, translator.align, no_terms)
    assert made.missing == (0,) and made.document == first.document


def test_numbers_of_sentences_that_were_joined_are_not_lost():
    translator = LosesNumbers(())
    prepared = translator.prepare(Document.from_sentences(["a lamp is 50", PRICE, "it is 70"]))
    first = translator.translate(prepared.document)
    targets = ["a lamp is 50", f"{PRICE} and it is 70", ""]
    rows = tuple(replace(row, target=target) for row, target in zip(first.sentences, targets, strict=True))
    first = replace(first, sentences=rows, document=prepared.document.replace_sentences(targets), miscounted=((1, 3),))
    (made,) = complete_translations(
        translator, [prepared], [first], translator.translate_all, translator.align, no_terms
    )
    assert made == first and not translator.searches
