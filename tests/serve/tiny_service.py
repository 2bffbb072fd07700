"""A server with a tiny random model, in a thread, for tests with clients."""

import threading
import time
from contextlib import contextmanager

from docmt.cli.commands.serve import ServeOptions, make_engine, make_server
from docmt.decoding import SearchConfig
from docmt.model.systems import Group
from docmt.serve.application import format_url, open_socket

SEARCH = SearchConfig(beam=1, max_length_ratio=0.0, max_length_extra=4.0)

READS_CONTEXT = {"system": "group", "group": Group(encoder_layers=1, decoder_layers=1, cross_layers=1)}
"""Options of a model that reads context."""


@contextmanager
def running_server(*models, data, keys=None, port=0, search=SEARCH, **options):
    """The URL of a server that runs. port: 0 takes a free one."""
    settings = ServeOptions(models=[str(model) for model in models], search=search, device="cpu", **options)
    server = make_server(settings, make_engine(settings), data, keys, frozenset(["localhost", "127.0.0.1"]))
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
