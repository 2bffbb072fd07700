"""Searches at the ends of what their options may be: scores are numbers, or the document is refused."""

import dataclasses
import json
import math
import typing

import pytest
from commands import QUICK
from harness import keeps_to_the_contract

from docmt.core.settings import field_range
from docmt.decoding import SearchConfig

pytestmark = pytest.mark.full

# What would only take long: as many hypotheses and tokens as asked for.
SMALL = {"beam": 6, "n_best": 6, "max_length_ratio": 3, "max_length_extra": 8, "min_length": 5}


def random_options(chance):
    """Some of the options, each at one of its ends, near to them, or at a usual value."""
    kinds = typing.get_type_hints(SearchConfig)
    options = {}
    for field in dataclasses.fields(SearchConfig):
        if chance.random() < 0.5:
            continue
        if kinds[field.name] in (int, float):
            least, most = field_range(SearchConfig, field.name)
            most = min(most, SMALL.get(field.name, most))
            options[field.name] = kinds[field.name](
                chance.choice([least, most, field.default, chance.uniform(least, most)])
            )
        else:
            options[field.name] = chance.choice(typing.get_args(kinds[field.name]) or (True, False))
    return {**options, "max_length_extra": options.get("max_length_extra", 3)}


def test_scores_are_numbers(cases, run, copy, tmp_path):
    source, target = tmp_path / "a.txt", tmp_path / "b.txt"
    source.write_text("She sees the dog.\nIt is cheap.\n\nA\n")
    target.write_text("Sie sieht den Hund.\nEr ist billig.\n\nA\n")
    model = copy(run / "model")
    done = 0
    for chance in cases(60, "searches"):
        options = random_options(chance)
        command = chance.choice(
            [["translate", model, source], ["translate", model, source], ["score", model, source, target]]
        )
        flags = [f"--search.{name}={value}" for name, value in options.items() if command[0] == "translate"]
        outcome = keeps_to_the_contract(*command, "--format=jsonl", *flags)
        rows = [json.loads(line, parse_constant=pytest.fail) for line in outcome.out.split("\n")[:-1]]
        assert all(math.isfinite(row["score"]) for row in rows), options
        assert (len(rows) == 3) == (outcome.status == 0), (options, outcome)
        done += outcome.status == 0
    assert done


def test_weights_that_are_no_numbers(cases, run, copy, tmp_path):
    source = tmp_path / "a.txt"
    source.write_text("She sees the dog.\n")
    from docmt.checkpoint.weights import WEIGHTS_FILE, read_tensors, save_tensors

    for chance in cases(12, "weights that are no numbers"):
        model = copy(run / "model")
        tensors = read_tensors(model / WEIGHTS_FILE)
        name = chance.choice(sorted(tensors))
        value = chance.choice([math.nan, math.inf, -math.inf, 1e30, -1e30, 1e38])
        tensors[name] = tensors[name] * value if chance.random() < 0.5 else tensors[name].fill_(value)
        save_tensors(model / WEIGHTS_FILE, tensors)
        outcome = keeps_to_the_contract("translate", model, source, "--format=jsonl", *QUICK)
        rows = [json.loads(line, parse_constant=pytest.fail) for line in outcome.out.split("\n")[:-1]]
        assert all(math.isfinite(row["score"]) for row in rows), (name, value)
