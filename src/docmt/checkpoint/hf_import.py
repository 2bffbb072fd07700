"""Pretrained models of the library transformers as docmt models, read without that library.

What there is to know about a family is in `docmt.model.families`; here is what all of them have in common.
"""

from __future__ import annotations

import difflib
import logging
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from docmt.checkpoint.hf_model import Pretrained, PretrainedEncoder, about_family, check_start, family_of, read_config
from docmt.checkpoint.hf_tokenizer import read_tokenizer
from docmt.checkpoint.model_directory import ModelCard, check_new, save_model
from docmt.core.errors import DocmtError
from docmt.documents.corpus_files import read_documents
from docmt.model import TranslationModel
from docmt.model.families import FAMILIES
from docmt.text import PretrainedTokenizer
from docmt.text.pretrained import kept
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
    layout: Literal["own", "published"] = "own",
    instance_tokens: int = 512,
) -> TranslationModel | None:
    """Writes the model in a directory of transformers as a docmt model directory, whose logits are the same.

    Languages: of the pair that is to be translated, by the codes of the model's tokenizer, where it has many; prefix:
    what a T5 model is told before each sentence; keep_vocabulary: texts of both sides, besides whose tokens only single
    characters are kept; layout: of sentences, that of the model, or of mBART that in which Bao et al. (2021) went on
    with it: as docmt's own models, where the symbol of the target language ends a document. The model translates
    sentence by sentence; any other system can be trained from it. Of an encoder (BERT), which is no model yet, nothing
    is returned. Raises DocmtError for files that are missing or damaged, and for anything in the architecture that
    docmt's model does not have, by the name of the entry.
    """
    check_new(output)
    values = read_config(directory)
    family = family_of(directory, values)
    if prefix and "t5" not in about_family(family).types:
        raise DocmtError("--prefix is for T5 models: leave it out")
    if layout == "published" and family != "mbart":
        raise DocmtError("--layout published is for mBART models of 25 languages: leave it out")
    kind = Pretrained if FAMILIES[family].encoder is None else PretrainedEncoder
    pretrained = kind.of(directory, family, values)
    whole = tokenizer = read_tokenizer(directory, values, pretrained.rows)
    if isinstance(pretrained, Pretrained):
        check_start(directory, values, family, tokenizer)
    if keep_vocabulary:
        tokenizer = kept(whole, _sentences(keep_vocabulary, prefix))
        counts = [sum(row >= 0 for row in own.rows("target")) for own in (tokenizer, whole)]
        _log.info("kept %s of %s tokens", *(f"{count:,}" for count in counts))
    card = ModelCard(
        source_language=source_language,
        target_language=target_language,
        training={"converted_from": f"{directory.name}, a {values['model_type']} model of transformers"},
    )
    if isinstance(pretrained, PretrainedEncoder):
        pretrained.save(output, tokenizer, whole, card)
        return None
    languages = source_language, target_language
    options: dict[str, Any] = dict(marks_of(family, tokenizer, languages, prefix))
    if layout == "published":
        tokenizer, options = _as_published(tokenizer, target_language, directory), {"family": "docmt"}
    rows = {side: tokenizer.rows(side) for side in SIDES}
    model = pretrained.model(rows, {**options, "instance_tokens": instance_tokens})
    save_model(output, model, tokenizer, card)
    return model.eval()


def _as_published(tokenizer: PretrainedTokenizer, target: str, directory: Path) -> PretrainedTokenizer:
    """The tokenizer of an mBART model in the published layout. Raises DocmtError for a damaged one."""
    try:
        return tokenizer.ending_in(tokenizer.language_marks()[target], _MASK)
    except ValueError as error:
        raise DocmtError(f"the tokenizer in {directory} has no symbol {_MASK}: copy it again") from error


def _sentences(paths: Sequence[Path], prefix: str) -> Iterator[SideSentence]:
    """All that a source and a target text ask a tokenizer for. Raises DocmtError for what cannot be read."""
    yield "source", prefix
    for side, path in zip(SIDES, paths, strict=True):
        empty = True
        for _, sentences in read_documents(path, side):
            yield from ((side, sentence) for sentence in sentences)
            empty = False
        if empty:
            raise DocmtError(f"{path} has no text: give a corpus whose tokens are to be kept")


def marks_of(
    family: str, tokenizer: PretrainedTokenizer, languages: tuple[str, str], prefix: str
) -> dict[str, list[int]]:
    """The settings of a model that name its languages. Raises DocmtError for a language that it does not know."""
    known, marks = tokenizer.language_marks(), dict[str, list[int]]()
    for side, language in zip(SIDES, languages, strict=True):
        if not known or not FAMILIES[family].names(side) or (prefix and side == "target"):
            continue
        if not language:
            raise DocmtError(
                f"this model translates between many languages: add --{side}-language, one of {_some(known)}"
            )
        if language not in known:
            near = difflib.get_close_matches(language, known, n=1, cutoff=0.0)[0]
            raise DocmtError(
                f"--{side}-language is {language!r}, which this model does not know: did you mean {near}? "
                f"It knows {_some(known)}"
            )
        stands: Side = "source" if side.upper() in FAMILIES[family].source.split() else "target"
        mark = tokenizer.id_of(known[language], stands)
        assert mark is not None
        marks[f"{side}_mark"] = [mark]
    if family == "t5" and not prefix and not marks:
        _log.warning("a T5 model is told what to do before each sentence, if it is not trained otherwise: see --prefix")
    if prefix:
        marks["target_language_ids"] = tokenizer.encode(prefix, "source")
    return marks


def _some(names: Iterable[str]) -> str:
    """A few of many names."""
    first = sorted(names)
    return ", ".join(first[:8]) + (f", ... ({len(first)} in all)" if len(first) > 8 else "")
