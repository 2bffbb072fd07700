import gzip
import json
from dataclasses import asdict
from importlib import resources

import pytest

from docmt.synthetic import generate_documents, generate_phenomena, make_contrastive_items, make_phenomenon_items

SEED = 5_303  # not one that anybody is likely to make a training corpus with


@pytest.mark.parametrize("name", ["pronouns", "phenomena"])
def test_shipped_test_sets_are_those_of_the_generator(name: str) -> None:
    expected = {
        "pronouns": [
            {**asdict(item), "phenomenon": "pronoun"} for item in make_contrastive_items(generate_documents(150, SEED))
        ],
        "phenomena": [asdict(item) for item in make_phenomenon_items(generate_phenomena(288, SEED))],
    }[name]
    packed = resources.files("docmt.evaluation").joinpath("test_sets", f"{name}.en-de.jsonl.gz").read_bytes()
    lines = gzip.decompress(packed).decode("utf-8").splitlines()
    assert [json.loads(line) for line in lines] == json.loads(json.dumps(expected))
