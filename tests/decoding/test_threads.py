"""Translators in threads, in tasks of asyncio and in processes forked from one that translates: the same results."""

import asyncio
import multiprocessing
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from test_products import needs_integers
from test_translator import save

import docmt

TEXTS = [f"A {'few ' * number}words. More words." for number in range(4)]
SEARCHES = {
    "beam": {"beam": 3},
    "samples": {"beam": 1, "sampling": True, "seed": 7},
    "sequential": {"beam": 2, "sequential": True},
}


@pytest.fixture(scope="module")
def directories(tmp_path_factory):
    """Model directories of two systems."""
    folder = tmp_path_factory.mktemp("models")
    return [save(folder / system, number, system=system) for number, system in enumerate(("group", "sentence"))]


def load(directory, precision="float32", **search):
    limits = {"max_length_ratio": 0.0, "max_length_extra": 5.0}
    return docmt.Translator(directory, search=docmt.SearchConfig(**limits, **search), precision=precision)


@pytest.mark.parametrize(
    ("search", "precision"),
    [
        ("sequential", "float32"),
        ("samples", "bfloat16"),
        pytest.param("beam", "float32", marks=pytest.mark.full),
        pytest.param("beam", "bfloat16", marks=pytest.mark.full),
        pytest.param("beam", "int8", marks=[needs_integers, pytest.mark.full]),
    ],
)
def test_sixteen_threads_with_one_translator(directories, search, precision):
    translator = load(directories[0], precision, **SEARCHES[search])
    expected = [translator.translate(text) for text in TEXTS]
    assert len(set(expected)) > 1
    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(translator.translate, TEXTS * 4)) == expected * 4


def test_sixteen_threads_score(directories):
    translator = load(directories[0])
    expected = [translator.score(text, "Words. Words.").score for text in TEXTS]
    with ThreadPoolExecutor(16) as pool:
        scored = list(pool.map(translator.score, TEXTS * 4, ["Words. Words."] * 16))
    assert [each.score for each in scored] == expected * 4


def test_two_models_at_once(directories):
    """Also of other precision: what one sets must not reach the other."""
    translators = [load(directories[0], "bfloat16"), load(directories[1])]
    expected = [[translator.translate(text) for text in TEXTS] for translator in translators]
    with ThreadPoolExecutor(8) as pool:
        jobs = [[pool.submit(translator.translate, text) for translator in translators] for text in TEXTS]
        found = [[job.result() for job in pair] for pair in jobs]
    assert [list(translations) for translations in zip(*found, strict=True)] == expected


@pytest.mark.full
def test_tasks_of_asyncio(directories):
    translator = load(directories[0])

    async def translate_all():
        return await asyncio.gather(*(asyncio.to_thread(translator.translate, text) for text in TEXTS))

    assert asyncio.run(translate_all()) == [translator.translate(text) for text in TEXTS]


@pytest.mark.skipif(sys.platform != "linux", reason="forks")
@pytest.mark.parametrize("threads", [pytest.param(1, marks=pytest.mark.full), 2])
def test_a_process_forked_after_use_translates(directories, threads):
    """With several threads of PyTorch, too, whose pool does not survive the fork."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        translator = load(directories[0])
        expected = [translator.translate(text) for text in TEXTS[:2]]
        with multiprocessing.get_context("fork").Pool(2) as pool:
            assert pool.map_async(translator.translate, TEXTS[:2]).get(60) == expected
    finally:
        torch.set_num_threads(before)
