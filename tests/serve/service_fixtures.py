"""A whole application around an engine without a model, for tests of the routes."""

import re
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field

from fake_engine import FakeEngine, FakeModel
from starlette.testclient import TestClient

from docmt.core.errors import DocmtError
from docmt.formats.language_codes import is_same_language
from docmt.serve.application import create_app
from docmt.serve.document_jobs import DocumentJobs, JobConfig
from docmt.serve.http_requests import ServiceConfig

URL = "http://localhost:5000"


@dataclass(frozen=True)
class ListedModel(FakeModel):
    """A model with all that is listed of it."""

    system: str = "sentence"
    parameters: int = 7
    licence: str = "CC0"
    loaded: bool = True
    precision: str = "float32"
    same_in_batches: bool = True


@dataclass(frozen=True)
class Statistics:
    waiting_sentences: dict = field(default_factory=lambda: {"interactive": 3, "jobs": 0})
    waiting_tokens: dict = field(default_factory=lambda: {"interactive": 40, "jobs": 0})
    tokens_per_second: float = 5.0
    batches: int = 6
    batch_tokens: int = 7
    batch_fill: float = 0.5
    model_bytes: int = 8
    failed_loads: int = 0
    longest_waiting_seconds: dict = field(default_factory=lambda: {"interactive": 2.5, "jobs": 0.0})


class ServiceEngine(FakeEngine):
    """The fake engine with two models, which can be started, stopped and measured."""

    is_started = False
    works = ()

    def start(self):
        self.is_started, self.works = True, []

    def stop(self):
        self.is_started = False

    @property
    def is_alive(self):
        return self.is_started

    def submit(self, *args, **options):
        self.works.append(super().submit(*args, **options))
        return self.works[-1]

    def describe(self):
        return [ListedModel(), ListedModel("back", "fr_FR", "en")]

    def find(self, name="", source="", target=""):
        for each in self.describe():
            pairs = (source, each.source_language), (target, each.target_language)
            if name in ("", each.name) and all(is_same_language(*pair) for pair in pairs):
                return each.name
        raise DocmtError(f"there is no model {name} from {source} to {target}")

    def statistics(self):
        return asdict(Statistics())


@contextmanager
def running_service(data, engine=None, keys=None, jobs=None, **options):
    """A client of a running application. options: of `ServiceConfig`."""
    engine = engine or ServiceEngine()
    jobs = DocumentJobs(engine, data, jobs or JobConfig())
    app = create_app(engine, jobs, keys, data, ServiceConfig(**options))
    with TestClient(app, base_url=URL, raise_server_exceptions=False) as client:
        client.engine, client.state = engine, app.state.service
        yield client


def expect(*sources, context=()):
    """What the engine makes of the last sentences of a document."""
    history = []
    for source in (*context, *sources):
        seen = "+".join(text.split()[0].strip("«»") for text in history[-2:])
        history.append(f"«{source}» ({seen})")
    return history[len(context) :]


def parse_events(text):
    """The (id, name, data) of a stream of events."""
    return re.findall(r"id: (\d+)\nevent: (\w+)\ndata: (.*)\n\n", text)
