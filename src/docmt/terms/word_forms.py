"""Which words are forms of one word: by the tables of simplemma (`docmt[terms]`), or else by short endings."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache
from itertools import takewhile
from typing import Any

from docmt.core.grouping import group_pairs
from docmt.core.settings import read_package_yaml
from docmt.documents.words import Span, find_words
from docmt.formats.language_codes import primary_language

_SHORTEST, _MAX_ENDING = 4, 2
"""Letters of the shortest beginning that two forms share, and of the longest ending that they do not."""

_DATA = read_package_yaml(__package__, "word_forms.yaml", typed=True)
"""Endings and words by which forms are told, by language."""
_NOUN_FIRST = {"es", "fr", "it", "pt"}
"""Languages whose phrases begin with their noun. In others it stands before a function word, or last."""
_REFLEXIVE = re.compile(r"^(?:se\s|s['’]|sich\s)")
"""What may stand before an infinitive."""
_BEFORE = 30
"""Characters before a word that may show that it is a verb."""
_BEGINNING = 6
"""Letters that the forms of a word mostly share."""


def _load_simplemma(language: str) -> Any | None:
    """Return simplemma if it is installed and has a table of the language."""
    try:
        import simplemma
        from simplemma.strategies.dictionaries.dictionary_factory import SUPPORTED_LANGUAGES
    except ImportError:
        return None
    return simplemma if language in SUPPORTED_LANGUAGES else None


@lru_cache(maxsize=16)
def load_word_forms(language: str) -> WordForms:
    """Return the words of a language, whose table is read once."""
    return WordForms(language)


class WordForms:
    """The words of one language, without regard to capitals."""

    def __init__(self, language: str) -> None:
        """language: code; empty or unknown: words are compared by their endings."""
        self.language = primary_language(language)
        self._simplemma = _load_simplemma(self.language)
        self._rows = {name: table[self.language] for name, table in _DATA.items() if self.language in table}
        self._function_words = frozenset(self._rows.get("function_words", "").split())
        self._idioms = re.compile(rf"\b(?:{'|'.join(self._rows.get('idioms', ['(?!)']))})\b", re.I)
        signs = self._rows.get("verb_signs", {})
        self._signs = {name: re.compile(pattern, re.VERBOSE) for name, pattern in signs.items()}
        self.lemma = lru_cache(maxsize=1 << 16)(self._find_lemma)
        self.is_known = lru_cache(maxsize=1 << 16)(self._is_known)
        self.regular_plural = lru_cache(maxsize=1 << 16)(self._find_regular_plural)
        self.infinitive = lru_cache(maxsize=1 << 16)(self._find_infinitive)
        self.keys = lru_cache(maxsize=1 << 16)(self._find_keys)
        self.are_forms = lru_cache(maxsize=1 << 16)(self._are_forms)

    @property
    def has_table(self) -> bool:
        """Whether a table tells the forms of words."""
        return self._simplemma is not None

    def _find_lemma(self, word: str) -> str:
        """Return the base form of a word in lower case, or the word where there is no table."""
        is_noun = self.language == "en" and word[-3:].casefold() == "ing"  # meeting, training: not a form of meet
        if self._simplemma is None or is_noun or not word.isalpha():
            return word.casefold()
        if self.language != "de" and self._simplemma.is_known(lower := word.lower(), lang=self.language):
            word = lower  # States is no name
        lemma: str = self._simplemma.lemmatize(word, lang=self.language)
        if self.language == "en" and len(lemma) > _SHORTEST + 1 and lemma.endswith("ll") and self.is_known(lemma[:-1]):
            lemma = lemma[:-1]  # cancelled
        return lemma.casefold()

    def _is_known(self, word: str) -> bool:
        """Return whether the table has a word."""
        return self._simplemma is not None and word.isalpha() and self._simplemma.is_known(word, lang=self.language)

    def _find_keys(self, word: str) -> frozenset[str]:
        """Return keys of a word: two words without a common key are no forms of one word."""
        folded = word.casefold()
        keys = {folded}
        if folded.endswith("s"):
            start = folded[:-3]
            singulars = {folded[:-1], folded[:-2], f"{start}y", f"{start}f", f"{start}fe", f"{folded[:-2]}is"}
            singulars = {each for each in singulars if self._add_plural_ending(each) == folded}  # of few
            keys |= {each for each in singulars if self.regular_plural(each) == folded}
            keys |= {folded[:-1]} if word[:-1].isupper() else set()  # NGOs
        keys |= {self.lemma(word), self.infinitive(folded) or folded}
        if not self.is_known(word):
            keys |= {folded[:-cut] for cut in range(1, _MAX_ENDING + 1) if len(folded) - cut >= _SHORTEST}
        return frozenset(keys)

    def _are_forms(self, one: str, other: str) -> bool:
        """Return whether two words are forms of one word."""
        if one.casefold() == other.casefold():
            return True
        if not (one.isalpha() and other.isalpha()):
            return False
        pair = one.casefold(), other.casefold()
        if any(plural.endswith("s") and self.regular_plural(word) == plural for word, plural in (pair, pair[::-1])):
            return True
        if self.is_known(one) or self.is_known(other):
            lemmas = self.lemma(one), self.lemma(other)
            # salariés is a form of salarié, and that one of salarier
            is_form = lemmas[0] == lemmas[1] or pair[0] == lemmas[1] or pair[1] == lemmas[0]
            return is_form or pair in ((pair[0], self.infinitive(pair[0])), (self.infinitive(pair[1]), pair[1]))
        short, long = sorted(pair, key=len)
        return len(short) >= _SHORTEST and len(long) - len(short) <= _MAX_ENDING and long.startswith(short)

    def are_phrase_forms(self, words: Sequence[str], others: Sequence[str]) -> bool:
        """Return whether the words of two phrases are forms of one another; prepositions and articles are the same."""
        pairs = [(one.casefold(), other.casefold()) for one, other in zip(words, others, strict=True)]
        return all(one == other or other not in self._function_words for one, other in pairs) and all(
            map(self.are_forms, words, others)
        )

    def is_plural(self, words: Sequence[str]) -> bool | None:
        """Return whether the noun of a term is in the plural; None if that cannot be told."""
        if not (words and self.has_table and "plurals" in self._rows):
            return None
        return self._is_plural(words[self._find_head(words)])

    def _find_head(self, words: Sequence[str]) -> int:
        """Return the number of the noun of a phrase."""
        if self.language in _NOUN_FIRST:
            return 0
        return (
            next((n for n, word in enumerate(words) if n and word.casefold() in self._function_words), len(words)) - 1
        )

    def inflect(self, words: Sequence[str], is_plural: bool | None, is_noun: bool = True) -> list[list[str]]:
        """Return the forms that each word of a phrase may have, its own first, in one number (None: in any).

        is_noun: a plural keeps the gender of the word.
        """
        end = next((n for n, word in enumerate(words) if word.casefold() in self._function_words), len(words))
        start = self._find_head(words) if self.language == "en" else 0
        forms = [[word] for word in words]
        for n in range(start, end):
            word, is_prefix = words[n], words[n + 1 : n + 2] in (["-"], ["\u2011"])  # vice-président
            is_second = n > start and words[n - 1] != "-" and not self.is_known(word)  # page web
            if not (is_prefix or is_second or (len(word) > 1 and word.isupper())):
                others = self.list_forms(word)
                forms[n] += [each[:1].upper() + each[1:] if word[:1].isupper() else each for each in others]
                made = self.regular_plural(word) if is_plural else ""
                is_listed = self.language == "en" and any(self._fits_number(each, True) for each in others)
                forms[n] += [made] if made and made not in others and not is_listed else []
        if is_plural is None or not self.has_table or "plurals" not in self._rows:
            return forms
        if self.language == "de":  # of its words, those in small letters follow the noun
            forms = [[each for each in row if each.islower() == row[0].islower()] for row in forms]
        agreeing = [[each for each in row if self._fits_number(each, is_plural)] or row[:1] for row in forms]
        if not is_noun or (not is_plural and len(words) == 1):
            return agreeing
        pairs = zip(words, agreeing, strict=True)
        return [self._keep_gender(word, row, is_plural) for word, row in pairs]

    def _keep_gender(self, word: str, forms: list[str], is_plural: bool) -> list[str]:
        """Return the forms of a word in its gender, if any, and of a plural those that begin with it, if any."""
        forms = self._select_gender(word, forms, is_plural) or forms
        if is_plural and "feminine" in self._rows:  # remises, not remisais; others have Ämter and men
            forms = [form for form in forms if form.startswith(word)] or forms
        return forms

    def _select_gender(self, word: str, forms: list[str], is_plural: bool) -> list[str]:
        """Return the forms in the gender of a word, all where endings do not tell."""
        if "feminine" not in self._rows:
            return forms
        one, several = map(re.compile, self._rows["feminine"])
        ending = several if is_plural else one
        return [form for form in forms if bool(ending.search(form)) == bool(one.search(word))]

    def _fits_number(self, word: str, is_plural: bool) -> bool:
        """Return whether a word may be a plural, or else a singular; adjectives of German may be both."""
        return (self.language == "de" and word.islower()) or self._is_plural(word) in (is_plural, None)

    def _is_plural(self, word: str) -> bool | None:
        """Return whether a word has an ending of the plural; None if it may have."""
        if not word.isalpha() or (self.language == "de" and word.islower()):  # of words in small letters nouns tell
            return False
        folded, (plural, unclear) = word.casefold(), self._rows["plurals"]
        is_other = self.lemma(word) != folded
        return True if is_other and re.search(plural, folded) else None if re.search(unclear, folded) else False

    def _find_regular_plural(self, word: str) -> str:
        """Return the plural in s of a noun without one in the table, or another regular one, or an empty text."""
        if not (made := self._add_plural_ending(word)):
            return ""
        forms = self.list_forms(word)
        is_adjective = self.language == "en" and any(form.endswith("est") for form in forms)  # new has no plural: news
        plurals = [each for each in (word, *forms) if self._fits_number(each, True)]
        is_listed = made == f"{word}s" and self._select_gender(word, plurals, True)
        return "" if is_adjective or is_listed else made

    def _add_plural_ending(self, word: str) -> str:
        """Return a word with the ending of a regular plural, or an empty text where it has none."""
        rules = self._rows.get("regular_plurals", []) if self.has_table else []
        return next((re.sub(ending, made, word) for ending, made in rules if re.search(ending, word)), "")

    def is_verb(self, word: str, is_expected: bool = False) -> bool:
        """Return whether a word is a form of a verb and of nothing else, but for infinitives: *pouvoir* may be both.

        is_expected: a word that the table does not have is one if it ends like an infinitive, as *appairer*.
        """
        if is_expected and self.tells_verbs and word.isalpha() and not self.is_known(word):
            return re.search(self._rows["verbs"][1], word) is not None
        unclear = self._rows["verbs"][2] if self.tells_verbs else ""
        return self.may_be_verb(word) and (word.casefold() == self.lemma(word) or not re.search(unclear, word))

    def begins_with_verb(self, text: str, is_expected: bool = False) -> bool:
        """Return whether a text begins with a verb, or with *se* and the like and one. is_expected: see `is_verb`."""
        text = _REFLEXIVE.sub("", text)
        return self.is_verb("".join(text[slice(*span)] for span in find_words(text)[:1]), is_expected)

    def is_infinitive(self, word: str, is_expected: bool = False) -> bool:
        """Return whether a word is an infinitive, as far as that is known. is_expected: see `is_verb`."""
        return self.is_verb(word, is_expected) and word.casefold() == self.lemma(word)

    def may_be_verb(self, word: str) -> bool:
        """Return whether a word is a form of a verb for the table; it may be one of a noun as well: *votes*."""
        if not self.tells_verbs or not self.is_known(word):
            return False
        (fewest, ending, _), lemma = self._rows["verbs"], self.lemma(word)
        return bool(re.search(ending, lemma)) and len(self._by_lemma.get(lemma, ())) >= fewest

    def _find_infinitive(self, word: str) -> str:
        """Return the verb of which a word may be a form, as *écarter* of *écartées*, or an empty text."""
        if self.may_be_verb(word):
            return self.lemma(word)
        endings, folded = self._rows.get("participle_endings", []), word.casefold()
        made = [re.sub(ending, start, folded) for ending, start in endings if re.search(ending, folded)]
        return next((self.lemma(each) for each in made if self.may_be_verb(each)), "")

    @property
    def tells_verbs(self) -> bool:
        """Whether the table tells which forms are verbs."""
        return self.has_table and "verbs" in self._rows

    def is_verb_between(self, word: str, before: str, after: str) -> bool:
        """Return whether an English word that may be a noun is a verb in a sentence: *report* in *We report it*."""
        if not self._signs:
            return False
        start, has_s = before[-_BEFORE:], word.casefold() != self.lemma(word)
        person = self._signs["before_third_person"].search(start) if has_s else None
        if self._signs["before_noun"].search(start) and not person:
            return False
        has_object = self._signs["object"].match(after) is not None
        if word.casefold().endswith("ing"):  # is meeting the members
            return has_object and self._signs["be"].search(start) is not None
        if has_s:
            is_expected = person is not None and (person[1] is None or has_object)
        else:
            before_verb = self._signs["before_verb"].search(start)
            is_first = self._signs["beginning"].search(start) and not self._signs["adjunct"].match(after)
            is_before_object = is_first or self._signs["before_verb_with_object"].search(start)
            is_expected = bool(before_verb or (has_object and is_before_object))
        return (is_expected or self._signs["pronoun"].match(after) is not None) and self._can_be_verb(word)

    def find_idioms(self, sentence: str) -> list[Span]:
        """Return where phrases stand in which no word is a term for itself: *in order to*."""
        return [match.span() for match in self._idioms.finditer(sentence)]

    def cannot_be_verb(self, word: str, before: str) -> bool:
        """Return whether an English word is no verb for what stands before it, its ending (*reading*) or its forms."""
        if not self._signs:
            return False
        is_noun = word.casefold().endswith("ing") or self._signs["before_noun"].search(before[-_BEFORE:]) is not None
        return is_noun or (self.has_table and not self._can_be_verb(word))

    def conjugate(self, verb: str, model: str) -> str:
        """Return the form of an infinitive that another verb has, or an empty text: *signalé*, as *notifié*."""
        if self.is_infinitive(model, is_expected=True):
            return verb
        lemma, folded = self.infinitive(model), model.casefold()
        kept = len(list(takewhile(lambda pair: pair[0] == pair[1], zip(lemma, folded, strict=False))))
        made = f"{verb.removesuffix(lemma[kept:])}{folded[kept:]}"
        is_form = bool(lemma) and verb.endswith(lemma[kept:]) and self.is_known(made)
        return made if is_form and self.infinitive(made) == verb.casefold() else ""

    def feminine(self, word: str) -> str:
        """Return the feminine of an adjective in the masculine singular that the table knows, or an empty text.

        The form of a verb that is a noun with an e is none: *transporte*.
        """
        rules = self._rows.get("feminine_adjectives", [])
        if not rules or word.endswith("e"):
            return word if rules else ""
        made = [re.sub(ending, start, word) for ending, start in rules if re.search(ending, word)]
        is_participle = self.infinitive(word) != ""
        listed = [] if is_participle else [form for form in self.list_forms(word) if form.endswith("e")]
        known = [each for each in made if self.is_known(each)]
        if not is_participle:
            known = [each for each in known if not (each.startswith(word) and self.may_be_verb(each))]
        return next(iter([*(each for each in known if each in listed), *listed, *known]), "")

    def is_feminine(self, word: str) -> bool:
        """Return whether a word is the feminine of an adjective or participle, as far as the table tells."""
        folded = word.casefold()
        singular = folded[:-1] if folded.endswith("es") else folded
        bases = [self.lemma(word), *[singular[:-1]] * (self.infinitive(singular[:-1]) != "")]
        if not self.is_known(word) and re.search(self._rows.get("feminine_endings", "(?!)"), folded):
            return True  # fauteuses
        return singular.endswith("e") and any(base != singular and self.feminine(base) == singular for base in bases)

    def is_feminine_adjective(self, word: str) -> bool:
        """Return whether a word is the feminine of an adjective, and of no participle, as far as the table tells."""
        return self.is_feminine(word) and not self.infinitive(word)

    def is_past(self, word: str) -> bool:
        """Return whether an English word is the past of a verb: *reported*, not *need*."""
        folded = word.casefold()
        return self.language == "en" and folded.endswith("ed") and self.lemma(word) != folded

    def may_be_verb_before(self, word: str, after: str) -> bool:
        """Return whether an English word may be a verb in a sentence because of what follows: *reports the loss*."""
        has_object = bool(self._signs) and self._signs["object"].match(after) is not None
        return has_object and self._can_be_verb(word)

    def _can_be_verb(self, word: str) -> bool:
        """Return whether an English word has the forms of a verb."""
        forms = self._by_lemma.get(self.lemma(word), ()) if self.has_table else ()
        return any(form.endswith(("ed", "ing")) for form in forms if form not in (word, self.lemma(word)))

    def may_be_noun(self, word: str) -> bool:
        """Return whether an English word may be a noun, by its plural: *dealer*, not *faulty*."""
        forms = self.list_forms(word)
        has_plural = self.is_plural([word]) or any(form.endswith("s") for form in forms)
        return bool(has_plural) and not any(form.endswith("est") for form in forms)

    def has_adjective_ending(self, word: str) -> bool:
        """Return whether a word may be an adjective by its ending: *annual*, *annuel*."""
        return re.search(self._rows.get("adjective_endings", "(?!)"), word.casefold()) is not None

    def list_forms(self, word: str) -> list[str]:
        """Return the other forms of a word that the table has, in lower case.

        Of a participle, such as *salarié*, the table has forms of the verb: those that begin with the word are its own.
        """
        lemma, folded = self.lemma(word), word.casefold()
        if not self.is_known(word) and (made := self._add_plural_ending(word)):
            return [made]
        forms = [*self._by_lemma.get(lemma, []), *self._by_lemma.get(folded, [])] if self.has_table else []
        if self.language == "en" and not folded.endswith(("ed", "ing")):  # nouns have none of these
            forms = [form for form in forms if not form.endswith(("ed", "ing"))]
        is_participle = self.may_be_verb(word) and re.search(self._rows.get("participles", "(?!)"), folded)
        start = folded if is_participle else ""
        found = (form for form in forms if form != folded and form.startswith(start))
        return list(dict.fromkeys(form for form in found if self.lemma(form) in (lemma, folded)))

    @cached_property
    def _by_lemma(self) -> dict[str, list[str]]:
        """The forms of each base form."""
        from simplemma.strategies.dictionaries.dictionary_factory import DEFAULT_DICTIONARY_FACTORY

        table = DEFAULT_DICTIONARY_FACTORY.get_dictionary(self.language)
        return group_pairs((lemma.casefold(), form) for form, lemma in table.items())


def choose_lemma(language: str) -> Callable[[str], str]:
    """Return the function that gives all forms of a word one key: by the table, or else their beginning."""
    forms = load_word_forms(language)
    return forms.lemma if forms.has_table else lambda word: word.casefold()[:_BEGINNING]
