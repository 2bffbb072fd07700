"""`python -m benchmarks.phenomena`: documents in which one sentence decides another, and corpora of them."""

import gzip
import json
import re
from collections import Counter, defaultdict
from importlib import resources
from pathlib import Path
from random import Random

import pytest
from benchmarks.phenomena import (
    FAMILIAR,
    FILLERS,
    FORMAL,
    NAMES,
    PHENOMENA,
    SENSES,
    VERBS,
    MarkedDocument,
    main,
    make_documents,
    make_fillers,
    make_phenomenon_items,
    write_phenomena,
)
from benchmarks.synthetic.grammar import NOUNS
from benchmarks.synthetic.synthetic_corpus import write_corpus

from docmt.core.errors import DocmtError
from docmt.documents.corpus_files import ParallelDocument, read_parallel

DISTANCES = (1, 2, 3, 4)
# As many for each phenomenon and distance as hold whole groups of two, three and four versions.
DOCUMENTS = 24 * 120

YOU = {"you"}
GERMAN_YOU = {"Sie", "Ihnen", "du", "dich", "dir", "Du"}
VERB_FORMS = {form for verb in VERBS for form in (verb.did, verb.does, verb.participle, verb.german)}
PEOPLE_SPOKEN_TO = {person.english for person in (*FORMAL, *FAMILIAR)}
# For each phenomenon what English says in the deciding sentence and what it says in the marked one, and nowhere else.
CLUES = {
    "pronoun": ({noun.english for noun in NOUNS}, {"it"}),
    "sense": (set(SENSES), set(SENSES)),
    "address": (PEOPLE_SPOKEN_TO, YOU),
    "ellipsis": (VERB_FORMS, {"did", "does"}),
    "address-free": (YOU, YOU),
    "name": (*2 * ({name.untranslated.english.removeprefix("the ") for name in NAMES},),),
}

CANDIDATES = {"pronoun": 3, "sense": 2, "address": 2, "ellipsis": 4, "address-free": 2, "name": 2}
DECIDED_BY_TARGET = ("address-free", "name")


def generate(count: int, seed: int) -> list[MarkedDocument]:
    return make_documents(count, f"synthetic-{seed}", str(seed), set())


@pytest.fixture(scope="module")
def documents() -> list[MarkedDocument]:
    return generate(DOCUMENTS, seed=1)


def words(sentence: str) -> list[str]:
    return re.findall(r"\w+", sentence)


def says(sentence: str, phrases: set[str]) -> bool:
    """Return whether the sentence contains one of the phrases, in any letter case."""
    return any(re.search(rf"\b{re.escape(phrase)}\b", sentence, re.IGNORECASE) for phrase in phrases)


def deciding(item: MarkedDocument) -> int:
    return item.sentence - item.distance


def without_the_deciding_sentence(item: MarkedDocument) -> tuple[object, ...]:
    """All that a system sees of a document and its choice if it does not see the sentence that decides."""
    index = deciding(item)
    sentences = list(item.document)
    sentences[item.sentence] = (sentences[item.sentence][0], "")
    return item.phenomenon, item.sentence, item.candidates, (*sentences[:index], *sentences[index + 1 :])


def test_the_same_seed_gives_the_same_documents(documents: list[MarkedDocument]) -> None:
    assert generate(100, seed=5) == generate(100, seed=5)
    assert generate(100, seed=5) != generate(100, seed=6)
    assert [item.document.id for item in documents] == [f"synthetic-1-{number}" for number in range(DOCUMENTS)]


def test_documents_differ_and_have_five_to_eight_sentences(documents: list[MarkedDocument]) -> None:
    assert len({(item.document.source, item.document.target) for item in documents}) == DOCUMENTS
    assert Counter(len(item.document) for item in documents).keys() == {5, 6, 7, 8}
    for item in documents:
        assert len(set(item.document.source)) == len(item.document)
        assert 0 <= deciding(item) < item.sentence < len(item.document)


@pytest.mark.parametrize("count", [24, 100, 288])
def test_every_phenomenon_and_distance_has_equally_many_documents(count: int) -> None:
    cells = Counter((item.phenomenon, item.distance) for item in generate(count, seed=2))
    assert cells.keys() == {(name, distance) for name in PHENOMENA for distance in DISTANCES}
    assert cells.total() == count
    assert max(cells.values()) - min(cells.values()) <= (count % 24 > 0)


def test_too_few_documents_for_every_phenomenon_and_distance_are_refused() -> None:
    with pytest.raises(DocmtError, match=r"23 documents, too few for 6 phenomena at 4 distances\. Use 24 or more"):
        generate(23, seed=1)


def test_every_answer_is_a_candidate(documents: list[MarkedDocument]) -> None:
    assert list(PHENOMENA) == list(CANDIDATES)
    for item in documents:
        assert len(set(item.candidates)) == len(item.candidates) == CANDIDATES[item.phenomenon]
        assert item.document.target[item.sentence] == item.candidates[item.correct]


def test_versions_differ_in_the_deciding_sentence_alone(documents: list[MarkedDocument]) -> None:
    """So nothing else in a document says the answer, and who does not see that sentence is right by chance alone."""
    groups: defaultdict[object, list[MarkedDocument]] = defaultdict(list)
    for item in documents:
        groups[without_the_deciding_sentence(item)].append(item)
    for versions in groups.values():
        first = versions[0]
        assert sorted(item.correct for item in versions) == list(range(len(first.candidates)))
        assert len({item.distance for item in versions}) == 1
        index = deciding(first)
        sources = {item.document.source[index] for item in versions}
        targets = {item.document.target[index] for item in versions}
        assert len(targets) == len(versions)
        assert len(sources) == (1 if first.phenomenon in DECIDED_BY_TARGET else len(versions))


def test_a_vote_for_each_marked_sentence_is_exactly_chance(documents: list[MarkedDocument]) -> None:
    """The best sentence-level model there can be has seen every sentence in training; it is tested on others."""
    votes: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for item in documents:
        votes[item.document.source[item.sentence]][item.document.target[item.sentence]] += 1
    right: Counter[str] = Counter()
    test = generate(DOCUMENTS, seed=2)
    for item in test:
        counts = votes[item.document.source[item.sentence]]
        right[item.phenomenon] += (
            max(item.candidates, key=lambda candidate: (counts[candidate], candidate))
            == (item.document.target[item.sentence])
        )
    for name, total in Counter(item.phenomenon for item in test).items():
        assert right[name] * CANDIDATES[name] == total


@pytest.mark.full
def test_the_clue_stands_once_and_at_its_distance(documents: list[MarkedDocument]) -> None:
    for item in documents:
        clue, question = CLUES[item.phenomenon]
        for index, sentence in enumerate(item.document.source):
            if index == deciding(item):
                assert says(sentence, clue), sentence
            elif index == item.sentence:
                assert says(sentence, question), sentence
                assert says(sentence, clue) == (clue == question), sentence
            else:
                assert not says(sentence, clue | question), sentence


def test_forms_of_address_stand_where_english_says_you(documents: list[MarkedDocument]) -> None:
    for item in documents:
        if item.phenomenon.startswith("address"):
            for source, target in item.document:
                assert bool(GERMAN_YOU & set(words(target))) == says(source, YOU)


def test_an_ellipsis_has_one_verb_that_can_be_meant(documents: list[MarkedDocument]) -> None:
    """ "did" and "does" never stand for a form of "be", which is the only verb of all other sentences."""
    others = {verb.did for verb in VERBS} | {verb.does for verb in VERBS}
    for item in documents:
        if item.phenomenon == "ellipsis":
            for index, (source, target) in enumerate(item.document):
                if index not in (deciding(item), item.sentence):
                    assert len({"is", "are", "was", "were"} & set(words(source))) == 1, source
                    assert not others & set(words(source)) and not VERB_FORMS & set(words(target))


def test_fillers_name_and_address_nobody() -> None:
    pronouns = {"er", "sie", "es", "ihn", "ihm", "ihr", "ihnen", "du", "dich", "dir", "ich", "wir", "mein", "meine"}
    people = re.compile(r"\b(he|she|it|you|I|we|they|my)\b", re.IGNORECASE)
    for seed in range(300):
        for source, target in make_fillers(Random(seed), len(FILLERS)):
            assert not pronouns & {word.casefold() for word in words(target)}, target
            assert not people.search(source), source


def test_only_what_is_in_question_has_two_translations(documents: list[MarkedDocument]) -> None:
    translations: defaultdict[str, set[str]] = defaultdict(set)
    for item in documents:
        free = {item.sentence} | ({deciding(item)} if item.phenomenon in DECIDED_BY_TARGET else set())
        for index, (source, target) in enumerate(item.document):
            if index not in free:
                translations[source].add(target)
    assert [pair for pair in translations.items() if len(pair[1]) > 1] == []


def test_words_answers_and_verbs_are_equally_frequent(documents: list[MarkedDocument]) -> None:
    senses = Counter(
        next(word for word in SENSES if word in words(item.document.source[item.sentence]))
        for item in documents
        if item.phenomenon == "sense"
    )
    verbs = Counter(
        next(verb for verb in VERBS if {verb.did, verb.does} & set(words(item.document.source[deciding(item)])))
        for item in documents
        if item.phenomenon == "ellipsis"
    )
    assert senses.keys() == SENSES.keys() and len(SENSES) >= 10
    assert verbs.keys() == set(VERBS) and len(VERBS) >= 10
    for counts in (senses, verbs):
        mean = counts.total() / len(counts)
        assert all(0.5 * mean < count < 1.6 * mean for count in counts.values())


def test_sentences_are_short_and_well_formed(documents: list[MarkedDocument]) -> None:
    for item in documents:
        for sentence in (*item.document.source, *item.document.target, *item.candidates):
            assert 3 <= len(words(sentence)) <= 12, sentence
            assert sentence[0].isupper() and sentence[-1] in ".?"
            assert not re.search(r"  |[{}\[\]|=]", sentence)
            if {"dass", "woher"} & set(words(sentence)):
                assert "," in sentence


def test_things_are_declined() -> None:
    bat, letter = SENSES["bat"], SENSES["letter"]
    phrases = [
        bat[0].phrase("bat"),
        bat[1].phrase("bat"),
        letter[1].phrase("letter"),
        *(
            phrase
            for name in NAMES
            if "Red Ox" in name.untranslated.english
            for phrase in (name.translated, name.untranslated)
        ),
        *(
            phrase
            for name in NAMES
            if "King" in name.untranslated.english
            for phrase in (name.translated, name.untranslated)
        ),
    ]
    assert [(p.english, p.nominative, p.accusative, p.dative) for p in phrases] == [
        ("the bat", "die Fledermaus", "die Fledermaus", "der Fledermaus"),
        ("the bat", "der Schläger", "den Schläger", "dem Schläger"),
        ("the letter", "der Buchstabe", "den Buchstaben", "dem Buchstaben"),
        ("the Red Ox", "der Rote Ochse", "den Roten Ochsen", "dem Roten Ochsen"),
        ("the Red Ox", "das Red Ox", "das Red Ox", "dem Red Ox"),
        ("King Street", "die Königstraße", "die Königstraße", "der Königstraße"),
        ("King Street", "die King Street", "die King Street", "der King Street"),
    ]


SIZES = {"train": 2400, "dev": 48, "test": 288}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("phenomena") / "corpus"
    write_phenomena(directory, **SIZES, seed=7)
    return directory


@pytest.fixture(scope="module")
def splits(corpus: Path) -> dict[str, list[ParallelDocument]]:
    return {name: list(read_parallel(corpus / f"{name}.en", corpus / f"{name}.de")) for name in SIZES}


def test_the_files_hold_the_documents_asked_for(corpus: Path, splits: dict[str, list[ParallelDocument]]) -> None:
    texts = {f"{name}.{language}" for name in SIZES for language in ("en", "de")}
    assert {path.name for path in corpus.iterdir()} == texts | {"test.contrastive.jsonl"}
    assert {name: len(documents) for name, documents in splits.items()} == SIZES
    pairs = [(document.source, document.target) for documents in splits.values() for document in documents]
    assert len(set(pairs)) == len(pairs)


def test_no_source_document_stands_in_two_splits(splits: dict[str, list[ParallelDocument]]) -> None:
    train, dev, test = ({document.source for document in documents} for documents in splits.values())
    assert not train & dev and not train & test and not dev & test


def test_every_word_was_seen_in_training(splits: dict[str, list[ParallelDocument]]) -> None:
    def vocabulary(name: str, side: str) -> set[str]:
        sentences = (sentence for document in splits[name] for sentence in getattr(document, side))
        return {word for sentence in sentences for word in re.findall(r"\w+", sentence)}

    for side in ("source", "target"):
        known = vocabulary("train", side)
        assert len(known) < 600
        assert vocabulary("dev", side) | vocabulary("test", side) <= known


def test_the_contrastive_items_are_the_test_documents(corpus: Path, splits: dict[str, list[ParallelDocument]]) -> None:
    lines = (corpus / "test.contrastive.jsonl").read_text(encoding="utf-8").splitlines()
    cells: Counter[tuple[str, int]] = Counter()
    for number, (line, document) in enumerate(zip(lines, splits["test"], strict=True)):
        record = json.loads(line)
        assert record.keys() == {"id", "phenomenon", "distance", "source", "candidates", "correct", "sentence"}
        assert record["id"] == f"test-{number}"
        assert tuple(record["source"]) == document.source
        candidates = [tuple(candidate) for candidate in record["candidates"]]
        assert candidates[record["correct"]] == document.target
        assert len(set(candidates)) == CANDIDATES[record["phenomenon"]]
        for candidate in candidates:
            differing = [i for i, pair in enumerate(zip(candidate, document.target, strict=True)) if len(set(pair)) > 1]
            assert differing == ([] if candidate == document.target else [record["sentence"]])
        cells[record["phenomenon"], record["distance"]] += 1
    assert len(cells) == 24 and set(cells.values()) == {12}


@pytest.mark.full
def test_phenomenon_candidates_are_shuffled_in_a_fixed_way() -> None:
    documents = make_documents(5760, "synthetic-3", "3", set())
    items = make_phenomenon_items(documents)
    assert items == make_phenomenon_items(documents)
    assert items[100:] == make_phenomenon_items(documents[100:])
    for name, candidates in CANDIDATES.items():
        # Unshuffled, the first answer would always come first.
        positions = Counter(
            item["correct"]
            for item, document in zip(items, documents, strict=True)
            if item["phenomenon"] == name and document.correct == 0
        )
        shares = [positions[index] / positions.total() for index in range(candidates)]
        assert all(0.5 / candidates < share < 1.5 / candidates for share in shares), name


def test_the_shipped_test_set_is_that_of_the_generator() -> None:
    expected = make_phenomenon_items(generate(288, 5_303))  # not a seed that anybody is likely to train with
    packed = resources.files("docmt.evaluation").joinpath("test_sets", "phenomena.en-de.jsonl.gz").read_bytes()
    lines = gzip.decompress(packed).decode("utf-8").splitlines()
    assert [json.loads(line) for line in lines] == json.loads(json.dumps(expected))


def test_the_command_writes_the_same_bytes_twice(tmp_path: Path) -> None:
    for name in ("one", "two"):
        main([str(tmp_path / name), "--train", "24", "--dev", "24", "--test", "24", "--seed", "1"])
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes()


def test_splits_keep_their_documents_when_another_grows(tmp_path: Path) -> None:
    for train in (24, 48):
        write_phenomena(tmp_path / str(train), train=train, dev=24, test=24, seed=1)
    for file in ("dev.en", "test.de"):
        assert (tmp_path / "24" / file).read_bytes() == (tmp_path / "48" / file).read_bytes()


def test_one_kind_of_corpus_replaces_the_other_whole(tmp_path: Path) -> None:
    directory = tmp_path / "corpus"
    write_corpus(directory, train=3, dev=1, test=1, seed=1)
    write_phenomena(directory, train=24, dev=24, test=24, seed=1)
    assert "phenomenon" in (directory / "test.contrastive.jsonl").read_text()
    write_corpus(directory, train=3, dev=1, test=1, seed=1)
    assert "phenomenon" not in (directory / "test.contrastive.jsonl").read_text()


def test_a_split_that_is_too_small_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DocmtError, match="dev would have 10 documents, too few"):
        write_phenomena(tmp_path / "corpus", train=24, dev=10, test=24, seed=1)
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "thesis.tex").write_text("all of it")
    with pytest.raises(DocmtError, match=r"it contains thesis\.tex"):
        write_phenomena(tmp_path / "thesis", train=24, dev=24, test=24, seed=1)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["thesis", "thesis.tex"]
