"""docmt beside CTranslate2 and transformers: random weights of one size and outputs of one length, in one run.

CTranslate2 and transformers translate a document as one long sentence, as a plain document model does. Speeds are words
a second. A sentence of n words takes them n + 1 searched steps, and docmt n + 2, of which the last two (`</s>` at the
limit, and the next token) are forced.
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
from docmt.model import ModelConfig, TranslationModel
from docmt.model.products import Int8Linear, Precision, precision_context, prepare_products
from docmt.text import DictionaryTokenizer, SpecialTokens

Sentences = list[list[int]]
Key = tuple[str, str, str, int]
"""What is translated, engine, precision, beam."""
Work = Callable[[], int]


@dataclass(frozen=True)
class Settings:
    """Sizes of the benchmark."""

    model: ModelConfig
    """sentence model; group models have the same sizes"""
    sentences: int = 20
    """sentences of a document, and of a batch"""
    words: int = 23
    """words of each sentence"""
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
    """Return words a second of each engine, and ratios."""
    cases: dict[Key, Case] = {}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        sentence = _build_sentence_model(settings)
        _export(sentence, Path(folder))
        for prepare in (_prepare_docmt, _prepare_ctranslate2, _prepare_transformers):
            # One process for each engine: threads of one engine slow down the products of another.
            pool = stack.enter_context(
                ProcessPoolExecutor(1, get_context("spawn"), begin_process, (torch.get_num_threads(),))
            )
            for key in pool.submit(prepare_works, prepare, settings, Path(folder)).result():
                labels = dict(zip(("translated", "by", "precision", "beam"), key, strict=True))
                cases[key] = Case(labels, partial(run_in_process, pool, key), settings.rounds)
        interleave("peers (translations)", list(cases.values()))
    described = {**asdict(settings), "model": asdict(settings.model.resolve())}
    return Result(described, [case.to_row() for case in cases.values()], _make_findings(settings, cases))


_works: dict[Key, Work] = {}
"""Work of each case of this process's engine."""


def begin_process(threads: int) -> None:
    """Set up a process of one engine."""
    torch.set_num_threads(threads)
    keep_freed_memory()


def prepare_works(prepare: Callable[[Any, Path], dict[Key, Work]], settings: Any, folder: Path) -> list[Key]:
    """Prepare what this process times; return its keys."""
    _works.update(prepare(settings, folder))
    return list(_works)


def _run_work(key: Key) -> int:
    return _works[key]()


def run_in_process(pool: ProcessPoolExecutor, key: Key) -> int:
    """Do this work in its process."""
    return pool.submit(_run_work, key).result()


def _build_sentence_model(settings: Settings) -> TranslationModel:
    torch.manual_seed(1)
    return TranslationModel(settings.model).eval()


def _prepare_docmt(settings: Settings, folder: Path) -> dict[Key, Work]:
    config = replace(settings.model, system="group", instance_tokens=4096, positions="sentence")
    torch.manual_seed(1)
    group = TranslationModel(config).eval()
    works: dict[Key, Work] = {}
    for precision in list_precisions():
        sentence_model, group_model = (
            _copy_in_precision(model, precision) for model in (_build_sentence_model(settings), group)
        )
        for beam in settings.beams:
            works["sentences", "docmt", precision, beam] = _make_docmt_work(sentence_model, precision, settings, beam)
            works["a document", "docmt", precision, beam] = _make_docmt_work(group_model, precision, settings, beam)
    return works


def list_precisions() -> tuple[Precision, ...]:
    """Return the precisions that this processor has."""
    return ("float32", "bfloat16", "int8") if Int8Linear.available(torch.device("cpu")) else ("float32", "bfloat16")


def _copy_in_precision(model: TranslationModel, precision: Precision) -> TranslationModel:
    copied = TranslationModel(model.config)
    copied.load_state_dict(model.state_dict())
    return prepare_products(copied.eval(), precision)


def _draw_ids(vocabulary: int, count: int, words: int) -> Sentences:
    specials = SpecialTokens(vocabulary)
    generator = np.random.default_rng(3)
    ids: Sentences = generator.integers(specials.first_word, specials.eod, (count, words)).tolist()
    return ids


def _make_docmt_work(model: TranslationModel, precision: Precision, settings: Settings, beam: int) -> Work:
    """Return docmt's translation of a document; a sentence model translates it as one batch."""
    vocabulary, words = model.config.vocabulary_size, settings.words
    # Every sentence is as long as it may be, and no shorter.
    lengths = {"max_length_ratio": 0.0, "max_length_extra": float(words), "min_length": words}
    search = SearchConfig(beam=beam, **lengths)
    documents = [_draw_ids(vocabulary, settings.sentences, words)]

    def work() -> int:
        with precision_context(model, precision), torch.inference_mode():
            results = translate_documents(model, documents, SpecialTokens(vocabulary), search, batch_tokens=1_000_000)
        generated = sum(len(sentence) for best, *_ in results for sentence in best.sentences)
        _check(generated, settings.sentences * words)
        return generated

    return work


def _make_ctranslate2_work(translator: Any, settings: Settings, beam: int, joined: int) -> Work:
    """Return CTranslate2's translation into as many tokens; joined: number of sentences that form one input."""
    length = joined * (settings.words + 1)
    ids = _draw_ids(settings.model.vocabulary_size, settings.sentences // joined, length)
    texts = [[f"w{number - SpecialTokens.first_word}" for number in sentence] for sentence in ids]
    limits = {"min_decoding_length": length, "max_decoding_length": length, "max_input_length": 0}

    def work() -> int:
        results = translator.translate_batch(texts, beam_size=beam, max_batch_size=0, **limits)
        _check(sum(len(sentence.hypotheses[0]) for sentence in results), len(texts) * length)
        return settings.sentences * settings.words

    return work


def _make_transformers_work(model: Any, settings: Settings, beam: int, joined: int) -> Work:
    """Return the translation by `generate` of transformers into as many tokens."""
    length = joined * (settings.words + 1)
    tokens = torch.tensor(_draw_ids(settings.model.vocabulary_size, settings.sentences // joined, length))
    limits = {"min_new_tokens": length, "max_new_tokens": length}

    def work() -> int:
        with torch.inference_mode():
            output = model.generate(tokens, attention_mask=torch.ones_like(tokens), num_beams=beam, **limits)
        _check(output[:, 1:].numel(), tokens.numel())
        return settings.sentences * settings.words

    return work


def _check(tokens: int, expected: int) -> None:
    if tokens != expected:
        raise RuntimeError(f"the search gave {tokens} tokens instead of {expected}")


def _export(model: TranslationModel, folder: Path) -> None:
    """Export the model for CTranslate2. Raises DocmtError where it is not installed."""
    specials = SpecialTokens(model.config.vocabulary_size)
    tokenizer = DictionaryTokenizer([f"w{number}" for number in range(specials.eod - specials.first_word)])
    save_model(folder / "model", model, tokenizer)
    export_ctranslate2(folder / "model", folder / "exported")


def _prepare_ctranslate2(settings: Settings, folder: Path) -> dict[Key, Work]:
    import ctranslate2

    works: dict[Key, Work] = {}
    for kind in ("float32", "int8"):
        translator = ctranslate2.Translator(
            str(folder / "exported"),
            device="cpu",
            compute_type=kind,
            inter_threads=1,
            intra_threads=torch.get_num_threads(),
        )
        for beam, (joined, text) in product(settings.beams, ((1, "sentences"), (settings.sentences, "a document"))):
            works[text, "CTranslate2", kind, beam] = _make_ctranslate2_work(translator, settings, beam, joined)
    return works


def _prepare_transformers(settings: Settings, folder: Path) -> dict[Key, Work]:
    """Return the translations of a Marian model of these sizes.

    Raises DocmtError where transformers is not installed.
    """
    try:
        import transformers
    except ImportError as error:
        raise DocmtError("the benchmark peers needs transformers, which is missing: pip install .[bench]") from error
    sizes = settings.model.resolve()
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
    works: dict[Key, Work] = {}
    for kind, dtype in (("float32", torch.float32), ("bfloat16", torch.bfloat16)):
        model = transformers.MarianMTModel(config).eval().to(dtype)
        for beam, (joined, text) in product(settings.beams, ((1, "sentences"), (settings.sentences, "a document"))):
            works[text, "transformers", kind, beam] = _make_transformers_work(model, settings, beam, joined)
    return works


def _make_findings(settings: Settings, cases: dict[Key, Case]) -> list[Finding]:
    """Return ratios of the fastest precision of each engine."""

    def best(text: str, engine: str, beam: int) -> Case:
        engine_cases = [case for key, case in cases.items() if (key[0], key[1], key[3]) == (text, engine, beam)]
        return max(engine_cases, key=lambda case: case.tokens_per_second)

    def finding(text: str, case: Case, peer: Case, at_least: float | None = None) -> Finding:
        names = " against ".join(f"{each.labels['by']} {each.labels['precision']}" for each in (case, peer))
        aim = at_least if settings.aims else None
        return Finding(f"{text}, {names}: speed", case.tokens_per_second / peer.tokens_per_second, at_least=aim)

    findings = []
    for beam in settings.beams:
        size, greedy = f"beam {beam}", beam == 1
        sentences, document = best("sentences", "docmt", beam), best("a document", "docmt", beam)
        for text, case in (("sentences", sentences), ("a document", document)):
            aim = (1.0 if greedy else 1.2) if case is sentences else None
            findings += [
                finding(f"{text}, {size}", case, best(text, "CTranslate2", beam), aim),
                finding(f"{text}, {size}", case, best(text, "transformers", beam)),
            ]
    return findings
