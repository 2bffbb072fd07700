"""An engine without a model: each target tells its source, and the two targets before it."""

import asyncio
import re
from dataclasses import dataclass, replace

from docmt.decoding.translation_results import (
    PartialTranslation,
    ResumePoint,
    TermUse,
    TranslatedSentence,
    Translation,
    WordLink,
)
from docmt.documents import Document
from docmt.serve.engine import Overloaded
from docmt.serve.model_pool import TermMatchers
from docmt.terms.matching import TermMatcher


@dataclass(frozen=True)
class FakeModel:
    name: str = "fake"
    source_language: str = "en"
    target_language: str = "fr"
    reads_context: bool = True


def link_words(source, target):
    """Links of the n-th words."""
    sides = ([match.span() for match in re.finditer(r"\S+", text)] for text in (source, target))
    return tuple(WordLink(one, other, 1.0, n % 5 != 4) for n, (one, other) in enumerate(zip(*sides, strict=False)))


class FakeWork:
    def __init__(self, engine, document, first, history, options):
        self.engine, self.document, self.first, self.history, self.options = engine, document, first, history, options
        self.is_cancelled = False

    def translate(self, number):
        source = self.document.sentences[number]
        if "FAIL" in source:
            return None
        seen = "+".join(text.split()[0].strip("«»") for text in self.history[-2:] if text)
        target = f"«{source}» ({seen})"
        align = self.options.get("align", False)
        links = link_words(source, target) if align is True or (align and align(number)) else None
        terms = self.options.get("terms")
        uses = []
        for each in terms.find(source) if terms else ():
            status = "met" if each.term.targets[0] in target else "lost"
            uses.append(TermUse(each.span, each.term.source, each.term.targets, "", status))
        return TranslatedSentence(
            source, target, -float(len(source)), (0, 0), (0, 0), tokens=4, alignment=links, terms=tuple(uses)
        )

    def make_part(self, first, last):
        source = self.document.slice(first, last)
        sentences = []
        for number in range(first, last):
            sentences.append(self.translate(number))
            self.history.append(sentences[-1].target if sentences[-1] else "")
        history = [[[ord(character) for character in text]] for text in self.history[-2:]]
        point, translation, error = ResumePoint(last, history), None, self.engine.error
        if None not in sentences:
            translation = Translation(source, tuple(sentences), -1.0, at_limit=(0,) if first == 0 else ())
            others = [
                replace(
                    translation, sentences=tuple(replace(each, target=f"{each.target}{rank}") for each in sentences)
                )
                for rank in range(1, self.options.get("n_best", 1))
            ]
            translation = replace(translation, alternatives=tuple(others))
        return PartialTranslation(0, first, source, point, translation, None if translation else error)

    async def parts(self):
        for first in range(self.first, len(self.document), self.engine.step):
            await self.engine.wait()
            if self.is_cancelled:
                return
            last = min(first + self.engine.step, len(self.document))
            spans = [(first, last)]
            if any("FAIL" in each for each in self.document.sentences[first:last]):
                spans = [(number, number + 1) for number in range(first, last)]
            for span in spans:
                self.engine.translated += span[1] - span[0]
                yield self.make_part(*span)

    async def result(self):
        return [part async for part in self.parts()]

    def cancel(self):
        self.is_cancelled = True


class FakeEngine:
    """step: sentences of a part. hold: sentences after which the engine waits, until it is changed."""

    patterns, memories, unloadable = (), (), ()

    def __init__(self, step=2, hold=10_000, seconds=0.0):
        self.step, self.hold, self.seconds = step, hold, seconds
        self.translated = 0
        self.requests = []
        self.refusals = []
        self.error = None
        self.searches = []
        self.models = self

    async def wait(self):
        await asyncio.sleep(self.seconds)
        while self.translated >= self.hold:
            await asyncio.sleep(0.005)

    def describe_one(self, name):
        return next(each for each in self.describe() if each.name == name)

    def describe(self):
        return [FakeModel()]

    def find(self, name="", source="", target=""):
        return name or "fake"

    def check_room(self, model, owner=""):
        if self.refusals and isinstance(self.refusals[-1], Overloaded):
            raise self.refusals.pop()

    def submit(self, work):
        if self.refusals:
            raise self.refusals.pop()
        document, resume_point, targets, options = work.document, work.resume_point, work.targets, vars(work)
        self.requests.append((document, resume_point, tuple(targets), options))
        if resume_point is not None:
            first = resume_point.sentences
            history = ["".join(map(chr, words)) for (words,) in resume_point.history]
        else:
            first, history = len(targets), list(targets)
        return FakeWork(self, document, first, history, options)

    async def make_matcher(self, model, entries, glossaries=()):
        languages = {each.name: (each.source_language, each.target_language) for each in self.describe()}
        made = await TermMatchers((), "prefer", languages).make(model, entries) if entries else None
        for glossary, mode in reversed(glossaries):
            made = TermMatcher(glossary, mode, made)
        return made

    async def segment(self, model, text):
        return Document.from_text(text)

    async def align(self, model, pairs):
        return [link_words(*pair) for pair in pairs]

    async def search_terms(self, model, document, targets, scores, terms):
        """Add the targets of the terms of a sentence, except to one of birds."""
        await self.wait()
        self.searches.append(([document.sentences[number] for number in scores], terms.mode))
        found = {}
        for number in scores:
            source, target, uses = document.sentences[number], targets[number], []
            for each in terms.find(source):
                wanted = each.term.targets[0]
                is_met = wanted in target
                target += f" {wanted}" * (not is_met and "birds" not in source)
                status = "met" if is_met else "second_search" if wanted in target else "lost"
                facts = {"dropped": "brown"} if "brown" in source else {}
                made = wanted * (wanted in target)
                uses.append(TermUse(each.span, each.term.source, each.term.targets, made, status, 1.0, **facts))
            score, tokens = scores[number] if target == targets[number] else (-9.0, 3)
            spans = (0, 0), (0, 0)
            found[number] = TranslatedSentence(source, target, score, *spans, tokens=tokens, terms=tuple(uses))
        return found
