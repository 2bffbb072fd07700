"""A server with a tiny random model, in a thread, for tests with clients."""

import threading
import time
from contextlib import contextmanager

import torch

from docmt.checkpoint.model_directory import save_model
from docmt.cli.commands.serve import ServeOptions, make_server
from docmt.decoding import SearchConfig
from docmt.model import ModelConfig, TranslationModel
from docmt.model.systems import Group
from docmt.serve.http_server import format_url, open_socket
from docmt.text import BpeTokenizer

SEARCH = SearchConfig(beam=1, max_length_ratio=0.0, max_length_extra=4.0)

READS_CONTEXT = {"system": "group", "group": Group(encoder_layers=1, decoder_layers=1, cross_layers=1)}
"""Options of a model that reads context."""


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


@contextmanager
def running_server(*models, data, keys=None, port=0, **options):
    """The URL of a server that runs. port: 0 takes a free one."""
    settings = ServeOptions(models=[str(model) for model in models], search=SEARCH, device="cpu", **options)
    server = make_server(settings, data, keys, frozenset(["localhost", "127.0.0.1"]))
    listener = open_socket("127.0.0.1", port)
    url = format_url(listener)
    thread = threading.Thread(target=server.serve_forever, args=[listener])
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.01)
        yield url
    finally:
        server.should_exit = True
        thread.join()
