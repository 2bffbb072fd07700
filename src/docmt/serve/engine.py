"""The engine of the service: one thread owns the models, and sentences of all requests meet in its batches."""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from docmt.core.errors import DocmtError, is_out_of_memory
from docmt.core.progress import plain_progress
from docmt.decoding import PartialTranslation, SearchConfig, Translation, Translator, WordLink
from docmt.decoding.document_translator import DocumentTranslator
from docmt.decoding.search_config import calling_between_steps
from docmt.decoding.term_search import Scores
from docmt.decoding.translation_results import TranslatedSentence, non_finite_error
from docmt.documents import Document
from docmt.documents.segmentation import DEFAULT_LANGUAGE
from docmt.engines import EngineUnavailable
from docmt.serve.model_pool import ModelNotLoaded, ModelPool
from docmt.serve.work_queue import LANES, Lane, Work, WorkQueue
from docmt.terms import Glossary
from docmt.terms.matching import TermMatcher, TermMode

_SHORT_TURN_SECONDS, _LONG_TURN_SECONDS = 1.0, 3.0
"""How long a turn should take. Long ones translate more a second; short ones let others of their lane wait less."""
_JOB_SHARE = 0.25
"""Seconds of a job's turn for each second of the short texts that interrupt it."""
_MOST_OWED_SECONDS = 1.0
"""Longest that a short text waits for a job that was interrupted often."""
_MOST_INTERRUPTIONS = 2
"""Turns that may stand still at one time."""
_STOP_SECONDS = 5.0
"""How long short texts may still be translated when the service stops."""
_BUSY_SHORT_TURNS = 4
"""Turns are long, too, where short texts for more than so many short turns wait: these wait for each other."""
_FIRST_TURN_TOKENS, _LEAST_TURN_TOKENS, _MOST_TURN_TOKENS = 512, 256, 32_768
_WINDOW_SECONDS = 0.005
"""How long an idle engine waits for more texts after the first."""
_UNKNOWN_SPEED = 1000.0
"""Tokens per second of a model that has not translated yet."""
_SMOOTHING = 0.3  # of tokens per second: the share of the last turn
_log = logging.getLogger(__name__)
Result = TypeVar("Result")


class Overloaded(DocmtError):  # noqa: N818 - as HTTP calls it
    """What waits has reached its bound."""

    def __init__(self, message: str, retry_after: int) -> None:
        """retry_after: seconds."""
        super().__init__(message)
        self.retry_after = retry_after


@dataclass
class _Speed:
    """Measured speed of a model, and the size of its turns.

    The size follows the duration of the last turn, not the speed: small batches are slow, so a size from their speed
    would stay small.
    """

    tokens_per_second: float = 0.0
    full_speed: float = 0.0
    """source tokens a second of turns with enough texts; 0: there were none yet"""
    sizes: dict[float, float] = field(default_factory=dict)
    """source tokens of a turn, by its seconds"""

    def turn_tokens(self, turn_seconds: float) -> int:
        """Return the source tokens of a turn that should take this long."""
        return int(self.sizes.get(turn_seconds, _FIRST_TURN_TOKENS))

    def add(self, tokens: int, seconds: float, turn_seconds: float) -> None:
        """Add the measurement of a turn."""
        speed = tokens / max(seconds, 1e-6)
        self.tokens_per_second = _smooth(self.tokens_per_second, speed)
        size = self.turn_tokens(turn_seconds)
        if tokens >= size / 2 or seconds > turn_seconds:  # a turn of few texts does not show what fits into one
            self.full_speed = _smooth(self.full_speed, speed)
            factor = min(max(turn_seconds / max(seconds, 1e-6), 0.5), 2.0)
            self.sizes[turn_seconds] = min(max(size * factor, _LEAST_TURN_TOKENS), _MOST_TURN_TOKENS)


def _smooth(old: float, new: float) -> float:
    return (1 - _SMOOTHING) * old + _SMOOTHING * new if old else new


class _Interrupted(Exception):  # noqa: N818 - not a fault
    """A turn ends: the service stops, or nobody wants its works any more."""


@dataclass
class _Turn:
    """A turn of works of one lane, or of a call, which short texts may interrupt."""

    works: Sequence[Work | _Call]
    seconds: float
    """how long it should take"""
    owed: float = 0.0
    """seconds before it may be interrupted"""
    started: float = field(default_factory=time.monotonic)
    resumed: float = field(default_factory=time.monotonic)
    """when it last went on"""
    interrupted_seconds: float = 0.0

    @property
    def is_job(self) -> bool:
        """Whether it is of documents."""
        return self.works[0].lane == "jobs"

    @property
    def elapsed(self) -> float:
        """Seconds of its own."""
        return time.monotonic() - self.started - self.interrupted_seconds

    @property
    def may_wait(self) -> bool:
        """Whether short texts come first: before documents, and before texts that take longer than they should."""
        is_long = self.is_job or self.elapsed > 2 * self.seconds
        return is_long and time.monotonic() - self.resumed >= self.owed


@dataclass
class _Call:
    """A call in the thread that translates."""

    work: Callable[[], Any]
    future: Future[Any] = field(default_factory=Future)
    lane: Lane = "interactive"
    is_cancelled: bool = False


class Engine:
    """Translates documents of many callers in one thread."""

    def __init__(self, models: ModelPool, max_waiting_seconds: float = 30.0) -> None:
        """max_waiting_seconds: how long a text may have to wait in the interactive lane, by the measured speed.

        Clients give up later.
        """
        self.models, self._max_waiting_seconds = models, max_waiting_seconds
        self._queue, self._calls, self._condition = WorkQueue(), deque[_Call](), threading.Condition()
        self._speeds = {(model.name, lane): _Speed() for model in self.models.describe() for lane in LANES}
        self._last_speed = _Speed()  # of the model and lane that translated last
        self._batches, self._batch_tokens, self._batch_fill = 0, 0, 0.0
        self._stopped_at: float | None = None
        self._turns: list[_Turn] = []  # each is interrupted by the next
        self._owed = 0.0  # seconds that the short texts owe to jobs that wait
        self._thread = threading.Thread(target=self._run, name="docmt-engine", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the turns of documents at once, those of short texts within seconds, and then the thread.

        What waits fails with a DocmtError.
        """
        with self._condition:
            self._stopped_at = time.monotonic()
            self._condition.notify()
        if self._thread.is_alive():
            self._thread.join()
        error = _stopping_error()
        for work in self._queue.remove_all():
            work.deliver(error)
        while self._calls:
            future = self._calls.popleft().future
            if future.set_running_or_notify_cancel():
                future.set_exception(error)

    @property
    def is_alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    def submit(self, work: Work) -> Work:
        """Return the work, which waits for its translation from now on. Raises DocmtError for a beam too wide."""
        self._search_for(work.n_best)
        with self._condition:
            self._queue.add(work)
            self._condition.notify()
        return work

    async def make_matcher(
        self, model: str, entries: str, glossaries: Sequence[tuple[Glossary, TermMode]] = ()
    ) -> TermMatcher | None:
        """Return the matcher of the terms of a request beside those of the server; None: there are only these.

        entries, errors: see `TermMatchers.make`. glossaries: of a user, the first one wins over all. Raises DocmtError
        also for a search without terms, and UnknownModel.
        """
        self.models.describe_one(model)
        self.models.search.check_terms(entries or glossaries)
        made = await self.models.terms.make(model, entries) if entries else None
        for glossary, mode in reversed(glossaries):
            made = await asyncio.to_thread(TermMatcher, glossary, mode, made or self.models.terms.find(model))
        return made

    def check_room(self, model: str, owner: str = "") -> None:
        """Raise Overloaded when too many short texts wait, before those of a request are submitted.

        An owner with less than a fair share of them is let in. Raises UnknownModel.
        """
        self.models.describe_one(model)
        with self._condition:
            speed = self._speeds[model, "interactive"].full_speed or _UNKNOWN_SPEED
            is_full = self._queue.is_above("interactive", self._max_waiting_seconds * speed)
            if is_full and self._queue.count_share("interactive", owner) >= 1:
                seconds = math.ceil(self._queue.count_tokens("interactive") / speed)
                raise Overloaded("too many texts are waiting. Try again later.", seconds)

    def _search_for(self, n_best: int) -> SearchConfig:
        """Return the search with this many translations, whose beam is wide enough. Raises DocmtError for 0."""
        search = self.models.search
        return search if n_best == 1 else replace(search, n_best=n_best, beam=max(n_best, search.beam))

    async def segment(self, model: str, text: str) -> Document:
        """Return a text as a document, by the rules of the model's language."""
        language = self.models.describe_one(model).source_language or DEFAULT_LANGUAGE
        return await asyncio.to_thread(Document.from_text, text, language=language, protect=self.models.patterns or ())

    async def align(self, model: str, pairs: Sequence[tuple[str, str]]) -> list[tuple[WordLink, ...]]:
        """Return the word links of the sentences of one document and their translations. Raises UnknownModel."""
        self.models.describe_one(model)

        sentences = tuple(TranslatedSentence(*pair, 0.0, (0, len(pair[0])), (0, len(pair[1]))) for pair in pairs)
        translation = Translation(Document.from_sentences([target for _, target in pairs]), sentences, 0.0)
        (aligned,) = await self._call(lambda: self.models.load(model).align([translation]))
        return [sentence.alignment or () for sentence in aligned]

    async def search_terms(
        self, model: str, document: Document, targets: Sequence[str], scores: Scores, terms: TermMatcher
    ) -> dict[int, TranslatedSentence]:
        """Return sentences of a translated document that were searched again for terms; see `TermSearch.run_again`."""
        return await self._call(
            lambda: self.models.load(model).with_terms(terms).search_terms(document, targets, scores)
        )

    async def _call(self, work: Callable[[], Result]) -> Result:
        """Return what a call in the thread that translates returns."""
        call = _Call(work)
        with self._condition:
            self._calls.append(call)
            self._condition.notify()
        try:
            result: Result = await asyncio.wrap_future(call.future)
        finally:
            call.is_cancelled = True  # its caller may have gone away
        return result

    def statistics(self) -> dict[str, Any]:
        """Return the state of the engine, by name: numbers, or numbers by lane.

        tokens_per_second: source tokens, of the model that translated last. batches: turns so far. batch_tokens: source
        tokens of the last turn. batch_fill: share of its budget that was used. model_bytes: weights of the loaded
        models, about. failed_loads: of models. longest_waiting_seconds: of the texts that wait now, each since its last
        turn.
        """
        with self._condition:
            return {
                "waiting_sentences": {lane: self._queue.count_sentences(lane) for lane in LANES},
                "waiting_tokens": {lane: self._queue.count_tokens(lane) for lane in LANES},
                "tokens_per_second": self._last_speed.tokens_per_second,
                "batches": self._batches,
                "batch_tokens": self._batch_tokens,
                "batch_fill": self._batch_fill,
                "model_bytes": self.models.loaded_bytes(),
                "failed_loads": self.models.failed_loads,
                "longest_waiting_seconds": {lane: self._queue.longest_wait(lane) for lane in LANES},
            }

    def _run(self) -> None:
        """Translate what waits, turn by turn, until the engine is stopped."""
        with plain_progress(), calling_between_steps(self._interrupt):
            while self._wait():
                self._take_next(LANES)

    def _wait(self) -> bool:
        """Wait for work. Return whether to go on."""
        with self._condition:
            if self._stopped_at is not None or self._calls or self._queue:
                return self._stopped_at is None
            while not (self._stopped_at is not None or self._calls or self._queue):
                self._condition.wait()
        time.sleep(_WINDOW_SECONDS)
        return self._stopped_at is None

    def _take_next(self, lanes: Sequence[Lane]) -> None:
        """Make a call, or translate for a turn: of short texts, unless they owe time to documents."""
        with self._condition:
            call, waiting = self._calls.popleft() if self._calls else None, self._queue.list_waiting(lanes)
            if len(waiting) > 1 and self._owed >= _MOST_OWED_SECONDS:
                waiting.reverse()
            works = self._queue.take(waiting[0], self._turn_tokens) if waiting and not call else []
        started = time.monotonic()
        with suppress(_Interrupted):
            if call is not None:
                self._answer(call)
            elif works:
                self._translate(works)
        if (not works or works[0].lane == "interactive") and ("jobs" in waiting or self._turns):
            self._owed = min(self._owed + _JOB_SHARE * (time.monotonic() - started), _MOST_OWED_SECONDS)

    @contextmanager
    def _in_turn(self, works: Sequence[Work | _Call]) -> Iterator[_Turn]:
        """Return a turn that lasts until the end of the context. works: of one lane, or one call."""
        turn = _Turn(works, self._choose_turn_seconds(works[0].lane))
        if turn.is_job:
            turn.owed, self._owed = self._owed, 0.0
        self._turns.append(turn)
        try:
            yield turn
        finally:
            self._turns.pop()

    def _interrupt(self) -> None:
        """Between the steps of a turn, translate short texts that came meanwhile.

        Raises _Interrupted if the service stops, or nobody wants the works of the turn.
        """
        turn = self._turns[-1]
        while len(self._turns) <= _MOST_INTERRUPTIONS and turn.may_wait and self._has_short_texts():
            started = time.monotonic()
            self._take_next(LANES[:1])
            turn.resumed = time.monotonic()
            turn.interrupted_seconds += turn.resumed - started
            turn.owed, self._owed = self._owed, 0.0
        has_time = self._stopped_at is None or (not turn.is_job and time.monotonic() - self._stopped_at < _STOP_SECONDS)
        if not has_time or all(work.is_cancelled for work in turn.works):
            raise _Interrupted

    def _has_short_texts(self) -> bool:
        """Return whether short texts or calls wait that may be translated, without unloading the model of the turn."""
        with self._condition:
            if self._stopped_at is not None or self._calls:
                return self._stopped_at is None
            return (model := self._queue.find_next("interactive")) is not None and self.models.has_room(model)

    def _choose_turn_seconds(self, lane: Lane) -> float:
        """Return how long a turn should take."""
        speed = self._last_speed.full_speed or _UNKNOWN_SPEED
        with self._condition:  # others submit meanwhile
            is_busy = self._queue.is_above("interactive", _BUSY_SHORT_TURNS * _SHORT_TURN_SECONDS * speed)
        return _LONG_TURN_SECONDS if lane == "jobs" or is_busy else _SHORT_TURN_SECONDS

    def _turn_tokens(self, model: str, lane: Lane) -> int:
        """Return the source tokens of the next turn."""
        return self._speeds[model, lane].turn_tokens(self._choose_turn_seconds(lane))

    def _translate(self, works: list[Work]) -> None:
        """Translate the first part of what these works need, and put the rest back."""
        try:
            if not self.models.is_loaded(works[0].model):
                with self._condition:
                    self._queue.close_all()  # else they would keep a model that is unloaded now
            progressed = self._take_turn(works)
            unfinished = [work for work in works if work.finished < len(work.document) or work not in progressed]
        except (ModelNotLoaded, EngineUnavailable) as error:
            for work in works:  # none is the reason, so none is tried alone: loading may take minutes
                work.deliver(error)
            return
        except _Interrupted:
            for work in works:
                work.close()
            with self._condition:
                self._queue.put_back(works, (), 0)  # what is wanted is tried again, or told that the service stops
            raise
        except Exception as error:  # the engine must outlive any fault
            message = self._describe_error(error)
            for work in works:
                work.close()  # what this turn did is lost
            # One of several works may be the reason, so each is tried alone.
            for work in works:
                if len(works) > 1:
                    with suppress(_Interrupted):  # it was put back, and the others are still to be tried
                        self._translate([work])
                else:
                    work.deliver(DocmtError(message))
            return
        for work in progressed:
            if work not in unfinished:
                work.deliver(None)
        with self._condition:
            self._queue.put_back(unfinished, progressed, self._turn_tokens(works[0].model, works[0].lane))

    def _take_turn(self, works: Sequence[Work]) -> list[Work]:
        """Translate together, deliver the parts, and return the works that progressed or had nothing to translate."""
        first = works[0]
        translator = self.models.load(first.model)
        if first.terms is not None:
            translator = translator.with_terms(first.terms)
        if first.n_best > 1 and isinstance(translator, Translator):
            # Alternatives are those of the model; other engines have none.
            translator = translator.with_search(self._search_for(first.n_best)).with_memory(None)
        with self._in_turn(works) as turn:  # loading is no measure of speed
            budget = self._speeds[first.model, first.lane].turn_tokens(turn.seconds)
            for work in works:
                work.prepare(translator)
            done = [work for work in works if work.resume_point and work.finished == len(work.document)]
            active = [work for work in works if work not in done]
            documents: list[Any] = [work.open(translator, budget) for work in active]
            before = [work.waiting_tokens() for work in active]
            parts = translator.translate_next(documents, budget)
            for part in self._align(translator, active, parts):
                work = active[part.document]
                work.resume_point = part.resume_point
                work.deliver(replace(part, document=0))
        # A turn may end within a long sentence, whose work progresses without a part.
        done += [
            work
            for number, (work, waiting) in enumerate(zip(active, before, strict=True))
            if work.waiting_tokens() < waiting or any(part.document == number for part in parts)
        ]
        if active and not done:
            raise RuntimeError("nothing was translated")
        tokens = sum(before) - sum(work.waiting_tokens() for work in active)
        with self._condition:
            self._last_speed = self._speeds[first.model, first.lane]
            self._last_speed.add(tokens, turn.elapsed, turn.seconds)
            self._batches, self._batch_tokens, self._batch_fill = self._batches + 1, tokens, min(tokens / budget, 1.0)
        return done

    def _align(
        self, translator: DocumentTranslator, works: Sequence[Work], parts: Sequence[PartialTranslation]
    ) -> list[PartialTranslation]:
        """Return parts with the word links that their works want, and errors for scores that are not numbers."""
        checked = [_check_scores(part) for part in parts]
        wanted = [works[part.document].select_aligned(part) if part.translation else [] for part in checked]
        if not any(wanted):
            return checked
        try:
            return translator.align(checked, wanted)
        except DocmtError as error:
            _log.warning("words are not aligned: %s", error)
            return checked

    def _answer(self, call: _Call) -> None:
        """Run a call and pass on its result or error, unless its caller has gone away."""
        if not call.future.set_running_or_notify_cancel():  # else the result of a cancelled one would be an error here
            return
        try:
            with self._in_turn([call]):
                result = call.work()
        except _Interrupted:
            call.future.set_exception(_stopping_error())
        except Exception as error:  # the caller gets it
            call.future.set_exception(error)
        else:
            call.future.set_result(result)

    def _describe_error(self, error: Exception) -> str:
        """Return one sentence; log the traceback of a fault of docmt."""
        if isinstance(error, DocmtError):
            return str(error)
        if isinstance(error, MemoryError | RuntimeError) and is_out_of_memory(error):
            return "there is not enough memory for this text. Send it in parts."
        _log.error("a fault in the engine", exc_info=error)
        return "the service has failed. Its log says why."


def _stopping_error() -> DocmtError:
    return DocmtError("the service is stopping. Try again later.")


def _check_scores(part: PartialTranslation) -> PartialTranslation:
    """Return a part, with an error instead of its translation if its scores are not numbers."""
    if part.translation is None or part.translation.has_finite_scores:
        return part
    return replace(part, translation=None, error=non_finite_error())
