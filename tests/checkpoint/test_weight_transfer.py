"""A better start model under a model that began from an older one."""

import pytest
import torch
from benchmarks.transfer import main
from tiny_model import save_tiny_model

from docmt.checkpoint.model_directory import load_model
from docmt.text import BpeTokenizer


@pytest.mark.parametrize("share", [0.25, 1.0])
def test_a_share_of_what_was_learned_is_added_to_the_new_start(tmp_path, share):
    for seed, name in enumerate(("old", "new")):
        save_tiny_model(tmp_path / name, seed=seed)
    save_tiny_model(tmp_path / "model", seed=2, system="group")
    main([*(str(tmp_path / name) for name in ("old", "new", "model", "sum")), "--share", str(share)])
    old, new, model, result = (load_model(tmp_path / name).state_dict() for name in ("old", "new", "model", "sum"))
    assert set(old) < set(model) and any((new[name] != old[name]).any() for name in old)
    for name, weight in model.items():
        expected = new[name] + share * (weight - old[name]) if name in old else weight
        assert torch.equal(result[name], expected), name


def test_models_of_other_starts_are_refused(tmp_path):
    for name, options in (("old", {"system": "group"}), ("new", {}), ("model", {})):
        save_tiny_model(tmp_path / name, **options)
    with pytest.raises(
        SystemExit, match=r"not all three models have the weight .* of one size: name models of one start"
    ):
        main([str(tmp_path / name) for name in ("old", "new", "model", "sum")])
    save_tiny_model(tmp_path / "wide", width=32)
    with pytest.raises(SystemExit, match="of one size"):
        main([str(tmp_path / name) for name in ("new", "wide", "model", "sum")])
    BpeTokenizer.train(["other words", "of another text"], 264).save(tmp_path / "new")
    with pytest.raises(SystemExit, match="the three models have different tokenizers"):
        main([str(tmp_path / name) for name in ("new", "model", "model", "sum")])
    assert not (tmp_path / "sum").exists()
