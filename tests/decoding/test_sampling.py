"""Sampled translations: frequencies, scores, seeds, batches, ensembles, and what does not go together."""

import json
from collections import Counter

import numpy as np
import pytest
import torch
from commands import call
from reference_search import (
    DOCUMENTS,
    SHORT_LIMITS,
    SPECIALS,
    ReferenceRow,
    build,
    score_documents,
    score_next,
    translate_documents,
)
from tiny_model import save_tiny_model

from docmt.core.errors import DocmtError
from docmt.data import SentenceTokens
from docmt.decoding import SearchConfig, Translator
from docmt.decoding.ensembles import Ensemble
from docmt.decoding.logits import draw_tokens, draw_uniform, number_samples
from docmt.documents import Document
from variants import CONVENTIONS, FEW, JOINED, ONE_OF_EACH_ORDER, SYSTEMS, in_tiers

VARIANTS = {**SYSTEMS, **JOINED, **CONVENTIONS}


def sampling(seed=1, **options):
    return SearchConfig(beam=1, sampling=True, seed=seed, **{**SHORT_LIMITS, **options})


def sample(model, documents, config, **settings):
    translated = translate_documents(model, documents, SPECIALS, config, **settings)
    return [hypothesis.sentences for (hypothesis,) in translated]


def assert_frequencies(counts, probabilities):
    """Chi-square: counts fit probabilities, those expected less than five times taken together."""
    total, statistic, degrees, rest = sum(counts.values()), 0.0, -1, [0.0, 0]
    for token, probability in enumerate(probabilities):
        expected = total * probability
        if expected < 5:
            rest[0], rest[1] = rest[0] + expected, rest[1] + counts[token]
            continue
        statistic, degrees = statistic + (counts[token] - expected) ** 2 / expected, degrees + 1
    if rest[0] >= 1:
        statistic, degrees = statistic + (rest[1] - rest[0]) ** 2 / rest[0], degrees + 1
    assert degrees >= 3
    assert statistic < degrees + 4 * (2 * degrees) ** 0.5, (statistic, degrees)  # four deviations from the mean


def test_tokens_have_the_frequencies_of_the_softmax():
    count, logits = 20_000, torch.tensor([0.0, 1.0, -torch.inf, 2.5, -1.0, -torch.inf, 0.5, -torch.inf])
    numbers = torch.arange(count)
    tokens = draw_tokens(logits.expand(count, -1), draw_uniform(3, numbers, torch.zeros_like(numbers)))
    assert_frequencies(Counter(tokens.flatten().tolist()), logits.softmax(-1).tolist())


@pytest.mark.parametrize("number", [0.5**53, 0.5, 1.0])
def test_tokens_that_may_not_follow_are_never_drawn(number):
    logits = torch.full((2, 7), -torch.inf)
    logits[0, [2, 4]], logits[1, 3] = torch.tensor([-100.0, 3.0]), -1e4
    tokens = draw_tokens(logits, torch.full((2,), number, dtype=torch.float64))
    assert tokens[0].item() in (2, 4) and tokens[1].item() == 3


def test_random_numbers_are_uniform_in_every_direction():
    grid = torch.arange(100)
    numbers = draw_uniform(2**63 - 1, grid.repeat_interleave(100), grid.repeat(100)).view(100, 100)
    assert numbers.min() > 0 and numbers.max() <= 1 and len(numbers.unique()) == 10_000
    for side in (0, 1):
        assert (numbers.mean(side) - 0.5).abs().max() < 0.12  # four deviations of a mean of 100
        shifted = numbers.roll(1, side)
        assert abs(torch.corrcoef(torch.stack((numbers.flatten(), shifted.flatten())))[0, 1]) < 0.04
    other = draw_uniform(2**63 - 2, grid, grid)
    assert not torch.isclose(other, numbers.diagonal()).any()


def test_the_random_numbers_are_those_of_splitmix():
    """The first outputs of the generator with seed 0, as other implementations give them."""
    from docmt.decoding.logits import _hash

    outputs = [_hash(torch.zeros(1, dtype=torch.int64), torch.tensor([n])).item() % 2**64 for n in range(3)]
    assert outputs == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]


@pytest.mark.parametrize("system", in_tiers(["sentence", "group", "ensemble"], ["ensemble"]))
def test_first_words_have_the_frequencies_of_the_model(system):
    members = [build(seed, **SYSTEMS["sentence" if system == "ensemble" else system]) for seed in (1, 2)]
    model = Ensemble(members) if system == "ensemble" else members[0]
    config, copies = sampling(seed=5, temperature=0.8), 3000
    first = Counter(sentences[0][0] for sentences in sample(model, [[[8, 9]]] * copies, config))
    with torch.inference_mode():
        logits = [score_next(member, ReferenceRow([[8, 9]], [0]), [])[None] for member in members]
    probabilities = [(x[0] / 0.8).softmax(-1) for x in (logits if system == "ensemble" else logits[:1])]
    allowed = torch.stack(probabilities).mean(0)
    allowed[: SPECIALS.first_word] = 0.0  # boundary tokens, as a sentence has a word
    allowed[SPECIALS.eod :] = 0.0
    assert_frequencies(first, (allowed / allowed.sum()).tolist())


@pytest.mark.parametrize("system", in_tiers(VARIANTS, FEW))
def test_near_temperature_zero_sampling_is_greedy(system):
    model = build(**VARIANTS[system]).double()
    greedy = SearchConfig(beam=1, **SHORT_LIMITS)
    assert sample(model, DOCUMENTS, sampling(temperature=1e-3)) == sample(model, DOCUMENTS, greedy)


@pytest.mark.parametrize("system", in_tiers(VARIANTS, FEW, ["linear, gates, keep prefix, rfa"]))
def test_scoring_a_sample_gives_its_score(system):
    model, config = build(**VARIANTS[system]), sampling()
    translated = [ranks[0] for ranks in translate_documents(model, DOCUMENTS, SPECIALS, config)]
    well_formed = [number for number, hypothesis in enumerate(translated) if not hypothesis.miscounted]
    targets = [translated[number].sentences for number in well_formed]
    scored = score_documents(model, [DOCUMENTS[number] for number in well_formed], targets, SPECIALS, config)
    for number, scores in zip(well_formed, scored, strict=True):
        assert scores.sentence_scores == pytest.approx(translated[number].sentence_scores, abs=1e-4)
        assert scores.score == pytest.approx(translated[number].score, abs=1e-5)


@pytest.mark.parametrize("system", in_tiers(VARIANTS, ["group", "concat, linear, gates"]))
def test_samples_do_not_depend_on_batches_and_differ_by_seed(system):
    model = build(2, **VARIANTS[system]).double()
    first = sample(model, DOCUMENTS, sampling())
    assert sample(model, DOCUMENTS, sampling(), batch_tokens=1) == first
    assert sample(model, DOCUMENTS, sampling(seed=2)) != first
    assert sample(model, DOCUMENTS[:2], sampling()) == first[:2]


@pytest.mark.parametrize("system", in_tiers(ONE_OF_EACH_ORDER, FEW))
def test_equal_documents_have_samples_of_their_own(system):
    samples = sample(build(**SYSTEMS[system]), [DOCUMENTS[0]] * 3, sampling())
    assert samples[0] != samples[1] != samples[2] != samples[0]


def test_a_sentence_has_the_least_and_the_most_words_that_are_allowed():
    config = sampling(temperature=4.0, min_length=2, max_length_ratio=0.0, max_length_extra=3.0)
    lengths = {len(words) for document in sample(build(), DOCUMENTS * 20, config) for words in document}
    assert lengths == {2, 3}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "search.sampling needs search.beam 1: set it, or leave sampling out"),
        ({"beam": 1, "implementation": "thumt"}, "does not go together with search.implementation thumt"),
        ({"beam": 1, "sequential": True}, "search.sequential has no effect with search.sampling"),
        ({"beam": 1, "n_best": 2}, "search.n_best is 2 but the beam is 1"),
        ({"beam": 1, "seed": -1}, "search.seed is -1: choose a number from 0 to"),
        ({"beam": 1, "sampling": False, "seed": 2}, "search.seed has no effect without search.sampling"),
    ],
)
def test_options_that_do_not_go_together(options, message):
    with pytest.raises(DocmtError, match=message):
        SearchConfig(**{"sampling": True, **options})


def test_the_command_line_draws_the_same_samples_again(tmp_path):
    model, source = save_tiny_model(tmp_path / "model"), tmp_path / "a.txt"
    source.write_text("a few words\nmore words\n\na few words\n")
    options = ["--layout", "lines", "--format", "jsonl", "--sampling", "--beam", 1, "-q"]
    for name, more in (("1", []), ("again", ["--batch-tokens", 1]), ("other", ["--seed", 2])):
        outcome = call("translate", model, source, "-o", tmp_path / f"{name}.jsonl", *options, *more)
        assert outcome.status == 0, outcome.err
    targets = {
        name: [json.loads(line)["target"] for line in (tmp_path / f"{name}.jsonl").read_bytes().splitlines()]
        for name in ("1", "again", "other")
    }
    assert targets["1"] == targets["again"] != targets["other"]
    assert targets["1"][0] != targets["1"][2]  # of equal sentences


@pytest.mark.full
def test_equal_documents_of_several_calls_have_samples_of_their_own(tmp_path, monkeypatch):
    model = save_tiny_model(tmp_path / "model")
    translator = Translator(model, device="cpu", search=SearchConfig(beam=1, sampling=True))
    document = Document.from_sentences(["a few words", "", "more words"])
    documents = [document, Document.from_sentences(["more words"]), *[document] * 4]
    together = [each.document for each in translator.translate_all(documents)]
    assert len({str(each.sentences) for each in together}) > 2
    for size in (1, 2, 4):
        assert [each.document for each in translator.stream(documents, group=size)] == together
    broken = list(translator.stream([document, 5, document], group=2, errors="yield"))
    assert isinstance(broken[1], DocmtError) and broken[2].document == together[2]
    monkeypatch.setattr("docmt.cli.commands.translate.GROUP_DOCUMENTS", 1)
    files = [tmp_path / f"{number}.txt" for number in range(len(documents))]
    for path, each in zip(files, documents, strict=True):
        path.write_text("\n".join(each.sentences) + "\n")
    outcome = call("translate", model, *files, "-o", tmp_path / "out", "--sampling", "--beam", 1, "-q")
    assert outcome.status == 0, outcome.err
    assert len({(tmp_path / "out" / path.name).read_text() for path in files[2:]}) > 1


def test_samples_do_not_depend_on_other_documents_but_on_copies():
    model = build(2, **VARIANTS["sentence"]).double()
    together = sample(model, DOCUMENTS, sampling())
    alone = [sample(model, [document], sampling())[0] for document in DOCUMENTS]
    distinct = [document for document in DOCUMENTS if DOCUMENTS.count(document) == 1]
    assert distinct
    for document, one, other in zip(DOCUMENTS, together, alone, strict=True):
        assert one == other or document not in distinct
    copies = sample(model, [[[8, 9, 10, 11]]] * 6, sampling())
    assert len({str(each) for each in copies}) > 1
    assert copies[:3] == sample(model, [[[8, 9, 10, 11]]] * 3, sampling())


def test_numbers_of_samples_tell_documents_apart():
    documents = [[[5, 6], [7]], [[5], [6, 7]], [[5, 6], [7]], []]
    words, offsets = SentenceTokens.from_documents(documents), np.cumsum([0, *map(len, documents)])
    numbers = number_samples(words, offsets)
    assert len(set(numbers.tolist())) == 6 and numbers.min() >= 0
    assert numbers[1] == numbers[0] + 1
