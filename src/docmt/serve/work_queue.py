"""Documents that wait for translation: two lanes, taken in turns of a few tokens so that short texts need not wait."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate, zip_longest
from typing import Literal

from docmt.core.errors import DocmtError
from docmt.core.grouping import group_pairs
from docmt.data.instances import NUM_BOUNDARY_TOKENS
from docmt.decoding import PartialTranslation
from docmt.decoding.document_translator import DocumentTranslator, OpenTranslation
from docmt.decoding.translation_results import PreparedDocument, ResumePoint
from docmt.documents import Document
from docmt.terms.matching import TermMatcher

Lane = Literal["interactive", "jobs"]
LANES: tuple[Lane, ...] = ("interactive", "jobs")
MAX_ALTERNATIVES = 10
"""Further translations of a sentence that a request may ask for."""
_CHARACTERS_PER_TOKEN = 3  # of texts that are not tokenized yet


@dataclass(eq=False)
class Work:
    """A document to translate. The thread that translates delivers its parts to the event loop that made the work."""

    model: str
    document: Document
    lane: Lane = "interactive"
    n_best: int = 1
    align: Callable[[int], bool] = lambda number: False
    """whether to add the word links of a sentence, by its number"""
    resume_point: ResumePoint | None = None
    """of the last part of an interrupted work"""
    targets: Sequence[str] = ()
    """supplied translations of the first sentences; only the others are translated, and see these"""
    owner: str = ""
    """id of a key; owners take turns"""
    terms: TermMatcher | None = None
    """of `Engine.make_matcher`; None: those of the server"""

    def __post_init__(self) -> None:
        self.prepared: PreparedDocument | None = None
        self._open: OpenTranslation | None = None
        self.is_cancelled, self.waiting_since = False, time.monotonic()
        costs = [len(sentence) // _CHARACTERS_PER_TOKEN + NUM_BOUNDARY_TOKENS for sentence in self.document.sentences]
        self._cumulative = [0, *accumulate(costs)]
        self._loop, self._results = asyncio.get_running_loop(), asyncio.Queue[PartialTranslation | DocmtError | None]()

    @property
    def finished(self) -> int:
        """Number of sentences that are translated or were before."""
        return len(self.targets) if self.resume_point is None else self.resume_point.sentences

    def waiting_tokens(self) -> int:
        """Return the source tokens still to translate, about."""
        if self._open is not None:
            return self._open.count_tokens()
        return self._cumulative[-1] - self._cumulative[min(self.finished, len(self.document))]

    def prepare(self, translator: DocumentTranslator) -> None:
        """Tokenize the document, once, and the supplied translations."""
        if self.prepared is None:
            self.prepared = translator.prepare(self.document)
            costs = [length + NUM_BOUNDARY_TOKENS for length in self.prepared.lengths()]
            self._cumulative = [0, *accumulate(costs)]
        if self.targets and self.resume_point is None:
            self.resume_point = translator.resume_after(self.prepared, self.targets)

    def open(self, translator: DocumentTranslator, tokens: int) -> OpenTranslation:
        """Return the document, which is prepared, for `Translator.translate_next`.

        It is cut into instances once, until it is closed.
        """
        opened = self._open
        if opened is None:
            assert self.prepared is not None
            self._open = opened = translator.open(self.prepared, self.resume_point, tokens)
        return opened

    @property
    def is_within_sentence(self) -> bool:
        """Whether the last turn ended within a long sentence."""
        return self._open is not None and self._open.is_within_sentence

    def close(self) -> None:
        """Let go of the model; the next turn goes on at the resume point."""
        self._open = None

    def select_aligned(self, part: PartialTranslation) -> list[int]:
        """Return the sentences of a part, from 0, whose words are to be aligned."""
        return [number for number in range(len(part.source)) if self.align(part.first + number)]

    def deliver(self, result: PartialTranslation | DocmtError | None) -> None:
        """Pass on a part, an error, or the end, from the thread that translates."""
        with suppress(RuntimeError):  # the event loop was closed
            self._loop.call_soon_threadsafe(self._results.put_nowait, result)

    async def parts(self) -> AsyncIterator[PartialTranslation]:
        """Yield parts in order. A part that failed has an error. Raises DocmtError if the whole work failed.

        A consumer that leaves early cancels the work.
        """
        try:
            while (result := await self._results.get()) is not None:
                if isinstance(result, DocmtError):
                    raise result
                yield result
        finally:
            self.cancel()

    async def result(self) -> list[PartialTranslation]:
        """Return all parts."""
        return [part async for part in self.parts()]

    def cancel(self) -> None:
        """Drop what is not translated yet, at the next batch."""
        self.is_cancelled = True


class WorkQueue:
    """Works by lane. Not safe for threads: the engine holds a lock."""

    def __init__(self) -> None:
        self._lanes: dict[Lane, deque[Work]] = {lane: deque() for lane in LANES}
        self._tokens: dict[Lane, int] = dict.fromkeys(LANES, 0)  # with those of cancelled works
        self._turns: dict[str, int] = {}  # of each owner that waits: the number of the last turn
        self._count = 0

    def __bool__(self) -> bool:
        """Return whether anything waits."""
        return any(self._lanes.values())

    def add(self, work: Work) -> None:
        """Add a work at the end of its lane."""
        work.waiting_since = time.monotonic()
        self._lanes[work.lane].append(work)
        self._tokens[work.lane] += work.waiting_tokens()

    def list_waiting(self, lanes: Sequence[Lane] = LANES) -> list[Lane]:
        """Return those of the lanes in which something waits. Cancelled works are removed."""
        self.drop_cancelled()
        return [lane for lane in lanes if self._lanes[lane]]

    def find_next(self, lane: Lane) -> str | None:
        """Return the model of the next turn of a lane, if anything waits."""
        waiting = self._list_in_turn(lane)
        return waiting[0].model if waiting else None

    def take(self, lane: Lane, budget: Callable[[str, Lane], int]) -> list[Work]:
        """Remove and return the works of the next turn of a lane, of one model, n_best and glossary.

        Empty: nothing waits.

        Owners take turns. budget: source tokens of a turn, by model and lane.
        """
        waiting = self._list_in_turn(lane)
        if not waiting:
            return []
        first, taken, tokens = waiting[0], list[Work](), 0
        most = budget(first.model, lane)
        for work in waiting:
            if (work.model, work.n_best) == (first.model, first.n_best) and work.terms is first.terms:
                taken.append(work)
                tokens += max(work.waiting_tokens(), 1)
                if tokens >= most:
                    break
        self._count += 1
        for work in taken:
            self._lanes[lane].remove(work)
            self._tokens[lane] -= work.waiting_tokens()
            self._turns[work.owner] = self._count
        return taken

    def _list_in_turn(self, lane: Lane) -> list[Work]:
        """Return what waits in a lane, one work of each owner after the other; who was served last is the last."""
        works = group_pairs((work.owner, work) for work in self._lanes[lane] if not work.is_cancelled)
        self._turns = {owner: turn for owner, turn in self._turns.items() if owner in works or turn == self._count}
        in_turn = sorted(works.values(), key=lambda each: self._turns.get(each[0].owner, 0))
        return [work for row in zip_longest(*in_turn) for work in row if work is not None]

    def put_back(self, works: Sequence[Work], progressed: Sequence[Work], turn_tokens: int) -> None:
        """Return unfinished works of a turn. Those that progressed go to the end of their lane, others to the front.

        A work that will fit into the next turn goes to the front, too, also before those of other owners: a short text
        that a turn cut in two does not wait for all others again.
        """
        for work in reversed(works):
            if work not in progressed or work.waiting_tokens() <= turn_tokens // 2:
                self._lanes[work.lane].appendleft(work)
                self._turns[work.owner] = 0
                self._tokens[work.lane] += work.waiting_tokens()
            else:
                self.add(work)

    def close_all(self) -> None:
        """Let go of all models, but those with a part of a long sentence, which would be translated again."""
        for lane in LANES:
            for work in self._lanes[lane]:
                if not work.is_within_sentence:
                    work.close()
            self._tokens[lane] = self.count_tokens(lane)

    def drop_cancelled(self) -> None:
        """Remove works that were cancelled."""
        for lane, works in self._lanes.items():
            if any(work.is_cancelled for work in works):
                self._lanes[lane] = deque(work for work in works if not work.is_cancelled)
                self._tokens[lane] = self.count_tokens(lane)

    def remove_all(self) -> list[Work]:
        """Remove and return everything."""
        works = [work for lane in LANES for work in self._lanes[lane]]
        self._lanes, self._tokens = {lane: deque() for lane in LANES}, dict.fromkeys(LANES, 0)
        return works

    def is_above(self, lane: Lane, tokens: float) -> bool:
        """Return whether more source tokens than these wait in a lane. All works are counted only if it may be so."""
        return self._tokens[lane] > tokens and self.count_tokens(lane) > tokens

    def count_tokens(self, lane: Lane) -> int:
        """Return the source tokens that wait in a lane, about."""
        return sum(work.waiting_tokens() for work in self._lanes[lane] if not work.is_cancelled)

    def count_share(self, lane: Lane, owner: str) -> float:
        """Return the source tokens of an owner that wait in a lane, for each token that is its fair share."""
        tokens = {owner: 0}
        for work in self._lanes[lane]:
            if not work.is_cancelled:
                tokens[work.owner] = tokens.get(work.owner, 0) + work.waiting_tokens()
        return tokens[owner] * len(tokens) / max(sum(tokens.values()), 1)

    def longest_wait(self, lane: Lane) -> float:
        """Return the seconds that a work of a lane waits for its first or next turn, at most."""
        started = [work.waiting_since for work in self._lanes[lane] if not work.is_cancelled]
        return time.monotonic() - min(started) if started else 0.0

    def count_sentences(self, lane: Lane) -> int:
        """Return the sentences that wait in a lane."""
        return sum(len(work.document) - work.finished for work in self._lanes[lane] if not work.is_cancelled)
