"""docmt roundtrip REVERSE FORWARD DOCUMENTS -o CORPUS.jsonl

Make the training data of a model that repairs translations (DocRepair, Voita et al. 2019) from documents of their
language. REVERSE translates these by beam search, and FORWARD back by sampling, best sentence by sentence. The corpus
has the round trips as source and the documents as target.

usage:
    REVERSE FORWARD DOCUMENTS -o CORPUS.jsonl [options]

examples:
    docmt roundtrip runs/de-en runs/en-de mono.de -o repair.jsonl
    docmt roundtrip runs/de-en runs/en-de mono.de -o repair.jsonl --samples 4 --resume
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from docmt.checking.languages import detect_language
from docmt.cli.corpus_io import check_outputs, map_or_report
from docmt.cli.model_arguments import read_languages
from docmt.cli.options import ModelOptions, Parser, translator_of
from docmt.cli.output import is_resumable
from docmt.core.errors import DocmtError
from docmt.core.progress import progress
from docmt.core.resumable_file import ResumableFile, partial_path
from docmt.core.settings import field_range, flag_of, option, ranged
from docmt.decoding.search_config import USUAL_DRAFT_BEAM, SearchConfig
from docmt.documents import Document
from docmt.documents.corpus_files import read_documents
from docmt.documents.input_formats import has_jsonl_name
from docmt.documents.words import list_words, replace_words
from docmt.formats.language_codes import is_same_language

if TYPE_CHECKING:
    from docmt.decoding import Translator

_GROUP_SENTENCES = 1000
"""Sentences that are translated together, and lost by a kill, unless a single document has more."""
_SETTINGS = ("samples", "temperature", "word_noise", "beam", "seed")
_log = logging.getLogger(__name__)
Item = tuple[int, Document]
"""A document with its number, from 1."""


@dataclass(frozen=True, kw_only=True)
class RoundTripOptions(ModelOptions):
    """The options of the command."""

    reverse: str = option(positional=True, metavar="REVERSE")
    """model or run directory that translates the documents to the source language of FORWARD; M1,M2 is an ensemble"""
    forward: str = option(positional=True, metavar="FORWARD")
    """model or run directory that translates back; best the one whose translations are to be repaired"""
    documents: str = option(positional=True, metavar="DOCUMENTS")
    """documents of one sentence a line, an empty line between documents, or the target of JSONL"""
    output: str = option(flags=("-o",), metavar="FILE")
    """corpus, JSONL of one document a line (x.jsonl.gz, x.jsonl.zst: compressed)"""
    samples: int = ranged(1, 1, 1000)
    """round trips of each document, each a document of the corpus"""
    temperature: float = ranged(0.5, *field_range(SearchConfig, "temperature"))
    """divisor of the logits of FORWARD; above 0.5 round trips differ more from the documents"""
    word_noise: float = ranged(0.1, 0, 1)
    """share of the words in round trips to replace with random words of the documents"""
    beam: int = ranged(USUAL_DRAFT_BEAM, *field_range(SearchConfig, "beam"))
    """beam size of REVERSE"""
    seed: int = ranged(1, *field_range(SearchConfig, "seed"))
    """seed of samples and replaced words"""
    resume: bool = False
    """continue after an interruption with the same documents, models and options"""


def parser() -> Parser[RoundTripOptions]:
    """Return the parser of the command."""
    common = "output samples temperature word_noise beam seed resume batch_tokens device precision"
    return Parser("roundtrip", RoundTripOptions, __doc__, common=common)


def run(arguments: Sequence[str]) -> int:
    """Write a corpus of round trips. Return 2 if documents are missing in it."""
    options = parser().parse(arguments)
    if not has_jsonl_name(options.output) or not is_resumable(options.output):
        raise DocmtError(f"{options.output} is not the name of a JSONL file: add -o FILE.jsonl")
    check_outputs(options.output, inputs=[options.documents])
    output = Path(options.output)
    if options.resume and output.is_file() and not partial_path(output).exists():
        _log.info(f"{output} is finished and stays as it is; without --resume it is made again")
        return 0
    documents = _read_documents(options.documents)
    _check_languages(options, documents)
    reverse = translator_of(options, options.reverse).with_search(SearchConfig(beam=options.beam))
    forward = translator_of(options, options.forward)
    fingerprint = _fingerprint(options, documents, [reverse, forward])
    file = ResumableFile(output, fingerprint, options.resume)
    failures = _write(file, options, documents, reverse, forward)
    for failure in failures:
        _log.error(failure)
    _log.info(f"{options.output}: {options.samples} round trips of {len(documents) - len(failures):,} documents")
    return 2 if failures else 0


def _read_documents(path: str) -> list[Document]:
    """Return the documents of a file without empty sentences. Raises DocmtError if there are none."""
    texts = ((id, list(filter(None, sentences))) for id, sentences in read_documents(path, "target"))
    documents = [Document.from_sentences(sentences, id=id) for id, sentences in texts if sentences]
    if not documents:
        raise DocmtError(f"{path} has no sentences: name a file with documents of the target language")
    return documents


def _check_languages(options: RoundTripOptions, documents: Sequence[Document]) -> None:
    """Raise DocmtError unless the models translate in opposite directions; warn of documents in another language."""
    reverse, forward = read_languages(options.reverse), read_languages(options.forward)
    if not all(map(is_same_language, reverse, reversed(forward))):
        raise DocmtError(
            f"{options.reverse} translates {'-'.join(reverse)} and {options.forward} {'-'.join(forward)}: name two "
            "models of opposite directions, first the one that reads the documents"
        )
    found = detect_language(sentence for document in documents[:100] for sentence in document.sentences)
    if found and not is_same_language(found, reverse[0]):
        _log.warning(
            f"{options.documents} looks like {found}, but {options.reverse} translates from {reverse[0]}: the first "
            "model must read the language of the documents"
        )


def _fingerprint(
    options: RoundTripOptions, documents: Sequence[Document], translators: Sequence[Translator]
) -> dict[str, Any]:
    """Return what must be equal to resume, by its names in messages."""
    settings = {flag_of(name): getattr(options, name) for name in _SETTINGS}
    context = {flag_of(f"context.{name}"): value for name, value in asdict(options.context).items()}
    texts = json.dumps([[document.id, document.sentences] for document in documents])
    models = [translator.checksums() for translator in translators]
    input = hashlib.sha256(texts.encode()).hexdigest()
    return {"model": models, "input": input, "--precision": options.precision, **settings, **context}


def _write(
    file: ResumableFile,
    options: RoundTripOptions,
    documents: Sequence[Document],
    reverse: Translator,
    forward: Translator,
) -> list[str]:
    """Write the corpus, or the rest of it. Return a message for each document that could not be translated.

    Raises DocmtError if that is all of them.
    """
    work = partial(
        _make_records,
        options,
        list_words(sentence for document in documents for sentence in document.sentences),
        reverse,
        forward,
    )
    try:
        file.acquire()
        done = file.notes[-1]["documents"] if file.notes else 0
        failures = [failure for note in file.notes for failure in note["failures"]]
        reported = len(failures)
        sizes = list(map(len, documents))
        with progress("round trips (sentences)", sum(sizes), sum(sizes[:done])) as bar:
            for group in _groups(documents, done):
                names = [f"{options.documents}, document {number}" for number, _ in group]
                records = map_or_report(group, names, work, failures)
                if text := "".join(filter(None, records)):  # failures are kept back until a document succeeds
                    file.add(text, {"documents": group[-1][0], "failures": failures[reported:]})
                    reported = len(failures)
                bar.advance(sum(len(document) for _, document in group))
        if not file.notes:
            raise DocmtError(f"no document could be translated: {failures[0]}")
        file.finish()
        file.remove()
        return failures
    except BaseException as error:
        if file.notes and not file.finished:
            _log.warning(f"finished parts are in {file.partial}: run the same command with --resume to continue")
        elif isinstance(error, KeyboardInterrupt):
            _log.warning("no part is finished yet: run the same command again")
        raise
    finally:
        file.close()


def _groups(documents: Sequence[Document], start: int) -> Iterator[list[Item]]:
    """Yield the documents from `start` on that are translated together. The groups of a corpus are always the same."""
    group: list[Item] = []
    sentences = 0
    for number, document in enumerate(documents[start:], start + 1):
        sentences += len(document)
        if group and sentences > _GROUP_SENTENCES:
            yield group
            group, sentences = [], len(document)
        group.append((number, document))
    if group:
        yield group


def _make_records(
    options: RoundTripOptions, words: Sequence[str], reverse: Translator, forward: Translator, group: Sequence[Item]
) -> list[str]:
    """Return the lines of the corpus for each document; words: of all documents."""
    documents, first = [document for _, document in group], group[0][0] - 1
    samples = _sample_round_trips(
        reverse, forward, documents, options.samples, options.temperature, options.seed, first
    )
    records = []
    for (place, document), round_trips in zip(group, samples, strict=True):
        lines, chance = [], Random(f"{options.seed} {place}")
        for number, round_trip in enumerate(round_trips, 1):
            source = [replace_words(text, options.word_noise, words, chance) for text in round_trip.sentences]
            record = {"id": f"{document.id}-{number}", "source": source, "target": document.sentences}
            lines.append(json.dumps(record, ensure_ascii=False) + "\n")
        records.append("".join(lines))
    return records


def _sample_round_trips(
    reverse: Translator,
    forward: Translator,
    documents: Sequence[Document],
    samples: int,
    temperature: float,
    seed: int,
    first: int = 0,
) -> list[tuple[Document, ...]]:
    """Translate documents with `reverse`, and back with `forward`, whose tokens are sampled.

    Return `samples` round trips of each document, with one sentence for each of its own. first: number of the first
    document in its corpus, from 0, so that equal documents have other samples. Raises DocmtError where a document
    cannot be translated.
    """
    sampler = forward.with_search(SearchConfig(beam=1, sampling=True, temperature=temperature, seed=seed))
    sources = [translation.document for translation in reverse.translate_all(documents)]
    repeated = [source for source in sources for _ in range(samples)]
    copies = range(first * samples, first * samples + len(repeated))
    sampled = iter([each.document for each in sampler.translate_all(repeated, copies=copies)])
    return [tuple(islice(sampled, samples)) for _ in documents]
