"""A service with an engine without a model, in a process that may be killed."""

from service_fixtures import ServiceEngine

from docmt.serve import document_jobs
from docmt.serve.application import ServiceServer, create_app, open_socket
from docmt.serve.document_jobs import DocumentJobs, JobConfig
from docmt.serve.http_requests import ServiceConfig


def main(data, port):
    document_jobs._SUSPECT_SECONDS = 0.3  # else a test of many kills takes minutes
    document_jobs._MAX_CRASHES = 1000  # a file is killed here whether it has got on or not
    engine = ServiceEngine()
    app = create_app(engine, DocumentJobs(engine, data, JobConfig()), None, data, ServiceConfig())
    ServiceServer(app).serve_forever(open_socket("127.0.0.1", port))
