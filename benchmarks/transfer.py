"""Give a model what further training gave to its start model, by adding the difference of the weights.

python -m benchmarks.transfer OLD_START NEW_START MODEL OUTPUT

MODEL was trained from OLD_START, and NEW_START too. The output has the weights of MODEL, plus NEW_START less OLD_START
where the start models have a weight (task arithmetic, Ilharco et al. 2023). It is a start for a short training.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from docmt.checkpoint.model_directory import ModelCard, load_languages, load_model, load_model_tokenizer, save_model
from docmt.checkpoint.model_names import find_named_model


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("old_start", "new_start", "model", "output"):
        parser.add_argument(name)
    options = parser.parse_args(arguments)
    names = options.old_start, options.new_start, options.model
    paths = [find_named_model(name) or Path(name) for name in names]
    old, new, model = map(load_model, paths)
    start, trained, weights = (each.state_dict() for each in (old, new, model))
    if missing := [name for name in start if name not in weights or name not in trained]:
        raise SystemExit(f"not all three models have the weight {missing[0]}: name models of one start")
    changed = {name: weights[name] + trained[name] - weight for name, weight in start.items()}
    model.load_state_dict({**weights, **changed})
    source, target = load_languages(paths[2])
    card = ModelCard(source_language=source, target_language=target)
    save_model(Path(options.output), model, load_model_tokenizer(paths[2]), card)
    print(f"{len(changed):,} of {len(weights):,} weight tensors were changed: {options.output}")


if __name__ == "__main__":
    main()
