"""Put a better start model under a model that began from an older one, without another training.

python -m benchmarks.transfer OLD_START NEW_START MODEL OUTPUT --share 0.25

MODEL was trained from OLD_START, and NEW_START too. Weights that the start models have become those of NEW_START, plus
a share of what MODEL learned in them (MODEL less OLD_START: task arithmetic, Ilharco et al. 2023). The others stay.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from docmt.checkpoint.model_directory import find_model, load_model, load_model_tokenizer, save_variant


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("old_start", "new_start", "model", "output"):
        parser.add_argument(name)
    parser.add_argument("--share", type=float, default=1.0, help="of what MODEL learned in these weights (%(default)s)")
    options = parser.parse_args(arguments)
    names = options.old_start, options.new_start, options.model
    paths = [find_model(name) for name in names]
    old, new, model = map(load_model, paths)
    start, trained, weights = (each.state_dict() for each in (old, new, model))
    shapes = [{name: weight.shape for name, weight in each.items()} for each in (start, trained, weights)]
    if other := [name for name, shape in shapes[0].items() if any(each.get(name) != shape for each in shapes[1:])]:
        raise SystemExit(f"not all three models have the weight {other[0]} of one size: name models of one start")
    tokenizer, *others = map(load_model_tokenizer, paths)
    if not all(map(tokenizer.has_same_vocabulary, others)):
        raise SystemExit("the three models have different tokenizers: name models of one start")
    changed = {name: trained[name] + options.share * (weights[name] - weight) for name, weight in start.items()}
    model.load_state_dict({**weights, **changed})
    save_variant(Path(options.output), model, paths[2])
    print(f"{len(changed):,} of {len(weights):,} weight tensors were changed: {options.output}")


if __name__ == "__main__":
    main()
