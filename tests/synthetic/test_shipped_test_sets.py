import gzip
import json
from dataclasses import asdict
from importlib import resources

import pytest

from docmt.synthetic import contrastive_items, generate, generate_phenomena, phenomenon_items

SEED = 5_303  # not one that anybody is likely to make a training corpus with


@pytest.mark.parametrize("name", ["pronouns", "phenomena"])
def test_the_test_sets_of_the_package_are_what_the_generator_writes(name: str) -> None:
    made = {
        "pronouns": [{**asdict(item), "phenomenon": "pronoun"} for item in contrastive_items(generate(150, SEED))],
        "phenomena": [asdict(item) for item in phenomenon_items(generate_phenomena(288, SEED))],
    }[name]
    packed = resources.files("docmt.evaluation").joinpath("test_sets", f"{name}.en-de.jsonl.gz").read_bytes()
    lines = gzip.decompress(packed).decode("utf-8").splitlines()
    assert [json.loads(line) for line in lines] == json.loads(json.dumps(made))
