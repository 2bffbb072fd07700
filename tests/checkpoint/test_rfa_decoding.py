"""The search of converted RFA models against what the authors' code found (tests/data/rfa_tiny/README.md)."""

import numpy as np
import pytest
import rfa
from quick_cases import full_except

from docmt.decoding import SearchConfig, translate_documents
from docmt.decoding.beam_search import search
from docmt.decoding.search_rules import RfaRules, SearchRow

DECODED = sorted(
    (path.parent.name, path.name)
    for path in rfa.FIXTURES.path.glob("*/decode_*.json")
    if path.parent.name in rfa.VARIANTS
)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A function that gives a converted model in float64, made once."""
    directory, cache = tmp_path_factory.mktemp("converted"), {}
    return lambda variant: (
        cache.setdefault(variant, None)
        or cache.update({variant: rfa.convert(variant, directory).double()})
        or cache[variant]
    )


def settings_of(record, **options):
    """Their search as ours is told it."""
    settings = record["settings"]
    return SearchConfig(
        implementation="rfa",
        beam=settings["beam"],
        n_best=settings["beam"],
        max_length_ratio=settings["max_len_a"],
        max_length_extra=settings["max_len_b"],
        length_penalty=settings.get("lenpen", 1.0),
        **options,
    )


def search_windows(model, windows, prefixes, config):
    """All that is found for windows of sentences after these translations of their first ones, searched together."""
    inputs = rfa.batch_of(model, windows, windows).inputs
    rows, first = [], 0
    for window, prefix in zip(windows, prefixes, strict=True):
        rows.append(SearchRow(range(first, first + len(window)), [len(sentence) for sentence in window], prefix))
        first += len(window)
    return search(model, model.compute_memories(inputs), rows, rfa.SPECIALS, config)


def check(hypotheses, wanted):
    """Tokens and scores of all hypotheses of a search."""
    tokens = []
    for hypothesis in hypotheses:
        generated = [token for sentence in hypothesis.sentences for token in (*sentence, rfa.SPECIALS.bos)][:-1]
        tokens.append([*rfa.DOCMT_IDS[generated].tolist(), rfa.END])
    assert tokens == [record["tokens"] for record in wanted]
    assert [hypothesis.score for hypothesis in hypotheses] == pytest.approx(
        [record["score"] for record in wanted], abs=1e-5
    )


def windows_of(variant, length):
    """The source sentences of the test windows, and the true translations of all but their last."""
    data = "batch_decode" if variant.startswith("trained") else "batch"
    batch = np.load(rfa.FIXTURES.path / f"{data}_L{length}.npz")
    sources = [rfa.sentences_of(row) for row in batch["src_tokens"]]
    return sources, [rfa.sentences_of(row)[:-1] for row in batch["prefix_tokens"]]


@pytest.mark.parametrize("length", full_except([1, 2, 4], 2))
@pytest.mark.parametrize(("variant", "file"), full_except(DECODED, *DECODED[:1]))
def test_windows_at_once(variant, file, length, models):
    record, model = rfa.read_json(variant, file), models(variant)
    if f"one_shot_L{length}" not in record:
        pytest.skip(f"{variant} has no such windows in {file}")
    windows, _ = windows_of(variant, length)
    results = search_windows(model, windows, [()] * len(windows), settings_of(record))
    for hypotheses, wanted in zip(results, record[f"one_shot_L{length}"], strict=True):
        check(hypotheses, wanted)


@pytest.mark.full
@pytest.mark.parametrize("length", [2, 4])
@pytest.mark.parametrize(("variant", "file"), DECODED)
def test_windows_after_true_translations(variant, file, length, models, monkeypatch):
    """As they measure in training, where the length limit does not know of the prefix."""
    record, model = rfa.read_json(variant, file), models(variant)
    if f"gold_prefix_L{length}" not in record:
        pytest.skip(f"{variant} has no such windows in {file}")
    monkeypatch.setattr(RfaRules, "_limit", staticmethod(_limit_of_window))
    for window, prefix, wanted in zip(*windows_of(variant, length), record[f"gold_prefix_L{length}"], strict=True):
        check(search_windows(model, [window], [prefix], settings_of(record))[0], wanted)


def _limit_of_window(row, config):
    window = sum(row.lengths) + len(row.lengths)
    return int(config.max_length_ratio * window + config.max_length_extra)


@pytest.mark.parametrize(("variant", "file"), full_except(DECODED))
def test_documents_after_their_own_translations(variant, file, models):
    """The whole of their document decoding: what is kept, and what is shown to the next sentence."""
    record, model = rfa.read_json(variant, file), models(variant)
    for name, documents in record.items():
        if not name.startswith("own_prefix"):
            continue
        for document in documents:
            for step in document["steps"]:
                windows = [rfa.sentences_of(np.array(step["src_tokens"]))]
                prefix = rfa.sentences_of(np.array(step["prefix_tokens"]))[:-1]
                check(search_windows(model, windows, [prefix], settings_of(record))[0], step["hypotheses"])
        length = int(name.partition("_L")[2])
        if length == model.system.sentences:
            config = settings_of(record)
            sources = [
                [rfa.sentences_of(np.array(s["src_tokens"]))[-1] for s in document["steps"]] for document in documents
            ]
            translated = translate_documents(model, sources, rfa.SPECIALS, config)
            for document, (best, *_) in zip(documents, translated, strict=True):
                outputs = [[*rfa.DOCMT_IDS[sentence].tolist(), rfa.END] for sentence in best.sentences]
                assert outputs == [output["tokens"] for output in document["output"]]
