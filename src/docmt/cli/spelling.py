"""How people write options: shortened, with hyphens, switches without a value; and what the parser reads instead."""

from __future__ import annotations

import argparse
import difflib
import typing
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from docmt.core.errors import DocmtError

_SWITCH_VALUES = {"true", "false", "yes", "no", "on", "off"}


def spelled_out(
    arguments: Sequence[str], actions: Sequence[argparse.Action], also: Mapping[str, str] | None = None
) -> list[str]:
    """The arguments with every option under its full name.

    An option may be shortened to its last words as long as one option alone is meant (`--beam` for `--search.beam`),
    have hyphens for underscores, and a switch may stand without `true`. `also`: further names (without dashes) and
    what they stand for. A positional argument may be given by name (`--model M`). What follows `--` is no option.
    Raises DocmtError for a short name of several options.
    """
    options = {string: action for action in actions for string in action.option_strings}
    positional = [action.dest for action in actions if not action.option_strings and action.nargs in (None, "?")]
    takes_files = any(not action.option_strings for action in actions)
    named: dict[str, str] = {}
    found: list[str] = []
    rest = list(arguments)
    while rest:
        argument = rest.pop(0)
        if argument == "--":
            # A path that begins with a dash is the same path behind ./
            found += [f"./{path}" if path.startswith("-") and path != "-" else path for path in rest]
            break
        if not argument.startswith("--") and not is_switch(options.get(argument)):
            found.append(argument)
            continue
        flag, equals, value = argument.partition("=")
        flag = full_name(flag, options, also or {})
        name = flag.removeprefix("--")
        action = options.get(flag)
        if action is None and name in positional and name not in named and (equals or rest):
            named[name] = value if equals else rest.pop(0)
        elif not equals and is_switch(action):
            # Where the command takes files, what stands behind a switch is most likely one.
            has_value = bool(rest) and (rest[0].lower() in _SWITCH_VALUES or not (takes_files or rest[0][:1] == "-"))
            found.append(f"{options[flag].option_strings[-1]}={rest.pop(0) if has_value else 'true'}")
        else:
            found.append(f"{flag}{equals}{value}")
    if set(named) != set(positional[: len(named)]):
        missing = next(name for name in positional if name not in named)
        raise DocmtError(f"--{next(iter(named))} needs --{missing} before it: name both, or neither")
    return [named[name] for name in positional if name in named] + found


def full_name(flag: str, options: Collection[str], also: Mapping[str, str]) -> str:
    """The option that is meant, with its dashes; the flag itself where none is.

    Raises DocmtError where several are.
    """
    if flag in options:
        return flag
    flag = f"--{flag.removeprefix('--').replace('-', '_')}"
    name = flag.removeprefix("--")
    if name in also:
        return f"--{also[name]}"
    if flag in options:
        return flag
    longer = [option for option in options if option.endswith(f".{name}")]
    depth = min((option.count(".") for option in longer), default=0)
    nearest = [option for option in longer if option.count(".") == depth]
    if len(nearest) > 1:
        raise DocmtError(f"{flag} may be {' or '.join(nearest)}: write which")
    return nearest[0] if nearest else flag


def short_name(option: str, options: Collection[str]) -> str:
    """The shortest way to write an option: its last words, as few as mean nothing else."""
    words = option.removeprefix("--").split(".")
    for count in range(1, len(words)):
        short = f"--{'.'.join(words[-count:])}"
        try:
            if short not in options and full_name(short, options, {}) == option:
                return short
        except DocmtError:
            continue
    return option


def type_of(option: argparse.Action | None) -> Any:
    """The type of an option's values, without the `None` that it may also have."""
    kind = getattr(option, "_typehint", None) or getattr(option, "type", None)
    members = [member for member in typing.get_args(kind) if member is not type(None)]
    if type(None) in typing.get_args(kind) and len(members) == 1:
        return members[0]
    return kind


def is_switch(action: argparse.Action | None) -> bool:
    """Whether an option is true or false."""
    return action is not None and type_of(action) is bool and action.nargs != 0


# Names of earlier versions and of other toolkits: by their letters they are near to options that do something else.
_MEANT = {
    "model.encoder_global_layers": "model.group.encoder_layers",
    "model.decoder_global_layers": "model.group.decoder_layers",
    "model.cross_global_layers": "model.group.cross_layers",
    "model.top_attention": "model.group.top",
    "model.self_locality": "model.group.self_locality",
    "model.cross_locality": "model.group.cross_locality",
    "global_from_local": "model.group.global_from",
    "batches.max_sentences": "model.instance_sentences",
    "batch_size": "batch_tokens",
    "max_tokens": "batch_tokens",
    "beam_size": "beam",
    "nbest": "n_best",
    "lenpen": "length_penalty",
    "lr": "learning_rate",
    "learning_rate_warmup": "warmup",
    "warmup_updates": "warmup",
    "warmup_steps": "warmup",
    "max_update": "max_steps",
    "max_updates": "max_steps",
    "max_epoch": "max_epochs",
    "epochs": "max_epochs",
    "steps": "max_steps",
    "update_freq": "accumulate",
    "arch": "preset",
    "fp16": "precision",
    "bf16": "precision",
    "gradient_checkpointing": "activation_checkpointing",
    "lora_rank": "adapters.rank",
    "lora_alpha": "adapters.alpha",
    "gpu": "device",
    "cpu": "device",
    "vocab_size": "vocabulary_size",
    "vocab": "vocabulary_size",
    "src": "source_language",
    "tgt": "target_language",
    "source_lang": "source_language",
    "target_lang": "target_language",
    "input": "source",
    "ref": "reference",
    "refs": "reference",
    "hyp": "hypothesis",
    "system_output": "hypothesis",
    "out": "output",
    "save_dir": "run",
}
_NEAR = 0.66  # of 1: letters in common. Lower, a hint is as often wrong as right.


def closest(name: str, known: Collection[str]) -> str:
    """The known option, with dashes or without, that is most likely meant; empty if none is near."""
    bare = name.lstrip("-").replace("-", "_")
    dashes = name[: len(name) - len(name.lstrip("-"))]
    meant = f"{dashes}{_MEANT.get(bare, '')}"
    ends = (known_name for known_name in known if known_name == meant or known_name.endswith(f".{meant.lstrip('-')}"))
    if bare in _MEANT and (found := next(ends, "")):
        return found
    candidates = {known_name.lstrip("-"): known_name for known_name in known}
    for known_name in known:
        candidates.setdefault(known_name.rpartition(".")[2].lstrip("-"), known_name)
    near = difflib.get_close_matches(bare, candidates, n=1, cutoff=_NEAR)
    return candidates[near[0]] if near else ""
