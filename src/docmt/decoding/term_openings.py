"""Openings of a translation that end in a term: the translation so far, the articles, and a form of the term."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from docmt.decoding.long_sentences import PieceTranslator
from docmt.decoding.term_report import NO_VERB, VERB
from docmt.decoding.translation_results import Hypothesis
from docmt.documents import unwrap_lines
from docmt.documents.words import UNSPACED, Span, WordLink, find_words, has_letters, has_words, overlaps
from docmt.formats.language_codes import primary_language
from docmt.terms.articles import Articles, join_elided
from docmt.terms.matching import Occurrence, TermMatcher
from docmt.text.tokenizer import locate_tokens

_ARTICLE_WEIGHT = 0.1
"""Weight of the log-probability of an article: nouns that a model does not expect say little beside it."""
_MOST_PLACES = 8
"""Places that are tried for a term without a link."""
_LIKELY, _CLEAR = 1.0, 0.2
"""Nats by which the model may prefer other words to those of an old rest: if all are within the first, the rest stays,
else the words before the first one beyond the second."""
_BETWEEN_NOUNS = re.compile(r"(?<=\w)\s+(?:(?:de|par|en|sans)\s+|d['’])$", re.I)
"""What stands in French between a noun and a noun that says more of it, but not before an adjective."""
_PREPOSITIONS = {"es": "de ", "fr": "de ", "it": "di ", "pt": "de "}
"""What stands between a noun and another one that English would put before it, by language."""
_NO_ARTICLE = re.compile(r"(?:de\b|d['’]|que\b|qu['’]|même|autre)", re.I)
"""What an infinitive in French may follow, among the words before nouns."""
_MOST_BETWEEN = 2
"""Function words between two words of a phrase."""
_OTHER_FORM = 3.0
"""Log-probability (nats) by which another form of a term has to be better than a listed one."""


@dataclass(frozen=True)
class Place:
    """Where a term should stand in a translation."""

    target: str
    occurrence: Occurrence | None
    words: Sequence[Span]
    """of the target"""
    number: int | None = None
    """the first word that its links name"""
    last: int = 0
    """the last word of them: they stand side by side, or have a function word between them"""
    around: tuple[str, str] | None = None
    """what stands before and after the term in a sentence that is nothing else"""
    modifier: Occurrence | None = None
    """a term before it, in a sentence of these two"""

    def overlaps(self, spans: Sequence[Span]) -> bool:
        """Return whether a word that its links name is in any of these spans."""
        return overlaps((self.start, self.start + len(self.replaced)), spans)

    @property
    def replaced(self) -> str:
        """The words that its links name."""
        return "" if self.number is None else self.target[self.start : self.words[self.last][1]]

    def begin(self, form: str, is_first: bool) -> str:
        """Return a form of the term: in capitals like the word that it replaces, or with one at the beginning."""
        keep = self.occurrence is not None and self.occurrence.term.keep
        replaced = self.replaced
        if self.around and self.occurrence and not self.occurrence.term.source.isupper():
            replaced = self.target[slice(*self.occurrence.span)]
        if not keep and len(replaced) > 1 and replaced.isupper() and self.target.isupper():
            return form.upper()
        first = next(filter(str.isalpha, self.target), "")
        return form[:1].upper() + form[1:] if is_first and not keep and first.isupper() else form

    @property
    def start(self) -> int:
        """First character of these words."""
        return 0 if self.number is None else self.words[self.number][0]

    @property
    def word(self) -> str:
        """The word that its links name, without an article, if it is one word."""
        return self.target[self.noun : self.words[self.last][1]] if self.number == self.last else ""

    @property
    def noun(self) -> int:
        """First character of these words after an article that ends in an apostrophe."""
        word = "" if self.number is None else self.target[slice(*self.words[self.number])]
        return self.start + max(word.rfind("'"), word.rfind("’")) + 1

    def begins(self, text: str) -> bool:
        """Return whether a new translation begins like this one, up to these words: with the same article."""
        return text.startswith(self.target[: self.start])

    @property
    def rest(self) -> str:
        """The translation after these words."""
        return "" if self.number is None else self.target[self.words[self.last][1] :]


class TermOpenings:
    """Openings of translations that end in a term."""

    def __init__(self, translator: PieceTranslator, matcher: TermMatcher) -> None:
        # imported here: it reads lists of words
        from docmt.checking.languages import DETERMINERS, FUNCTION_WORDS, VITAL_WORDS

        languages = list(map(primary_language, translator.languages))
        self._function_words = [FUNCTION_WORDS.get(each, set()) | DETERMINERS.get(each, set()) for each in languages]
        self._vital_words = [VITAL_WORDS.get(each, frozenset()) for each in languages]
        self._translator, self._matcher = translator, matcher
        self._articles = Articles(translator.languages[1])
        self._preposition = _PREPOSITIONS.get(languages[1], "")

    def find_place(self, target: str, occurrence: Occurrence, links: Sequence[WordLink]) -> Place:
        """Return the place of a term in a translation. links: of the sentence."""
        start, end = occurrence.span
        linked = [link for link in links if start <= link.source[0] < end]
        linked = [link for link in linked if not self._is_attached(target, link.target)]
        words = join_elided(target, find_words(target))
        named = [n for n, span in enumerate(words) if overlaps(span, [link.target for link in linked])]
        likely = [link for link in linked if self.is_content(target, link.target, (), 1)] or linked
        first = next((link.target for link in likely if link.mutual), likely[0].target if likely else (0, 0))
        number = next((n for n in named if overlaps(words[n], [first])), None)
        if number is None:
            return Place(target, occurrence, words)
        ends, content = [number, number], [self.is_content(target, span, (), 1) for span in words]
        for side, others in enumerate((range(number - 1, -1, -1), range(number + 1, len(words)))):
            for other in filter(content.__getitem__, others):  # function words belong to it if the next word does
                if other not in named or abs(other - ends[side]) > _MOST_BETWEEN + 1:
                    break
                ends[side] = other
        return Place(target, occurrence, words, ends[0], ends[1])

    def _is_attached(self, text: str, span: Span) -> bool:
        """Return whether a function word is bound to its verb: *vous* in *tournez-vous*, *ce* in *est-ce*."""
        around = text[span[0] - 1 : span[0]], text[span[1] : span[1] + 1]
        return "-" in around and not self.is_content(text, span, (), 1)

    def make(self, place: Place) -> list[list[int]]:
        """Return the openings to try for a term: the translation so far, a free word or none, a form of the term."""
        if place.occurrence is None:
            return []
        target, words, eos = place.target, place.words, self._translator.tokenizer.specials.eos
        forms = self._list_wholes(place, place.occurrence) if place.around else self._list_forms(place)
        if place.around:
            wholes = [self.encode(place.around[0], 0, place.begin(form, True) + place.around[1]) for form in forms]
            rows = [[*whole, eos] for whole in wholes if whole]
        elif place.number is None:
            places = [start for start, _ in words if target[start].isalnum() and target[start - 1 : start] != "-"]
            starts = [target[:start] for start in places[:: len(places) // _MOST_PLACES + 1]]
            starts = [start for start in starts if not self._articles.is_cut(start, forms[0])]
            rows = [self.encode(start, 0, place.begin(forms[0], not has_letters(start))) for start in starts]
        elif article := self._articles.find(target[: place.noun]):
            before, tail = target[: place.noun - len(article)], self.find_tail(place)
            write = str.upper if target.isupper() else str
            rows = [
                self.encode(before + write(other), 0, place.begin(form, False) + tail)
                for form in forms
                for other in self._list_articles(place, article, form)
            ]
        else:
            rows = [
                self.encode(
                    target[: words[place.number - free][0]],
                    free,
                    place.begin(form, not has_letters(target[: place.start])),
                )
                for form in forms
                for free in (0, 1)  # the word before the term, which may change, but no mark that stands at it
                if not free or (place.number and target[place.start - 1].isspace())
            ]
        return [row for row in (*rows, *self._add_adjectives(place)) if row]

    def _list_wholes(self, place: Place, asked: Occurrence) -> list[str]:
        """Return what may stand for a term, or for two, the first of which says more of the second: *prix de vente*."""
        forms, modifier, source = self._list_listed(asked), place.modifier, self._matcher.source
        if modifier is None:
            return forms
        english, is_adjective = modifier.words[-1], self._list_adjectives(modifier, "") != []
        is_noun, is_doubtful = source.may_be_noun(english), source.has_adjective_ending(english)
        is_doubtful = is_doubtful and any(map(self._matcher.target.has_adjective_ending, modifier.targets))
        rows = list[str]()
        for form in forms:
            for word in self._list_listed(modifier) if is_noun or not is_adjective else ():
                prepositions = self._articles.list_others(self._preposition, word)
                rows += [f"{form} {each}{word}" for each in (prepositions if is_noun else ("", *prepositions))]
            if is_doubtful or not is_noun:
                rows += [f"{form} {word}" for word in dict.fromkeys(self._list_adjectives(modifier, form))]
        return rows

    def _list_listed(self, asked: Occurrence) -> list[str]:
        """Return a term as it is listed, or in the plural: the model chooses a form of the first translation."""
        forms, term = self._matcher.list_forms(asked), asked.term
        if forms[0] in asked.targets:
            return forms[:1]
        return self._matcher.list_forms(asked._replace(term=replace(term, targets=term.targets[:1])))

    def may_follow(self, first: Occurrence) -> bool:
        """Return whether a term at the beginning is a word that stands behind its noun in translations."""
        return self._preposition != "" and self._matcher.source.cannot_be_verb(first.words[0], "")

    def _add_adjectives(self, place: Place) -> list[list[int]]:
        """Return openings with an adjective behind a noun, where more stands between: *une batterie de panne*."""
        before = _BETWEEN_NOUNS.sub(" ", place.target[: place.noun])
        noun = _find_last(before)
        if place.occurrence is None or before == place.target[: place.noun] or not self._matcher.target.is_known(noun):
            return []
        tail, forms = self.find_tail(place), self._list_adjectives(place.occurrence, noun)
        return [self.encode(before, 0, form + tail) for form in forms]

    def _list_adjectives(self, asked: Occurrence, noun: str) -> list[str]:
        """Return the forms of a term beside a noun, in both genders, if it is an adjective."""
        feminines = self._list_known_feminines(asked, noun)
        return [*self._matcher.list_forms(asked, noun), *feminines] if feminines else []

    def continues_word(self, hypothesis: Hypothesis, openings: Sequence[Sequence[int]]) -> bool:
        """Return whether a translation goes on within the last word of its opening: logison after logis."""
        (text,) = self.decode(hypothesis.sentences)
        rests = (text[len(each) :] for each in self.decode(openings) if text.startswith(each))
        return any(re.match(rf"(?![{UNSPACED}])[\w-]", rest) for rest in rests)

    def find_tail(self, place: Place) -> str:
        """Return what shows where a term ends: a function word or sign after a term with an article, as it was."""
        return self._match_tail(place) if self._articles.find(place.target[: place.noun]) else ""

    def _match_tail(self, place: Place) -> str:
        """Return the function word or sign after a term, as it was, with the space before it."""
        span = next(iter(find_words(place.rest)), (0, 0))
        return "" if self.is_content(place.rest, span, (), 1) else place.rest[: span[1]]

    def add_tail(self, place: Place, opening: Sequence[int]) -> list[list[int]]:
        """Return an opening with the function word or sign after the term; none if there is no such word."""
        tail, (text,) = self._match_tail(place), self.decode([opening])
        words = self.encode(text + tail, 0, "") if tail else []
        return [words] if words else []

    def rate(self, place: Place, text: str, hypothesis: Hypothesis) -> tuple[bool, float]:
        """Return how bad the opening that ends in a form of a term, and its tail, is."""
        assert place.occurrence is not None
        ids, (scores,), tokenizer = hypothesis.sentences[0], hypothesis.token_scores, self._translator.tokenizer
        end = len(text.removesuffix(self.find_tail(place).strip()).rstrip())
        written, known = text[:end].lower(), self._list_forms(place)
        forms = [each for each in known if written.endswith((each.lower(), each.lower().replace("’", "'")))]
        form = max(forms, key=len, default="")
        before = text[: end - len(form)]
        article = self._articles.find(before)
        (spans,) = locate_tokens(tokenizer, [text], [ids], "target")
        start = len(before) - len(article)
        of_article = [overlaps(each, [(start, start + len(self._articles.cut_adjective(article)))]) for each in spans]
        weights = [_ARTICLE_WEIGHT if each else 1.0 for each in of_article]
        if place.number is None and form:  # openings of several lengths: the term alone
            weights = [float(each[1] > len(before)) for each in spans]
        others = map(str.lower, self._articles.list_others(article, form))
        is_wrong = self._articles.is_cut(before, form) or (bool(article) and article.lower() not in others)
        is_wrong |= not article and not place.target.startswith(before) and not self._may_change(place, before)
        cost = -sum(score * weight for score, weight in zip(scores, weights, strict=True))
        is_behind_noun = not article or article != self._articles.cut_adjective(article)
        agrees = is_behind_noun and self._list_known_feminines(place.occurrence, "") != []  # an adjective
        return is_wrong, cost + _OTHER_FORM * (not agrees and form not in place.occurrence.targets)

    def _may_change(self, place: Place, before: str) -> bool:
        """Return whether the last word before a term is a function word, or a form of the word that stood there."""
        (word, old), function_words = map(_find_last, (before, place.target[: place.start])), self._function_words[1]
        is_piece = len(word) == 1 and len(old) > len("de")  # D of Définition, which is in d'un as well
        return (word.lower() in function_words and not is_piece) or self._matcher.target.are_forms(word, old)

    def count_left(self, place: Place, target: str, terms: Sequence[Span]) -> int:
        """Return how many words that a term replaces are still in a new translation, beside all terms that are met."""
        start, end = place.start, place.start + len(place.replaced)
        kept = [(target, terms), (place.target, [(start, end)])]
        new, old = (
            [text[slice(*span)] for span in find_words(text) if not overlaps(span, without)] for text, without in kept
        )
        replaced = [span for span in find_words(place.target) if start <= span[0] < end]
        words = {place.target[slice(*span)] for span in replaced if self.is_content(place.target, span, (), 1)}
        are_forms = self._matcher.target.are_forms
        counts = ([sum(are_forms(word, each) for each in side) for side in (new, old)] for word in words)
        return sum(max(0, one - other) for one, other in counts)

    def find_likely(self, place: Place, opening: Sequence[int], whole: Hypothesis) -> list[int]:
        """Return an opening with the clear beginning of the old rest; empty if all words of the rest are likely.

        After another article endings may change, which costs little: there all words have to be clear. whole: the
        translation with the opening and the old rest.
        """
        (words,), (losses,) = whole.sentences, whole.token_losses
        if len(losses) < len(words):  # the model cannot read openings in one pass
            return list(opening)
        (text,), (begun,) = self.decode([words]), self.decode([opening])
        (spans,) = locate_tokens(self._translator.tokenizer, [text], [words], "target")
        rest = [(loss, start) for loss, (start, _) in zip(losses, spans, strict=True) if start >= len(begun)]
        limit = _LIKELY if place.begins(text) else _CLEAR
        if not any(loss > limit for loss, _ in rest):
            return []
        end = text.rfind(" ", 0, next(start for loss, start in rest if loss > _CLEAR) + 1)
        return (end > len(begun) and self.encode(text[:end], 0, "")) or list(opening)

    def encode(self, before: str, free: int, form: str) -> list[int]:
        """Return the word ids of a beginning, free tokens, and a form; none if the model does not know the form."""

        def encode(text: str) -> list[int]:
            return self._translator.encode([text], "target")[0]

        for text in (form, form.replace("’", "'")):
            words = encode(text if free else before + text)
            if self._translator.tokenizer.specials.unk not in words:
                return [*(encode(before.rstrip()) if free else ()), *[-1] * free, *words]
        return []

    def is_untranslated(self, place: Place) -> bool:
        """Return whether a place has a word of the source that the table of the target language does not know."""
        asked, forms = place.occurrence, self._matcher.target
        if asked is None or not forms.has_table:
            return False
        source = {word.casefold() for word in asked.words}
        known = {text[slice(*span)].casefold() for text in asked.targets for span in find_words(text)}
        words = {place.replaced[slice(*span)] for span in find_words(place.replaced)}
        return any(word.isalpha() and word.casefold() in source - known and not forms.is_known(word) for word in words)

    def is_content(self, text: str, span: Span, terms: Sequence[Span], side: int) -> bool:
        """Return whether a word is neither a function word nor in a term. side: 0 of the source, 1 of the target."""
        word = text[slice(*span)].lower()
        return has_words(word) and word not in self._function_words[side] and not overlaps(span, terms)

    def is_vital(self, text: str, span: Span, terms: Sequence[Span], side: int) -> bool:
        """Return whether a translation may not lose a word: content, a negation or a conjunction, as `is_content`."""
        is_listed = text[slice(*span)].lower() in self._vital_words[side] and not overlaps(span, terms)
        return is_listed or self.is_content(text, span, terms, side)

    def _list_forms(self, place: Place) -> list[str]:
        """Return the forms of a term that may stand in a place: of verbs where a verb stands, else of other words."""
        asked, forms = place.occurrence, self._matcher.target
        assert asked is not None
        infinitives = self._matcher.list_infinitives(asked.term) if place.word and not place.around else []
        if infinitives and self._has_verb(place):
            verbs = [forms.conjugate(each, place.word) for each in infinitives]
            return [each for each in verbs if each] or infinitives
        others = tuple(each for each in asked.term.targets if each not in infinitives)
        if infinitives and others:
            asked = asked._replace(term=replace(asked.term, targets=others))
        known = self._list_known_feminines(asked, place.word) if place.word else []
        if known and self._is_feminine(place):
            return known
        noun, may_be_noun = _find_last(place.target[: place.noun]), self._matcher.source.may_be_noun(asked.words[-1])
        if not known or may_be_noun or forms.is_known(place.word) or not forms.is_known(noun):
            return self._matcher.list_forms(asked, place.word)
        return self._list_adjectives(asked, noun)  # for a word that is none: it agrees with what stands before

    def _list_known_feminines(self, asked: Occurrence, replaced: str) -> list[str]:
        """Return the feminines of a term, in the number of a word, that the table has, or the glossary."""
        feminines = self._matcher.list_feminines(asked, replaced)
        return [each for each in feminines if each in asked.targets or self._is_form(each, asked)]

    def _is_form(self, word: str, asked: Occurrence) -> bool:
        """Return whether the table has a word as a form of a translation of a term."""
        return any(self._matcher.target.are_forms(word, text) for text in asked.term.targets)

    def find_unknown_feminine(self, place: Place) -> str:
        """Return the feminine that a place asks for, if no table tells what it is of, or else an empty text."""
        asked = place.occurrence
        if asked is None or not self._is_feminine(place):
            return ""
        feminines = self._matcher.list_feminines(asked, place.word)
        return next((each for each in feminines if not self._is_form(each, asked)), "")

    def find_feminine(self, place: Place, source: str) -> str:
        """Return the word of a place if it is the feminine of a translation of the term, or else an empty text."""
        asked, word = place.occurrence, place.word
        is_form = asked is not None and word.casefold() in self._matcher.list_feminines(asked, word)
        is_same = is_form and self._may_be_adjective(place) and not self.find_other_kind(place, source)
        return word if is_same else ""

    def _list_articles(self, place: Place, article: str, form: str) -> list[str]:
        """Return what may stand before a form of a term. The feminine of an adjective leaves articles as they are."""
        others, asked = self._articles.list_others(article, form), place.occurrence
        is_feminine = asked is not None and form in self._matcher.list_feminines(asked, place.word)
        return [article] if is_feminine and self._is_feminine(place) and article in others else others

    def _is_feminine(self, place: Place) -> bool:
        """Return whether the feminine of an adjective stands in a place."""
        return self._matcher.target.is_feminine(place.word) and self._may_be_adjective(place)

    def _may_be_adjective(self, place: Place) -> bool:
        """Return whether a word may be no noun: not after an article where no noun follows, *la nouvelle est*.

        A participle between an article and a noun is one itself: *l'assemblée nationale*.
        """
        end = next(iter(find_words(place.rest)), (0, 0))
        forms, following = self._matcher.target, place.rest[slice(*end)]
        has_noun = self.is_content(place.rest, end, (), 1) and not forms.is_feminine_adjective(following)
        return not (self._is_direct(place) and (forms.infinitive(place.word) or not has_noun))

    def _is_direct(self, place: Place) -> bool:
        """Return whether the word before a place is an article."""
        article = self._articles.find(place.target[: place.noun])
        return bool(article) and article == self._articles.cut_adjective(article)

    def _has_verb(self, place: Place) -> bool:
        """Return whether a verb stands in a place, as far as that is known."""
        forms = self._matcher.target
        has_verb = forms.infinitive(place.word) != "" or forms.is_infinitive(place.word, is_expected=True)
        return has_verb and not self._is_direct(place)

    def find_other_kind(self, place: Place, source: str) -> str:
        """Return what stands in a place if that is a verb and no translation is one, or the reverse; or nothing."""
        asked, forms = place.occurrence, self._matcher.target
        if asked is None or not place.word or place.around or len(asked.words) != 1:
            return ""
        if not self._matcher.has_no_verb(asked.term):
            infinitives, word = self._matcher.list_infinitives(asked.term), place.word
            fits = self._has_verb(place) and any(forms.conjugate(each, word) for each in infinitives)
            return NO_VERB if len(infinitives) == len(asked.term.targets) and not fits else ""
        is_verb = self._is_verb(place, asked.words[0], source[: asked.span[0]], source[asked.span[1] :])
        return VERB if is_verb else ""

    def _is_verb(self, place: Place, asked: str, before: str, after: str) -> bool:
        """Return whether a word of the source, and what stands for it, are a verb. before, after: the source there."""
        source_forms, forms, word = self._matcher.source, self._matcher.target, place.word
        if source_forms.cannot_be_verb(asked, before):
            return False
        is_direct = self._is_direct(place)
        has_object = source_forms.may_be_verb_before(asked, after)
        if not is_direct and source_forms.is_plural([asked]) and not forms.is_plural([word]):
            return has_object or forms.may_be_verb(word)  # The shop offers: le magasin offre
        if not is_direct and has_object and forms.may_be_verb(word):
            return True  # Call the police: appelle la police
        article = self._articles.find(place.target[: place.noun])
        is_infinitive = word.casefold() == forms.lemma(word)  # which may be a noun, but not after a preposition
        is_noun = (bool(article) and not _NO_ARTICLE.match(article)) if is_infinitive else is_direct
        return not is_noun and forms.is_verb(word)

    def decode(self, sentences: Sequence[Sequence[int]]) -> list[str]:
        """Return the target texts of word ids."""
        return [unwrap_lines(text).strip() for text in self._translator.tokenizer.decode_batch(sentences, "target")]


def _find_last(text: str) -> str:
    """Return the last word of a text."""
    return "".join(text[slice(*span)] for span in find_words(text)[-1:])
