"""docmt beside CTranslate2 and transformers: random weights of one size, translations of one length, in turn.

CTranslate2 and transformers know no documents: they translate one as a single long sentence, which is what a plain
document model does. Sentences of a batch are of one length for all.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.measure import Case, Finding, Result, interleave
from docmt.decoding import SearchConfig, translate_documents
from docmt.decoding.precision import Int8Linear, Precision, computing_in, lower_precision
from docmt.errors import DocmtError
from docmt.model import ModelConfig, TranslationModel
from docmt.model.attention import Gate
from docmt.model_directory import save_model
from docmt.text import DictionaryTokenizer, SpecialTokens

Sentences = list[list[int]]
Key = tuple[str, str, str, int]
"""what is translated, by what, in which precision, with which beam"""
_MARKS = 2  # of a sentence of docmt, in its tokens


@dataclass(frozen=True)
class Settings:
    """What is measured."""

    model: ModelConfig
    """of a sentence model; group models have the same sizes"""
    sentences: int = 20
    """of a document, and of a batch"""
    words: int = 23
    """of each sentence"""
    documents: int = 16
    """that are translated together"""
    beams: tuple[int, ...] = (1, 5)
    rounds: int = 3
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
    documents=2,
    beams=(1, 2),
    rounds=1,
    aims=False,
)


def run(settings: Settings) -> Result:
    """Tokens a second (marks included) of each, and ratios."""
    torch.manual_seed(1)
    sentence = TranslationModel(settings.model).eval()
    torch.manual_seed(1)
    config = replace(settings.model, system="group", instance_tokens=4096, positions="sentence")
    group, gates_closed = TranslationModel(config).eval(), _close_gates(TranslationModel(config)).eval()
    cases: dict[Key, Case] = {}

    def add(what: str, engine: str, precision: str, beam: int, work: Callable[[], int]) -> None:
        labels = {"translated": what, "by": engine, "precision": precision, "beam": beam}
        cases[what, engine, precision, beam] = Case(labels, work, settings.rounds)

    with tempfile.TemporaryDirectory() as folder:
        many = f"{settings.documents} documents"
        for precision in _precisions():
            alone, together, closed = (_lowered(model, precision) for model in (sentence, group, gates_closed))
            for beam in settings.beams:
                add("sentences", "docmt", precision, beam, _ours(alone, precision, settings, beam))
                add("a document", "docmt", precision, beam, _ours(together, precision, settings, beam))
            for abreast, (count, what) in product((False, True), ((1, "a document"), (settings.documents, many))):
                work = _ours(closed, precision, settings, 1, count, abreast)
                add(what, "docmt abreast, gates closed" if abreast else "docmt, gates closed", precision, 1, work)
        for precision, translator in _ctranslate2(sentence, Path(folder)).items():
            for beam, (joined, what) in product(settings.beams, ((1, "sentences"), (settings.sentences, "a document"))):
                add(what, "CTranslate2", precision, beam, _theirs_ct2(translator, settings, beam, joined))
        for precision, model in _transformers(settings.model).items():
            for beam, (joined, what) in product(settings.beams, ((1, "sentences"), (settings.sentences, "a document"))):
                add(what, "transformers", precision, beam, _theirs_hf(model, settings, beam, joined))
        interleave("peers (translations)", list(cases.values()))
    described = {**asdict(settings), "model": asdict(settings.model.filled())}
    return Result(described, [case.to_row() for case in cases.values()], _findings(settings, cases))


def _precisions() -> tuple[Precision, ...]:
    return ("float32", "bfloat16", "int8") if Int8Linear.available(torch.device("cpu")) else ("float32", "bfloat16")


def _lowered(model: TranslationModel, precision: Precision) -> TranslationModel:
    copied = TranslationModel(model.config)
    copied.load_state_dict(model.state_dict())
    return lower_precision(copied.eval(), precision)


def _close_gates(model: TranslationModel) -> TranslationModel:
    """Lets nothing of the document through, in place: so every draft of a sentence stays, which is the best case."""
    for module in model.decoder.modules():
        if isinstance(module, Gate):
            torch.nn.init.zeros_(module.linear.weight)
            torch.nn.init.constant_(module.linear.bias, 100.0)
    return model


def _random(vocabulary: int, count: int, words: int) -> Sentences:
    specials = SpecialTokens(vocabulary)
    generator = np.random.default_rng(3)
    found: Sentences = generator.integers(specials.first_word, specials.eod, (count, words)).tolist()
    return found


def _ours(
    model: TranslationModel, precision: Precision, settings: Settings, beam: int, count: int = 1, abreast: bool = False
) -> Callable[[], int]:
    """docmt's search for the translations of so many documents; a sentence model translates them as one batch."""
    vocabulary, words = model.config.vocabulary_size, settings.words
    # Every sentence is as long as it may be, and no shorter.
    lengths = {"max_length_ratio": 0.0, "max_length_extra": float(words), "min_length": words}
    search = SearchConfig(beam=beam, batch_tokens=1_000_000, abreast=abreast, **lengths)
    documents = [_random(vocabulary, settings.sentences, words) for _ in range(count)]

    def work() -> int:
        with computing_in(model, precision), torch.inference_mode():
            found = translate_documents(model, documents, SpecialTokens(vocabulary), search)
        made = sum(len(sentence) + _MARKS for best, *_ in found for sentence in best.sentences)
        return _checked(made, count * settings.sentences * (words + _MARKS))

    return work


def _theirs_ct2(translator: Any, settings: Settings, beam: int, joined: int) -> Callable[[], int]:
    """CTranslate2's search for the same number of tokens; joined: how many sentences are given to it as one."""
    length = joined * (settings.words + _MARKS)
    ids = _random(settings.model.vocabulary_size, settings.sentences // joined, length)
    texts = [[f"w{number - SpecialTokens.first_word}" for number in own] for own in ids]
    limits = {"min_decoding_length": length, "max_decoding_length": length, "max_input_length": 0}

    def work() -> int:
        found = translator.translate_batch(texts, beam_size=beam, max_batch_size=0, **limits)
        return _checked(sum(len(own.hypotheses[0]) for own in found), len(texts) * length)

    return work


def _theirs_hf(model: Any, settings: Settings, beam: int, joined: int) -> Callable[[], int]:
    """The same by `generate` of transformers."""
    length = joined * (settings.words + _MARKS)
    tokens = torch.tensor(_random(settings.model.vocabulary_size, settings.sentences // joined, length))
    limits = {"min_new_tokens": length, "max_new_tokens": length}

    def work() -> int:
        with torch.inference_mode():
            found = model.generate(tokens, attention_mask=torch.ones_like(tokens), num_beams=beam, **limits)
        return _checked(found[:, 1:].numel(), tokens.numel())

    return work


def _checked(made: int, wanted: int) -> int:
    if made != wanted:
        raise RuntimeError(f"the search gave {made} tokens instead of {wanted}")
    return made


def _ctranslate2(model: TranslationModel, folder: Path) -> dict[str, Any]:
    """The model as CTranslate2 translates with it, by precision. Raises DocmtError where that is not installed."""
    from docmt.interop import export_ctranslate2

    specials = SpecialTokens(model.config.vocabulary_size)
    tokenizer = DictionaryTokenizer([f"w{number}" for number in range(specials.eod - specials.first_word)])
    save_model(folder / "model", model, tokenizer)
    export_ctranslate2(folder / "model", folder / "exported")
    import ctranslate2

    threads = {"inter_threads": 1, "intra_threads": torch.get_num_threads()}
    exported = str(folder / "exported")
    return {
        kind: ctranslate2.Translator(exported, device="cpu", compute_type=kind, **threads)
        for kind in ("float32", "int8")
    }


def _transformers(config: ModelConfig) -> dict[str, Any]:
    """A Marian model of these sizes, by precision. Raises DocmtError where transformers is not installed."""
    try:
        import transformers
    except ImportError as error:
        raise DocmtError("the benchmark peers needs transformers, which is missing: pip install .[bench]") from error
    sizes = config.filled()
    made = transformers.MarianConfig(
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
    model = transformers.MarianMTModel(made).eval()
    lowered = transformers.MarianMTModel(made).eval().to(torch.bfloat16)
    return {"float32": model, "bfloat16": lowered}


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
        ours, ct2 = best("sentences", "docmt", beam), best("sentences", "CTranslate2", beam)
        findings += [
            finding(f"{settings.sentences} sentences, {size}", ours, ct2, 1.0 if greedy else 1.2),
            finding(f"{settings.sentences} sentences, {size}", ours, best("sentences", "transformers", beam)),
        ]
        one, ct2 = best("a document", "docmt", beam), best("a document", "CTranslate2", beam)
        findings += [
            finding(f"a document, {size}", one, ct2, None if greedy else 6.0),
            finding(f"a document, {size}", one, best("a document", "transformers", beam)),
        ]
        if greedy:
            many = f"{settings.documents} documents"
            abreast = best("a document", "docmt abreast, gates closed", beam)
            findings += [
                finding(f"a document, {size}, at best", abreast, ct2, 9.0),
                finding(f"a document against its sentences as a batch, {size}, at best", abreast, ours, 1 / 1.3),
                finding(
                    f"{many}, {size}, at best",
                    best(many, "docmt abreast, gates closed", beam),
                    best(many, "docmt, gates closed", beam),
                    3.0,
                ),
            ]
    return findings
