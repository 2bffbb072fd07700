"""docmt beside CTranslate2 with real weights and real text: one document, and sentences as batches (`peers --weights`).

CTranslate2 translates the sentences of a document as one batch, which is what its users do. docmt translates them so as
well, and the document by a document model. All are timed in turn, alone and beside a busy process.
"""

from __future__ import annotations

import os
import tempfile
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from benchmarks.measure import Case, Finding, Result, interleave
from benchmarks.peers import Key, Work, begin_process, list_precisions, prepare_works, run_in_process
from docmt.checkpoint import export_ctranslate2
from docmt.checkpoint.ctranslate2_export import list_token_texts
from docmt.checkpoint.model_directory import find_model, load_model_tokenizer
from docmt.core.errors import DocmtError
from docmt.documents import Document
from docmt.documents.corpus_files import read_documents
from docmt.text import SpecialTokens

if TYPE_CHECKING:
    from collections.abc import Iterator

    from docmt import Translator

MAX_BATCH_TOKENS = 8192
"""Source tokens of a batch, padding included, for both engines."""


@dataclass(frozen=True)
class Settings:
    """Models and text."""

    weights: str
    """sentence model, by both engines"""
    text: Path
    """a sentence a line, an empty line between documents"""
    document_weights: str = "en-fr"
    """document model that stands beside it"""
    document_sentences: int = 11
    """the first document with so many sentences (0: the first) is translated alone"""
    sentences: int = 400
    documents: int = 16
    beams: tuple[int, ...] = (1, 5)
    rounds: int = 3

    def shrink(self) -> Settings:
        """Return settings that only check that it runs."""
        return replace(self, sentences=4, documents=2, document_sentences=0, beams=(2,), rounds=1)


def run(settings: Settings) -> Result:
    """Return words a second of each engine, and how many times as long as CTranslate2 docmt takes."""
    cases: dict[tuple[str, Key], Case] = {}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        export_ctranslate2(find_model(Path(settings.weights)), Path(folder) / "exported")
        for prepare, waiting in ((_prepare_docmt, "PASSIVE"), (_prepare_ctranslate2, "")):
            with _environment("OMP_WAIT_POLICY", waiting):  # as the command sets it
                pool = ProcessPoolExecutor(1, get_context("spawn"), begin_process, (torch.get_num_threads(),))
                keys = pool.submit(prepare_works, prepare, settings, Path(folder)).result()
            stack.enter_context(pool)
            for key, load in product(keys, ("alone", "beside a busy process")):
                labels = dict(zip(("translated", "by", "precision", "beam"), key, strict=True)) | {"load": load}
                cases[load, key] = Case(labels, partial(run_in_process, pool, key), settings.rounds)
        for load in ("alone", "beside a busy process"):
            with _busy_process(load != "alone"):
                interleave(f"peers {load}", [case for (name, _), case in cases.items() if name == load])
    described = {**asdict(settings), "text": settings.text.name}
    return Result(described, [case.to_row() for case in cases.values()], _make_findings(settings, cases))


@contextmanager
def _environment(name: str, value: str) -> Iterator[None]:
    before = os.environ.pop(name, None)
    if value:
        os.environ[name] = value
    try:
        yield
    finally:
        os.environ.pop(name, None)
        if before is not None:
            os.environ[name] = before


@contextmanager
def _busy_process(busy: bool) -> Iterator[None]:
    process = get_context("spawn").Process(target=_spin, daemon=True) if busy else None
    if process is not None:
        process.start()
    try:
        yield
    finally:
        if process is not None:
            process.terminate()
            process.join()


def _spin() -> None:
    while True:
        pass


def _read_texts(settings: Settings) -> dict[str, list[list[str]]]:
    """Return what is translated: a document, as many sentences as a batch has, and several documents."""
    documents = [list(sentences) for _, sentences in read_documents(settings.text)]
    chosen = [each for each in documents if len(each) == (settings.document_sentences or len(each))]
    if not chosen:
        raise DocmtError(f"{settings.text} has no document of {settings.document_sentences} sentences. Give another.")
    flat = [sentence for document in documents for sentence in document][: settings.sentences]
    several = documents[: settings.documents]
    return {"a document": chosen[:1], f"{len(flat)} sentences": [flat], f"{len(several)} documents": several}


def _count_words(texts: list[list[str]]) -> int:
    return sum(len(sentence.split()) for text in texts for sentence in text)


def _prepare_docmt(settings: Settings, folder: Path) -> dict[Key, Work]:
    from docmt import SearchConfig, Translator

    works: dict[Key, Work] = {}
    for name, precision in product((settings.weights, settings.document_weights), list_precisions()):
        translator = Translator(name, precision=precision, batch_tokens=MAX_BATCH_TOKENS)
        for beam, (kind, texts) in product(settings.beams, _read_texts(settings).items()):
            if name == settings.weights or not kind.endswith(" sentences"):
                searching = translator.with_search(SearchConfig(beam=beam))
                works[kind, f"docmt {name}", precision, beam] = _make_docmt_work(searching, texts)
    return works


def _make_docmt_work(translator: Translator, texts: list[list[str]]) -> Work:
    documents = [Document.from_sentences(text) for text in texts]

    def work() -> int:
        translator.translate_all(documents)
        return _count_words(texts)

    return work


def _prepare_ctranslate2(settings: Settings, folder: Path) -> dict[Key, Work]:
    import ctranslate2

    tokenizer = load_model_tokenizer(Path(settings.weights))
    names = list_token_texts(tokenizer, "source")
    works: dict[Key, Work] = {}
    for precision in ("float32", "int8"):
        translator = ctranslate2.Translator(
            str(folder / "exported"),
            device="cpu",
            compute_type=precision,
            inter_threads=1,
            intra_threads=torch.get_num_threads(),
        )
        for beam, (kind, texts) in product(settings.beams, _read_texts(settings).items()):
            encoded = tokenizer.encode_batch([sentence for text in texts for sentence in text], "source")
            tokens = [[names[each] for each in (SpecialTokens.bos, *ids, SpecialTokens.eos)] for ids in encoded]
            works[kind, "CTranslate2", precision, beam] = _make_ctranslate2_work(translator, tokens, beam, texts)
    return works


def _make_ctranslate2_work(translator: Any, tokens: list[list[str]], beam: int, texts: list[list[str]]) -> Work:
    def work() -> int:
        translator.translate_batch(tokens, beam_size=beam, max_batch_size=MAX_BATCH_TOKENS, batch_type="tokens")
        return _count_words(texts)

    return work


def _make_findings(settings: Settings, cases: dict[tuple[str, Key], Case]) -> list[Finding]:
    """Return docmt's time over that of CTranslate2, and what a busy process costs each."""
    kinds = list(dict.fromkeys(key[0] for _, key in cases))
    engines = [f"docmt {settings.weights}", f"docmt {settings.document_weights}"]
    findings = []
    for beam, kind in product(settings.beams, kinds):
        chosen = {(load, *key[1:3]): case for (load, key), case in cases.items() if (key[0], key[3]) == (kind, beam)}
        for engine, peer in product(engines, ("float32", "int8")):
            own = {name: case for name, case in chosen.items() if name[:2] == ("alone", engine)}
            if own:
                (_, _, precision), best = min(own.items(), key=lambda item: item[1].best)
                ratio = best.best / chosen["alone", "CTranslate2", peer].best
                aim = 3.0 if kind == "a document" and peer == "int8" else None
                name = f"{kind}, beam {beam}, {engine} {precision} against CTranslate2 {peer}: time"
                findings.append(Finding(name, ratio, at_most=aim))
        for (load, engine, precision), case in chosen.items():
            if load != "alone":
                slower = case.best / chosen["alone", engine, precision].best
                name = f"{kind}, beam {beam}, {engine} {precision}, beside a busy process: time"
                findings.append(Finding(name, slower, at_most=2.3 if engine != "CTranslate2" else None))
    return findings
