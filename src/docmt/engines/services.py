"""Requests for one sentence, and answers, of each kind of server."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from docmt.engines.profile import EngineProfile
from docmt.formats.language_codes import primary_language

_LEAST_TOKENS, _TOKENS_PER_CHARACTER = 128, 2
"""Tokens of an answer without a limit of its own."""
_MOST_TOKENS = 1 << 40
"""Larger counts of a server are no counts."""


class WrongAnswer(Exception):  # noqa: N818 - it is no fault of docmt
    """An answer without what its kind of server gives."""


class Turn(NamedTuple):
    """A sentence that was asked, and its translation."""

    text: str
    terms: str
    """what the request says of its terms"""
    target: str


@dataclass(frozen=True)
class Question:
    """A sentence to translate."""

    text: str
    terms: str = ""
    """what the request says of its terms"""
    before: Sequence[Turn] = ()
    """earlier sentences"""
    document: str = ""
    """source that is shown; empty: none"""
    fault: str = ""
    """what was wrong with the last answer"""


@dataclass(frozen=True)
class Answer:
    """What a server answered."""

    text: str
    input_tokens: int = 0
    output_tokens: int = 0
    is_cut: bool = False
    """whether the server ended it at the limit of tokens"""
    scores: Sequence[float] = ()
    """log-probabilities of its tokens (nats); empty: not known"""


def make_request(profile: EngineProfile, question: Question) -> tuple[str, dict[str, Any]]:
    """Return the path below the base address, and the body."""
    source, target = profile.languages
    if profile.kind == "chat":
        return "/chat/completions", _sampling(profile, question) | {"messages": _make_messages(profile, question)}
    if profile.kind == "completion":
        return "/completions", _sampling(profile, question) | {"prompt": _make_turn(profile, question)}
    texts, targets = [each.text for each in question.before], [each.target for each in question.before]
    if profile.kind == "libretranslate":
        return "/translate", {"q": question.text, "source": source, "target": target, "format": "text", **profile.extra}
    if profile.kind == "deepl":
        body = {"text": [question.text], "source_lang": primary_language(source).upper(), "target_lang": target.upper()}
        return "/v2/translate", body | ({"context": " ".join(texts)} if texts else {}) | dict(profile.extra)
    body = {"sentences": [question.text], "source": source, "target": target}
    body |= {"context": texts, "context_targets": targets} if texts else {}
    return "/v1/translate", body | ({"model": profile.model} if profile.model else {}) | dict(profile.extra)


def make_headers(profile: EngineProfile, key: str) -> dict[str, str]:
    """Return the header with the key of the server, if it has one."""
    return {"Authorization": f"{'DeepL-Auth-Key' if profile.kind == 'deepl' else 'Bearer'} {key}"} if key else {}


def _sampling(profile: EngineProfile, question: Question) -> dict[str, Any]:
    """Return the fields of a request for a language model beside its text."""
    tokens = profile.limits.answer_tokens or _LEAST_TOKENS + _TOKENS_PER_CHARACTER * len(question.text)
    body: dict[str, Any] = {"model": profile.model, "temperature": profile.temperature, "seed": profile.seed}
    body |= {"max_tokens": tokens, "stream": profile.stream}
    body |= {"stream_options": {"include_usage": True}} if profile.stream else {}
    body |= ({"logprobs": True} if profile.log_probabilities else {}) | dict(profile.extra)
    return {name: value for name, value in body.items() if value is not None}


def _make_messages(profile: EngineProfile, question: Question) -> list[dict[str, Any]]:
    """Return the messages of a chat: what is shown first, earlier sentences as turns, and the sentence.

    Messages of earlier sentences are the same in all later requests, so that a server reads them once.
    """
    prompt = profile.prompt
    shown = profile.fill(prompt.document, document=question.document) if question.document else ""
    system = profile.fill(prompt.system) + shown
    messages: list[dict[str, Any]] = [{"role": "system", "content": system}] if system else []
    for turn in question.before:
        messages.append({"role": "user", "content": profile.fill(prompt.turn, text=turn.text + turn.terms)})
        messages.append({"role": "assistant", "content": turn.target})
    return [*messages, {"role": "user", "content": _make_turn(profile, question)}]


def _make_turn(profile: EngineProfile, question: Question) -> Any:
    """Return the message for a sentence."""
    fault = profile.fill(profile.prompt.again, fault=question.fault) if question.fault else ""
    return profile.fill(profile.prompt.turn, text=question.text + question.terms + fault)


def read_answer(kind: str, value: Any) -> Answer:
    """Return the answer in the JSON of a server. Raises WrongAnswer if there is none."""
    if isinstance(value, dict) and value.get("error") and "choices" not in value:
        error = value["error"]
        raise WrongAnswer(f"it reports an error ({error.get('message', error) if isinstance(error, dict) else error})")
    try:
        if kind in ("chat", "completion"):
            return _read_choice(value)
        text = {
            "libretranslate": lambda: value["translatedText"],
            "deepl": lambda: value["translations"][0]["text"],
            "docmt": lambda: value["sentences"][0]["target"],
        }[kind]()
        if kind != "libretranslate" and (count := len(value["translations" if kind == "deepl" else "sentences"])) != 1:
            raise WrongAnswer(f"it gives {count} translations for one sentence")
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise WrongAnswer("its answer has no translation") from error
    if not isinstance(text, str):
        raise WrongAnswer("its answer has no translation")
    return Answer(_join_surrogates(text))


def _read_choice(value: Any) -> Answer:
    """Return the answer of a server with the interface of OpenAI."""
    choice = value["choices"][0]
    message = choice.get("message") or {}
    text = message.get("content") if "message" in choice else choice.get("text")
    if isinstance(text, list):  # content in parts
        text = "".join(part.get("text", "") for part in text if part.get("type") == "text")
    if text is None and message:  # a refusal, or thoughts without an end
        text = message.get("refusal") or ""
    if not isinstance(text, str):
        raise WrongAnswer("its answer has no text")
    usage = value.get("usage")
    counts = [usage.get(name) if isinstance(usage, dict) else 0 for name in ("prompt_tokens", "completion_tokens")]
    tokens = [count if isinstance(count, int) and 0 <= count <= _MOST_TOKENS else 0 for count in counts]
    is_cut = choice.get("finish_reason") in ("length", "content_filter")
    return Answer(_join_surrogates(text), tokens[0], tokens[1], is_cut, _read_scores(choice.get("logprobs")))


def _read_scores(values: Any) -> list[float]:
    """Return the log-probabilities of an answer, none without finite ones of all tokens."""
    try:
        scores = [float(row["logprob"]) for row in values["content"]]
    except (KeyError, TypeError, ValueError, OverflowError):
        return []
    return scores if all(map(math.isfinite, scores)) else []


def _join_surrogates(text: str) -> str:
    """Return a text whose pairs of surrogates, which pieces may divide, are characters; others are replaced."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def join_stream(events: Iterable[str]) -> dict[str, Any]:
    """Return the answer of a server that sends it in pieces, as if it had come at once. events: lines of JSON."""
    text, usage, reason, rows = "", None, "", list[Any]()
    for event in filter(str.strip, events):
        if event.strip() == "[DONE]":
            reason = reason or "stop"
            break
        value = json.loads(event)
        try:
            if value.get("error"):
                return {"error": value["error"]}
            usage = value.get("usage") or usage
            for choice in value.get("choices") or []:
                if choice.get("index"):  # of several answers the first one counts
                    continue
                text += (choice.get("delta") or {}).get("content") or choice.get("text") or ""
                reason = choice.get("finish_reason") or reason
                rows += (choice.get("logprobs") or {}).get("content") or []
        except (TypeError, AttributeError) as error:
            raise WrongAnswer("its answer has no translation") from error
    if not reason:
        raise WrongAnswer("its answer ends early")
    choice = {"message": {"content": text}, "finish_reason": reason, "logprobs": {"content": rows}}
    return {"choices": [choice], "usage": usage}
