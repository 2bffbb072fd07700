"""Put new encoder layers into a model, which then translates almost as before, and can learn more.

python recipes/general/deepen.py MODEL OUTPUT --layers 2

The new layers are copies of the first one whose sublayers add nothing yet (Wu et al. 2024, LLaMA Pro). Their
normalizations return what they read, but for the spread of single words, which is that of the mean word then.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import torch

from docmt.checkpoint.model_directory import find_model, load_model, save_variant
from docmt.model.transformer import TranslationModel


def main() -> None:
    """Write the deeper model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("output", type=Path)
    parser.add_argument("--layers", type=int, default=2, help="new layers, after the first (%(default)s)")
    options = parser.parse_args()
    path = find_model(options.model)
    old = load_model(path)
    count = old.config.encoder_layers
    new = TranslationModel(replace(old.config, encoder_layers=count + options.layers))
    weights = {}
    for name, weight in old.state_dict().items():
        part, number, rest = (*name.split(".", 2), "")[:3]
        if part != "encoder" or not number.isdigit():
            weights[name] = weight
            continue
        weights[f"encoder.{int(number) + options.layers * (number > '0')}.{rest}"] = weight
        for layer in range(options.layers) if number == "0" else ():
            weights[f"encoder.{layer + 1}.{rest}"] = weight.clone()
    norm = "encoder.0.feed_forward_residual.norm"
    gain, bias = weights[f"{norm}.weight"], weights[f"{norm}.bias"]
    spread = torch.sqrt((gain**2 + bias**2).mean() - bias.mean() ** 2)
    for layer in range(1, options.layers + 1):
        for sublayer, last in (("attention", "attention.local.output"), ("feed_forward", "feed_forward.outer")):
            for each in ("weight", "bias"):
                weights[f"encoder.{layer}.{last}.{each}"].zero_()
            weights[f"encoder.{layer}.{sublayer}_residual.norm.weight"].fill_(float(spread))
            weights[f"encoder.{layer}.{sublayer}_residual.norm.bias"].fill_(float(bias.mean()))
    new.load_state_dict(weights)
    save_variant(options.output, new, path)
    print(f"{count + options.layers} encoder layers in place of {count}: {options.output}")


if __name__ == "__main__":
    main()
