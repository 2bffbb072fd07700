"""The converter of pretrained transformers models of all families. It does not use that library.

`docmt.model.families` describes the families.
"""

from __future__ import annotations

import difflib
import logging
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, cast

from docmt.checkpoint.hf_model import (
    Pretrained,
    PretrainedEncoder,
    check_start_token,
    detect_family,
    get_hf_format,
    read_config,
)
from docmt.checkpoint.hf_tokenizer import read_tokenizer
from docmt.checkpoint.model_directory import ModelCard, check_not_existing, save_model
from docmt.core.errors import DocmtError
from docmt.documents.characters import normalize_characters
from docmt.documents.corpus_files import read_documents
from docmt.formats.language_codes import format_language_tag, primary_language
from docmt.model import TranslationModel
from docmt.model.families import FAMILIES
from docmt.text import PretrainedTokenizer
from docmt.text.pretrained import restrict_vocabulary
from docmt.text.tokenizer import SIDES, Side, SideSentence

_MASK = "<mask>"
_log = logging.getLogger(__name__)


def convert_huggingface(
    directory: Path,
    output: Path,
    *,
    source_language: str = "",
    target_language: str = "",
    prefix: str = "",
    keep_vocabulary: Sequence[Path] = (),
    layout: Literal["native", "published"] = "native",
    instance_tokens: int = 512,
    allow_pickle: bool = False,
    card: ModelCard | None = None,
) -> TranslationModel | None:
    """Write the model in a transformers directory as a docmt model directory with the same logits.

    source_language, target_language: codes of the model's tokenizer, if it has several languages. prefix: instruction
    before each sentence, for T5 models. keep_vocabulary: texts of both sides; the vocabulary is restricted to their
    tokens and single characters. layout: boundary tokens of the model, or for mBART those of Bao et al. (2021), who end
    a document with the symbol of the target language. allow_pickle: see `open_weights`. card: further facts on the
    model. Returns a sentence model, from which any other system can be trained, or None for an encoder (BERT).
    Raises DocmtError for missing or damaged files, and for an unsupported architecture, naming the entry.
    """
    check_not_existing(output)
    values = read_config(directory)
    family = detect_family(directory, values)
    _check_prefix(family, prefix)
    if layout == "published" and family != "mbart":
        raise DocmtError("--layout published is for mBART models of 25 languages. Remove it")
    pretrained_class = Pretrained if FAMILIES[family].encoder is None else PretrainedEncoder
    pretrained = pretrained_class.open(directory, family, values, allow_pickle)
    whole = tokenizer = read_tokenizer(directory, values, pretrained.rows)
    if isinstance(pretrained, Pretrained):
        check_start_token(directory, values, family, tokenizer)
    if keep_vocabulary:
        tokenizer = restrict_vocabulary(whole, _read_sentences(keep_vocabulary, prefix))
        counts = [sum(row >= 0 for row in vocabulary.rows("target")) for vocabulary in (tokenizer, whole)]
        _log.info("kept %s of %s tokens", *(f"{count:,}" for count in counts))
    card = replace(
        card or ModelCard(),
        source_language=source_language,
        target_language=target_language,
        training={"converted_from": f"{directory.name}, a {values['model_type']} model of transformers"},
    )
    if isinstance(pretrained, PretrainedEncoder):
        pretrained.save(output, tokenizer, whole, card)
        return None
    languages = source_language, target_language
    options: dict[str, Any] = dict(language_settings(family, tokenizer, languages, prefix))
    if layout == "published":
        tokenizer, options = _use_published_layout(tokenizer, target_language, directory), {"family": "docmt"}
    rows = {side: tokenizer.rows(side) for side in SIDES}
    model = pretrained.build_model(rows, {**options, "instance_tokens": instance_tokens})
    save_model(output, model, tokenizer, card)
    return model.eval()


def _use_published_layout(tokenizer: PretrainedTokenizer, target: str, directory: Path) -> PretrainedTokenizer:
    """Return the tokenizer of an mBART model in the published layout. Raises DocmtError if it is damaged."""
    marks = tokenizer.language_marks()
    try:
        return tokenizer.with_last_symbols(marks[find_language(target, marks)], _MASK)
    except ValueError as error:
        raise DocmtError(f"the tokenizer in {directory} has no symbol {_MASK}. Copy it again") from error


def _read_sentences(paths: Sequence[Path], prefix: str) -> Iterator[SideSentence]:
    """Yield the prefix and all sentences of a source and a target text. Raises DocmtError for unreadable files."""
    yield "source", prefix
    for side, path in zip(SIDES, paths, strict=True):
        empty = True
        for _, sentences in read_documents(path, side):
            yield from ((side, normalize_characters(text) if side == "source" else text) for text in sentences)
            empty = False
        if empty:
            raise DocmtError(f"{path} has no text. Use a corpus with the tokens to keep")


def _check_prefix(family: str, prefix: str) -> None:
    """Raise DocmtError for a prefix of another model than T5."""
    if prefix and "t5" not in get_hf_format(family).model_types:
        raise DocmtError("--prefix is for T5 models. Remove it")


def check_languages(directory: Path, source_language: str, target_language: str, prefix: str) -> None:
    """Check languages and prefix for a model before its weights are there. See `convert_huggingface`.

    Raises DocmtError for a missing or unknown language or a useless prefix. The conversion finds other faults.
    """
    values = read_config(directory)
    family = detect_family(directory, values)
    _check_prefix(family, prefix)
    sizes = values.get("vocab_size"), values.get("decoder_vocab_size") or values.get("vocab_size")
    if FAMILIES[family].encoder is not None or not all(isinstance(size, int) for size in sizes):
        return
    try:
        tokenizer = read_tokenizer(directory, values, cast(tuple[int, int], sizes))
    except DocmtError:
        return
    language_settings(family, tokenizer, (source_language, target_language), prefix)


def language_settings(
    family: str, tokenizer: PretrainedTokenizer, languages: tuple[str, str], prefix: str
) -> dict[str, list[int]]:
    """Return the model settings that name its languages. Raises DocmtError for an unknown language."""
    known, settings = tokenizer.language_marks(), dict[str, list[int]]()
    for side, language in zip(SIDES, languages, strict=True):
        if not known or not FAMILIES[family].has_language_token(side) or (prefix and side == "target"):
            continue
        if not language:
            raise DocmtError(
                f"this model translates between many languages. Add --{side}-language, one of {_list_some(known)}"
            )
        code = find_language(language, known)
        if not code:
            beginning = sorted(name for name in known if name.startswith(language))
            nearest = (beginning or difflib.get_close_matches(language, known, n=1, cutoff=0.0))[0]
            raise DocmtError(
                f"--{side}-language is {language!r}, which this model does not know. Did you mean {nearest}? "
                f"It knows {_list_some(known)}"
            )
        mark_side: Side = "source" if side.upper() in FAMILIES[family].source.split() else "target"
        mark = tokenizer.find_id(known[code], mark_side)
        assert mark is not None
        settings[f"{side}_language_ids"] = [mark]
    if family == "t5" and not prefix and not settings:
        _log.warning("most T5 models need an instruction before each sentence. Add it with --prefix")
    if prefix:
        settings["target_language_ids"] = tokenizer.encode(prefix, "source")
    return settings


def find_language(language: str, known: Collection[str]) -> str:
    """Return the code that a model has for a language, or an empty text.

    It is the code itself. For a BCP 47 tag it is the only one with the same language and script, or for a language
    alone the only one with this language: deu_Latn for de, zho_Hans for zh-Hans. zh is both zho_Hans and zho_Hant, so
    it has none.
    """
    if language in known or "_" in language:  # a code of a model with a typing error must not become another one
        return language if language in known else ""
    for normalize in (format_language_tag, *([primary_language] if language.isalpha() else [])):
        matches = [code for code in known if normalize(code) == normalize(language)]
        if len(matches) == 1:
            return matches[0]
    return ""


def _list_some(names: Iterable[str]) -> str:
    """Return a list of the first names."""
    ordered = sorted(names)
    return ", ".join(ordered[:8]) + (f", ... ({len(ordered)} in all)" if len(ordered) > 8 else "")
