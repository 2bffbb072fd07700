"""docmt beside CTranslate2 and transformers: random weights of one size, translations of one length, in turn.

CTranslate2 and transformers know no documents: they translate one as a single long sentence, which is what a plain
document model does. What counts is words: to a sentence of n belong n + 1 steps of theirs, each of them searched, and
n + 2 of docmt, of which the last two (`</s>` at the limit, and what follows) are given.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.measure import Case, Finding, Result, interleave
from docmt.checkpoint import export_ctranslate2
from docmt.checkpoint.model_directory import save_model
from docmt.cli.app import keep_freed_memory
from docmt.core.errors import DocmtError
from docmt.decoding import SearchConfig, translate_documents
from docmt.decoding.models import Int8Linear, Precision, computing_in, lower_precision
from docmt.model import ModelConfig, TranslationModel
from docmt.text import DictionaryTokenizer, SpecialTokens

Sentences = list[list[int]]
Key = tuple[str, str, str, int]
"""what is translated, by what, in which precision, with which beam"""
Work = Callable[[], int]


@dataclass(frozen=True)
class Settings:
    """What is measured."""

    model: ModelConfig
    """of a sentence model; group models have the same sizes"""
    sentences: int = 20
    """of a document, and of a batch"""
    words: int = 23
    """of each sentence"""
    beams: tuple[int, ...] = (1, 5)
    rounds: int = 2
    aims: bool = True


FULL = Settings(ModelConfig(system="sentence", preset="base", vocabulary_size=30000, dropout=0.0))
QUICK = Settings(
    ModelConfig(
        system="sentence",
        width=16,
        feed_forward=32,
        heads=2,
        encoder_layers=1,
        decoder_layers=1,
        vocabulary_size=100,
        dropout=0.0,
    ),
    sentences=3,
    words=4,
    beams=(1, 2),
    rounds=1,
    aims=False,
)


def run(settings: Settings) -> Result:
    """Words a second of each, and ratios."""
    cases: dict[Key, Case] = {}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        sentence = _sentence_model(settings)
        _export(sentence, Path(folder))
        for made in (_docmt, _ctranslate2, _transformers):
            # Each in a process of its own: threads of one engine slow down the products of another.
            pool = stack.enter_context(ProcessPoolExecutor(1, get_context("spawn"), _begin, (torch.get_num_threads(),)))
            for key in pool.submit(_prepare, made, settings, Path(folder)).result():
                labels = dict(zip(("translated", "by", "precision", "beam"), key, strict=True))
                cases[key] = Case(labels, partial(_in_process, pool, key), settings.rounds)
        interleave("peers (translations)", list(cases.values()))
    described = {**asdict(settings), "model": asdict(settings.model.filled())}
    return Result(described, [case.to_row() for case in cases.values()], _findings(settings, cases))


_works: dict[Key, Work] = {}
"""What the process of an engine can do."""


def _begin(threads: int) -> None:
    torch.set_num_threads(threads)
    keep_freed_memory()


def _prepare(made: Callable[[Settings, Path], dict[Key, Work]], settings: Settings, folder: Path) -> list[Key]:
    _works.update(made(settings, folder))
    return list(_works)


def _work(key: Key) -> int:
    return _works[key]()


def _in_process(pool: ProcessPoolExecutor, key: Key) -> int:
    return pool.submit(_work, key).result()


def _sentence_model(settings: Settings) -> TranslationModel:
    torch.manual_seed(1)
    return TranslationModel(settings.model).eval()


def _docmt(settings: Settings, folder: Path) -> dict[Key, Work]:
    config = replace(settings.model, system="group", instance_tokens=4096, positions="sentence")
    torch.manual_seed(1)
    group = TranslationModel(config).eval()
    found: dict[Key, Work] = {}
    for precision in _precisions():
        alone, together = (_lowered(model, precision) for model in (_sentence_model(settings), group))
        for beam in settings.beams:
            found["sentences", "docmt", precision, beam] = _ours(alone, precision, settings, beam)
            found["a document", "docmt", precision, beam] = _ours(together, precision, settings, beam)
    return found


def _precisions() -> tuple[Precision, ...]:
    return ("float32", "bfloat16", "int8") if Int8Linear.available(torch.device("cpu")) else ("float32", "bfloat16")


def _lowered(model: TranslationModel, precision: Precision) -> TranslationModel:
    copied = TranslationModel(model.config)
    copied.load_state_dict(model.state_dict())
    return lower_precision(copied.eval(), precision)


def _random(vocabulary: int, count: int, words: int) -> Sentences:
    specials = SpecialTokens(vocabulary)
    generator = np.random.default_rng(3)
    found: Sentences = generator.integers(specials.first_word, specials.eod, (count, words)).tolist()
    return found


def _ours(model: TranslationModel, precision: Precision, settings: Settings, beam: int) -> Work:
    """docmt's search for the translation of a document; a sentence model translates it as one batch."""
    vocabulary, words = model.config.vocabulary_size, settings.words
    # Every sentence is as long as it may be, and no shorter.
    lengths = {"max_length_ratio": 0.0, "max_length_extra": float(words), "min_length": words}
    search = SearchConfig(beam=beam, **lengths)
    documents = [_random(vocabulary, settings.sentences, words)]

    def work() -> int:
        with computing_in(model, precision), torch.inference_mode():
            found = translate_documents(model, documents, SpecialTokens(vocabulary), search, batch_tokens=1_000_000)
        made = sum(len(sentence) for best, *_ in found for sentence in best.sentences)
        _check(made, settings.sentences * words)
        return made

    return work


def _theirs_ct2(translator: Any, settings: Settings, beam: int, joined: int) -> Work:
    """CTranslate2's search for the same number of tokens; joined: how many sentences are given to it as one."""
    length = joined * (settings.words + 1)
    ids = _random(settings.model.vocabulary_size, settings.sentences // joined, length)
    texts = [[f"w{number - SpecialTokens.first_word}" for number in own] for own in ids]
    limits = {"min_decoding_length": length, "max_decoding_length": length, "max_input_length": 0}

    def work() -> int:
        found = translator.translate_batch(texts, beam_size=beam, max_batch_size=0, **limits)
        _check(sum(len(own.hypotheses[0]) for own in found), len(texts) * length)
        return settings.sentences * settings.words

    return work


def _theirs_hf(model: Any, settings: Settings, beam: int, joined: int) -> Work:
    """The same by `generate` of transformers."""
    length = joined * (settings.words + 1)
    tokens = torch.tensor(_random(settings.model.vocabulary_size, settings.sentences // joined, length))
    limits = {"min_new_tokens": length, "max_new_tokens": length}

    def work() -> int:
        with torch.inference_mode():
            found = model.generate(tokens, attention_mask=torch.ones_like(tokens), num_beams=beam, **limits)
        _check(found[:, 1:].numel(), tokens.numel())
        return settings.sentences * settings.words

    return work


def _check(made: int, wanted: int) -> None:
    if made != wanted:
        raise RuntimeError(f"the search gave {made} tokens instead of {wanted}")


def _export(model: TranslationModel, folder: Path) -> None:
    """Writes the model for CTranslate2. Raises DocmtError where that is not installed."""
    specials = SpecialTokens(model.config.vocabulary_size)
    tokenizer = DictionaryTokenizer([f"w{number}" for number in range(specials.eod - specials.first_word)])
    save_model(folder / "model", model, tokenizer)
    export_ctranslate2(folder / "model", folder / "exported")


def _ctranslate2(settings: Settings, folder: Path) -> dict[Key, Work]:
    import ctranslate2

    found: dict[Key, Work] = {}
    for kind in ("float32", "int8"):
        translator = ctranslate2.Translator(
            str(folder / "exported"),
            device="cpu",
            compute_type=kind,
            inter_threads=1,
            intra_threads=torch.get_num_threads(),
        )
        for beam, (joined, what) in product(settings.beams, ((1, "sentences"), (settings.sentences, "a document"))):
            found[what, "CTranslate2", kind, beam] = _theirs_ct2(translator, settings, beam, joined)
    return found


def _transformers(settings: Settings, folder: Path) -> dict[Key, Work]:
    """A Marian model of these sizes. Raises DocmtError where transformers is not installed."""
    try:
        import transformers
    except ImportError as error:
        raise DocmtError("the benchmark peers needs transformers, which is missing: pip install .[bench]") from error
    sizes = settings.model.filled()
    config = transformers.MarianConfig(
        vocab_size=sizes.vocabulary_size,
        d_model=sizes.width,
        encoder_layers=sizes.encoder_layers,
        decoder_layers=sizes.decoder_layers,
        encoder_attention_heads=sizes.heads,
        decoder_attention_heads=sizes.heads,
        encoder_ffn_dim=sizes.feed_forward,
        decoder_ffn_dim=sizes.feed_forward,
        max_position_embeddings=1024,
        scale_embedding=True,
        pad_token_id=0,
        eos_token_id=1,
        decoder_start_token_id=0,
        forced_eos_token_id=None,
    )
    torch.manual_seed(1)
    found: dict[Key, Work] = {}
    for kind, dtype in (("float32", torch.float32), ("bfloat16", torch.bfloat16)):
        model = transformers.MarianMTModel(config).eval().to(dtype)
        for beam, (joined, what) in product(settings.beams, ((1, "sentences"), (settings.sentences, "a document"))):
            found[what, "transformers", kind, beam] = _theirs_hf(model, settings, beam, joined)
    return found


def _findings(settings: Settings, cases: dict[Key, Case]) -> list[Finding]:
    """Ratios of the fastest precision of each."""

    def best(what: str, engine: str, beam: int) -> Case:
        found = [case for key, case in cases.items() if (key[0], key[1], key[3]) == (what, engine, beam)]
        return max(found, key=lambda case: case.tokens_per_second)

    def finding(text: str, one: Case, other: Case, at_least: float | None = None) -> Finding:
        names = " against ".join(f"{case.labels['by']} {case.labels['precision']}" for case in (one, other))
        aim = at_least if settings.aims else None
        return Finding(f"{text}, {names}: speed", one.tokens_per_second / other.tokens_per_second, at_least=aim)

    findings = []
    for beam in settings.beams:
        size, greedy = f"beam {beam}", beam == 1
        ours, one = best("sentences", "docmt", beam), best("a document", "docmt", beam)
        for what, own in (("sentences", ours), ("a document", one)):
            aim = (1.0 if greedy else 1.2) if own is ours else None
            findings += [
                finding(f"{what}, {size}", own, best(what, "CTranslate2", beam), aim),
                finding(f"{what}, {size}", own, best(what, "transformers", beam)),
            ]
    return findings
