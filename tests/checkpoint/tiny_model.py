"""A model directory for tests that need any model."""

import torch

from docmt.checkpoint.model_directory import save_model
from docmt.model import ModelConfig, TranslationModel
from docmt.text import BpeTokenizer


def save_tiny_model(directory, source="en", target="fr", seed=0, **options):
    """Write a model with random weights."""
    torch.manual_seed(seed)
    sizes = {"width": 16, "feed_forward": 24, "heads": 2, "encoder_layers": 1, "decoder_layers": 1}
    model = TranslationModel(
        ModelConfig(**{"system": "sentence", **sizes, **options}, vocabulary_size=264, instance_tokens=40)
    )
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    card = {"source_language": source, "target_language": target}
    save_model(directory, model, BpeTokenizer.train(["a few words", "a few more words"], 264), card)
    return directory
