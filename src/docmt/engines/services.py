"""Requests for one sentence, and answers, of each kind of server."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from docmt.engines.profile import EngineProfile

_LEAST_TOKENS, _TOKENS_PER_CHARACTER = 128, 2
"""Tokens of an answer without a limit of its own."""


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
    log_probability: float | None = None
    """nats of the answer"""


def make_request(profile: EngineProfile, question: Question) -> tuple[str, dict[str, Any]]:
    """Return the path below the base address, and the body."""
    source, target = profile.languages
    if profile.kind == "chat":
        return "/chat/completions", _sampling(profile, question) | {"messages": _make_messages(profile, question)}
    if profile.kind == "completion":
        prompt = profile.fill(profile.prompt.turn, text=question.text)
        return "/completions", _sampling(profile, question) | {"prompt": prompt}
    texts, targets = [each.text for each in question.before], [each.target for each in question.before]
    if profile.kind == "libretranslate":
        return "/translate", {"q": question.text, "source": source, "target": target, "format": "text", **profile.extra}
    if profile.kind == "deepl":
        body = {"text": [question.text], "source_lang": source.upper(), "target_lang": target.upper()}
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
    if profile.stream:
        body["stream_options"] = {"include_usage": True}
    if profile.log_probabilities:
        body["logprobs"] = True
    return body | dict(profile.extra)


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
    fault = profile.fill(prompt.again, fault=question.fault) if question.fault else ""
    text = question.text + question.terms + fault
    return [*messages, {"role": "user", "content": profile.fill(prompt.turn, text=text)}]


def read_answer(kind: str, value: Any) -> Answer:
    """Return the answer in the JSON of a server. Raises WrongAnswer if there is none."""
    try:
        if kind in ("chat", "completion"):
            return _read_choice(value)
        text = {
            "libretranslate": lambda: value["translatedText"],
            "deepl": lambda: value["translations"][0]["text"],
            "docmt": lambda: value["sentences"][0]["target"],
        }[kind]()
        if kind == "deepl" and len(value["translations"]) != 1:
            raise WrongAnswer(f"{len(value['translations'])} translations for one sentence")
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise WrongAnswer("its answer has no translation") from error
    if not isinstance(text, str):
        raise WrongAnswer("its answer has no translation")
    return Answer(text)


def _read_choice(value: Any) -> Answer:
    """Return the answer of a server with the interface of OpenAI."""
    (choice,) = value["choices"][:1]
    message = choice.get("message") or {}
    text = message.get("content") if "message" in choice else choice.get("text")
    if isinstance(text, list):  # content in parts
        text = "".join(part.get("text", "") for part in text if part.get("type") == "text")
    if text is None and message.get("refusal"):
        text = message["refusal"]
    if not isinstance(text, str):
        raise WrongAnswer("its answer has no text")
    usage = value.get("usage") or {}
    counts = [usage.get(name) for name in ("prompt_tokens", "completion_tokens")]
    tokens = [count if isinstance(count, int) and count >= 0 else 0 for count in counts]
    rows = (choice.get("logprobs") or {}).get("content") or ()
    scores = [row["logprob"] for row in rows]
    total = float(sum(scores)) if scores else None
    return Answer(text, tokens[0], tokens[1], choice.get("finish_reason") == "length", total)


def join_stream(events: Iterable[str]) -> dict[str, Any]:
    """Return the answer of a server that sends it in pieces, as if it had come at once. events: lines of JSON."""
    text, usage, reason, rows = "", None, "", list[Any]()
    for event in events:
        if event.strip() == "[DONE]":
            reason = reason or "stop"
            break
        value = json.loads(event)
        if "error" in value:
            return dict(value)
        usage = value.get("usage") or usage
        for choice in value.get("choices", [])[:1]:
            text += (choice.get("delta") or {}).get("content") or choice.get("text") or ""
            reason = choice.get("finish_reason") or reason
            rows += (choice.get("logprobs") or {}).get("content") or []
    choice = {"message": {"content": text}, "finish_reason": reason, "logprobs": {"content": rows}}
    return {"choices": [choice], "usage": usage} if reason else {}  # else it ends early
