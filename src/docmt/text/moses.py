"""The Moses scripts: punctuation normalisation, tokenisation, and tokens back to text, for one language."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from functools import cache
from typing import Any

from docmt.core.errors import DocmtError

LANGUAGE_CODE = re.compile(r"[A-Za-z]{2,3}")


def moses_language(code: str, option: str = "") -> str:
    """The language of a code such as "en", "en-GB" or "en_XX", as the Moses scripts name it.

    option: what an error names before the code.
    Raises DocmtError for what is no such code: the scripts would silently take it for a language without rules.
    """
    language = re.split(r"[-_]", code)[0]
    if not LANGUAGE_CODE.fullmatch(language):
        raise DocmtError(
            f"{option}{code!r} is not the code of a language; give one of two or three letters, such as en or de"
        )
    return language.lower()


class Moses:
    """Sentences of one language to Moses tokens and back (Koehn et al. 2007, as sacremoses ports the scripts).

    Text is composed (NFC), its punctuation normalised, split into tokens, and `& | < > ' " [ ]` are written as
    entities (`&amp;`), as in the published pipelines. `detokenize(tokenize(s)) == s` for prose in ASCII quotes and
    apostrophes with the language's usual spaces. What does not come back as it was:

    - Typographic signs become ASCII ones: quotes of all kinds `"`, apostrophes and backticks `'`, dashes `-`, `…` three
      dots; a period or comma beside a quote may change places with it, and the no-break space in a number becomes the
      language's separator.
    - Spaces: every run of white space is one space; those at the ends go, and those around brackets and before
      `: ; % ? !` become what the language has (French: one before each, the others: none).
    - Signs inside words and numbers get spaces: `and/or` is `and / or`, likewise `& @ _ + = # § < >`, addresses, URLs,
      and the parts of joined emoji; a backslash goes to the word before it, a currency sign to the one after it
      (`5 € mehr` is `5 €mehr`).
    - `'` and `"` are opening and closing by turns: `6'2"`, or `geht's` where the language is not English, French or
      Italian, get a space on another side.

    Only control characters (U+0000-U+001F) are dropped; no other character is lost.
    """

    def __init__(self, code: str) -> None:
        """`code`: of the language. Raises DocmtError if it is none. The first call takes half a second to import."""
        import sacremoses

        self.language = moses_language(code)
        self._normalizer: Any = sacremoses.MosesPunctNormalizer(self.language)
        self._tokenizer: Any = sacremoses.MosesTokenizer(self.language)
        self._detokenizer: Any = sacremoses.MosesDetokenizer(self.language)
        _repair(self._tokenizer, self._detokenizer)

    def tokenize(self, text: str, *, split_hyphens: bool = False) -> list[str]:
        """The tokens of a sentence, none of which holds white space or one of `| < > ' " [ ]`.

        split_hyphens: write hyphens inside of words as tokens `@-@` (the script's option -a).
        """
        text = self._normalizer.normalize(unicodedata.normalize("NFC", text))
        tokens: list[str] = self._tokenizer.tokenize(text, aggressive_dash_splits=split_hyphens)
        return tokens

    def detokenize(self, tokens: Sequence[str]) -> str:
        """The text of one sentence."""
        text: str = self._detokenizer.detokenize(tokens)
        return text


@cache
def moses(code: str) -> Moses:
    """The one `Moses` of a language."""
    return Moses(code)


def _repair(tokenizer: Any, detokenizer: Any) -> None:
    """The same results, faster, and without an exception."""
    # The library makes a set of 100,000 letters for every word with a period in it.
    lower, letters = frozenset(tokenizer.IsLower), frozenset(tokenizer.IsAlpha)
    tokenizer.islower = lower.issuperset
    tokenizer.isanyalpha = lambda text: not letters.isdisjoint(text)
    tokenizer.NONBREAKING_PREFIXES = frozenset(tokenizer.NONBREAKING_PREFIXES)
    tokenizer.NUMERIC_ONLY_PREFIXES = frozenset(tokenizer.NUMERIC_ONLY_PREFIXES)
    if detokenizer.lang == "cs":
        # Its rule for "x' - li" raises TypeError; a pattern that never matches leaves the rule out.
        detokenizer.IS_FRENCH_CONRTACTION = re.compile(r"(?!)")
