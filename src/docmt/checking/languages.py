"""Words: what is known of languages, how alike words are, and which language a text is of."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from difflib import SequenceMatcher
from functools import lru_cache

_FUNCTION_WORDS = {
    "en": "the of and to in is that for it with as was on are be this by at not you have from or which but an were we "
    "they has had will their its been our would there what can all if more when so no do my your he she who them",
    "de": "der die das und den dem des ein eine einen einem einer ist nicht zu mit von auf für sich "
    "auch es im wird sie "
    "als an wir dass daß haben hat aus werden oder bei nach wie ich war nur wenn sind so zum zur über um durch",
    "fr": "le la les de des du et à un une est que qui dans en pour pas ne au aux sur ce il cette plus par nous avec "
    "sont ont se vous mais ou été je ces d l qu n elle leur son sa être fait y c s",
    "es": "el la los las de del y que en a un una es se no por con para lo su al como más pero sus le ha o este sí "
    "porque esta son entre cuando muy sin sobre también me hasta hay donde ser nos está",
    "it": "il la le lo gli i di del della dei delle e è che non un una in a per con da si al alla sono più come anche "
    "ma nel nella ha o questo questa ci se dal essere su noi hanno",
    "pt": "o a os as de do da dos das e que em um uma é não para por com se no na nos nas ao mais como mas foi à pelo "
    "pela são este esta ou sua seu também isso ser tem está",
    "nl": "de het een en van in is dat op te zijn met voor niet aan er die ook als maar om bij door "
    "wordt dit ze uit we "
    "naar over hebben heeft zal worden nog wij tot deze kan geen moet",
    "sv": "och att det i en som är på av för med den till inte har de ett om vi men var jag så från kan ska eller hade "
    "när vara också mycket detta efter han man",
    "da": "og at det i en er på af for med den til ikke har de et om vi men var jeg så fra kan skal eller havde når "
    "være også meget dette efter han man der som",
    "pl": "w i z na się do że nie to jest o jak za od po co ale przez dla przy są tym jego lub tego które który która "
    "być może oraz tylko już czy ze jako ma bardzo",
    "cs": "a v se na je že s z do o to k i ve pro za by ale si po jako jsou od který která které jeho tak ze také bylo "
    "až než byl nebo které jsme může",
    "ru": "и в не на что с по это как он к из у за от но о для мы его же бы так все которые то был "
    "только или быть если "
    "при до этого также они нас было может есть",
}
FUNCTION_WORDS: Mapping[str, frozenset[str]] = {
    language: frozenset(words.split()) for language, words in _FUNCTION_WORDS.items()
}
"""The commonest words of a language, which say what language a text is in."""

_DETERMINERS = {
    "en": "the a an this that these those our your their its his her my no any some each every such same",
    "de": "der die das den dem des ein eine einen einem einer eines dieser diese dieses diesem diesen unser unsere "
    "unserer unseren kein keine keinen im am zum zur beim vom",
    "fr": "le la les l un une des du au aux ce cet cette ces notre nos votre vos leur leurs son sa ses mon ma mes",
    "es": "el la los las un una unos unas del al este esta estos estas nuestro nuestra nuestros nuestras su sus",
    "it": "il lo la i gli le l un uno una del dello della dei degli delle nel nella questo questa nostro nostra",
    "pt": "o a os as um uma do da dos das no na nos nas ao à este esta nosso nossa",
    "nl": "de het een deze dit die dat onze ons geen hun zijn haar",
}
DETERMINERS: Mapping[str, frozenset[str]] = {
    language: frozenset(words.split()) for language, words in _DETERMINERS.items()
}
"""What stands before nouns."""

NOUNS_ARE_CAPITALISED = frozenset({"de", "lb"})

_NUMBERS = {
    "en": "0 zero no|1 one first once single|2 two second twice both|3 three third|4 four|5 five fifth|6 six|7 seven|"
    "8 eight|9 nine|10 ten|11 eleven|12 twelve twelfth|13 thirteen|14 fourteen|15 fifteen|16 sixteen|17 seventeen|"
    "18 eighteen|19 nineteen|20 twent|30 thirt|40 fort|50 fift half|60 sixt|70 sevent|80 eight|90 ninet|100 hundred|"
    "1000 thousand",
    "de": "0 null kein|1 ein erst|2 zwei zwo beide|3 drei dritt|4 vier|5 fünf|6 sechs|7 sieb|8 acht|9 neun|10 zehn|"
    "11 elf|12 zwölf|13 dreizehn|14 vierzehn|15 fünfzehn|16 sechzehn|17 siebzehn|18 achtzehn|19 neunzehn|20 zwanzig|"
    "30 dreißig dreissig|40 vierzig|50 fünfzig hälfte halb|60 sechzig|70 siebzig|80 achtzig|90 neunzig|100 hundert|"
    "1000 tausend",
    "fr": "0 zéro aucun|1 un une premi|2 deux second|3 trois tiers|4 quatr quart|5 cinq|6 six|7 "
    "sept|8 huit|9 neuv neuf|"
    "10 dix dizaine|11 onz|12 douz|13 treiz|14 quatorz|15 quinz|16 seiz|17 dix-sept|18 dix-huit|19 dix-neuf|20 vingt|"
    "30 trent|40 quarant|50 cinquant moitié|60 soixant|70 soixante-dix septante|80 quatre-vingt|90 nonante|100 cent|"
    "1000 mill",
    "es": "0 cero|1 un primer|2 dos segund ambos|3 tres tercer|4 cuatr cuart|5 cinco quint|6 seis sext|7 siet séptim|"
    "8 ocho octav|9 nuev noven|10 diez décim|11 once|12 doce|13 trece|14 catorce|15 quince|16 dieciséis|17 diecisiete|"
    "18 dieciocho|19 diecinueve|20 veint|30 treinta|40 cuarenta|50 cincuenta mitad|60 sesenta|70 setenta|80 ochenta|"
    "90 noventa|100 cien|1000 mil",
    "it": "0 zero|1 un prim|2 due second|3 tre terz|4 quattro quart|5 cinque quint|6 sei sest|7 sette settim|8 otto "
    "ottav|9 nove non|10 dieci decim|11 undic|12 dodic|13 tredic|14 quattordic|15 quindic|16 sedic|17 diciassette|"
    "18 diciott|19 diciannov|20 vent|30 trent|40 quarant|50 cinquant metà|60 sessant|70 settant|80 ottant|90 novant|"
    "100 cent|1000 mill mila",
    "pt": "0 zero|1 um primeir|2 dois duas segund ambos|3 três terceir|4 quatro quart|5 cinco quint|6 seis sext|7 sete|"
    "8 oito|9 nove|10 dez|11 onze|12 doze|13 treze|14 catorze quatorze|15 quinze|16 dezasseis dezesseis|17 dezassete "
    "dezessete|18 dezoito|19 dezanove dezenove|20 vint|30 trinta|40 quarenta|50 cinquenta metade|60 sessenta|"
    "70 setenta|80 oitenta|90 noventa|100 cem cent|1000 mil",
    "nl": "0 nul geen|1 een één eerst|2 twee beide|3 drie derde|4 vier|5 vijf|6 zes|7 zeven|8 acht|9 negen|10 tien|"
    "11 elf|12 twaalf|13 dertien|14 veertien|15 vijftien|16 zestien|17 zeventien|18 achttien|19 negentien|20 twintig|"
    "30 dertig|40 veertig|50 vijftig helft|60 zestig|70 zeventig|80 tachtig|90 negentig|100 honderd|1000 duizend",
}


def _numbers(line: str) -> dict[int, tuple[str, ...]]:
    entries = [entry.split() for entry in line.split("|")]
    return {int(value): tuple(beginnings) for value, *beginnings in entries}


_HALF = "half halb halbe halben anderthalb demi demie medio media mezzo mezza meio meia halve anderhalf anderhalve"
HALF = frozenset(_HALF.split())
"""Six and a half is 6.5."""
NUMBER_WORDS: Mapping[str, Mapping[int, tuple[str, ...]]] = {code: _numbers(line) for code, line in _NUMBERS.items()}
"""How the words of a number begin, ordinals and parts included."""

FORMAL: Mapping[str, str] = {
    "de": r"(?<=[\w,;] )(?:Sie|Ihnen|Ihr(?:e[nmrs]?)?)(?![\w-])",
    "fr": r"(?i)(?<![\w-])(?:vous|votre|vos|vôtres?)(?![\w-])",
    "es": r"(?i)(?<![\w-])(?:usted)(?![\w-])",
    "it": r"(?<=[\w,;] )(?:Lei|Suo|Sua|Suoi|Sue)(?![\w-])",
    "pt": r"(?i)(?<![\w-])(?:o senhor|a senhora)(?![\w-])",
    "nl": r"(?<=[\w,;] )u(?![\w-])|(?i:(?<![\w-])uw(?![\w-]))",
    "ru": r"(?i)(?<![\w-])(?:вы|вас|вам|вами|ваш\w{0,3})(?![\w-])",
    "cs": r"(?i)(?<![\w-])(?:vy|vás|vám|vámi|váš|vaš\w{1,3})(?![\w-])",
    "pl": r"(?i)(?<![\w-])(?:pana|panu|pani|panią|państwo|państwa|państwu)(?![\w-])(?! [A-ZŁŚŻĆ])",
}
"""Words of formal address, as regular expressions. Where they need a word before, sentences may begin with another
word of that form (German Sie: they)."""
INFORMAL: Mapping[str, str] = {
    "de": r"(?i)(?<![\w-])(?:du|dich|dir|dein(?:e[nmrs]?)?|euch)(?![\w-])",
    "fr": r"(?i)(?<![\w-])(?:tu|toi|tes|l[ea]s? tien(?:ne)?s?)(?![\w-])|(?<![\w-])t['’]",
    "es": r"(?i)(?<![\w-])(?:tú|ti|contigo|tuy[oa]s?|vosotr[oa]s|vuestr[oa]s?)(?![\w-])",
    "it": r"(?i)(?<![\w-])(?:tu|tuo|tua|tuoi|tue)(?![\w-])",
    "pt": r"(?i)(?<![\w-])(?:tu|teus?|tuas?|contigo)(?![\w-])",
    "nl": r"(?i)(?<![\w-])(?:jij|jou|jouw|jullie)(?![\w-])",
    "ru": r"(?i)(?<![\w-])(?:ты|тебя|тебе|тобой|тво[йяеёю]|твоих|твоей|твоего|твоему|твоим)(?![\w-])",
    "cs": r"(?i)(?<![\w-])(?:ty|tebe|tě|tobě|tebou|tvůj|tvoj\w{1,3}|tvá|tvé)(?![\w-])",
    "pl": r"(?i)(?<![\w-])(?:ty|ciebie|cię|tobie|tobą|twój|twoj\w{1,4}|twoi\w{1,2})(?![\w-])",
}
PLURAL_IS_FORMAL = frozenset({"fr", "ru", "cs"})
"""Languages whose formal address is also that of several people."""


WORD = re.compile(r"\w+(?:[\u0300-\u036f]+\w*)*")
Token = tuple[int, int, str]
"""(start, end, word)"""
_UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]")
STEM = 6
"""Characters of a stem. Words that begin alike mostly are forms of one word; where they are not, too little is told."""
_CLEAR = 2.0
"""How many times as many function words as any other language the language of a text has."""
_ENOUGH = 10


def words(text: str) -> list[str]:
    """The words of a text, in lower case."""
    return WORD.findall(text.lower())


def found_tokens(text: str) -> list[Token]:
    """The words of a text, as they are written, and where they stand."""
    return [(found.start(), found.end(), found[0]) for found in WORD.finditer(text)]


@lru_cache(maxsize=1 << 12)
def tokens(text: str) -> tuple[Token, ...]:
    """The same, kept for those who ask for the words of the sentences of one document several times."""
    return tuple(found_tokens(text))


@lru_cache(maxsize=1 << 18)
def folded(word: str) -> str:
    """The word in lower case and without accents."""
    if word.isascii():
        return word.lower()
    bare = unicodedata.normalize("NFD", word.lower().replace("ß", "ss"))
    return "".join(character for character in bare if not unicodedata.combining(character))


def stem(word: str) -> str:
    """How the word begins."""
    return folded(word)[:STEM]


def similar(one: str, other: str, least: float = 0.0) -> float:
    """The share of letters that two words have in common, in the same order; or, where that is below `least`, perhaps
    0."""
    shorter, longer = sorted((len(folded(one)), len(folded(other))))
    return _similar(one, other) if 2 * shorter >= least * (shorter + longer) else 0.0


@lru_cache(maxsize=1 << 16)
def _similar(one: str, other: str) -> float:
    return SequenceMatcher(None, folded(one), folded(other), autojunk=False).ratio()


def alike(one: str, other: str) -> bool:
    """Whether two words may well be forms of one word, or one a part of the other (in a compound)."""
    one, other = sorted((folded(one), folded(other)), key=len)
    return one[:4] in other or (len(one) < 4 and other.startswith(one)) or similar(one, other) >= 0.7


def overlap(one: Sequence[str], other: Sequence[str]) -> float:
    """The share of words that two sentences have in common (Jaccard)."""
    first, second = set(one), set(other)
    return len(first & second) / max(1, len(first | second))


def language_of(sentences: Iterable[str]) -> str:
    """The code of the language that the text is in by its function words; empty where that is not clear."""
    counts = Counter(word for sentence in sentences for word in words(sentence))
    found = sorted(
        ((sum(counts[word] for word in known), code) for code, known in FUNCTION_WORDS.items()), reverse=True
    )
    (most, code), (second, _) = found[:2]
    return code if most >= _ENOUGH and most >= _CLEAR * second else ""


def base_language(code: str) -> str:
    """The code of a language without that of its country or script: de for de_AT."""
    return re.split("[-_]", code.lower(), maxsplit=1)[0]


def is_unspaced(sentences: Sequence[str]) -> bool:
    """Whether the text is of a script without spaces between words."""
    text = "".join(sentences[:1000])
    return 3 * len(_UNSPACED.findall(text)) > len(text)


def quoted(texts: Iterable[str]) -> str:
    """Texts in quotes, with commas between."""
    return ", ".join(f"“{text}”" for text in texts)
