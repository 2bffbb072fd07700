"""Settings for the whole suite."""

import hypothesis
import pytest
import torch

# The tensors of tests are small: a second thread costs more than it brings, and starves other processes.
torch.set_num_threads(1)
# A busy machine is no fault of the code.
hypothesis.settings.register_profile("docmt", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("docmt")


def pytest_addoption(parser):
    """`pytest tests/fuzz --fuzz 20` tries twenty times as much."""
    parser.addoption("--fuzz", type=int, default=1, metavar="TIMES", help="cases of tests/fuzz, as a multiple")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport():
    """Escape lone surrogates (of file names that are not UTF-8) in captured output, which xdist cannot send."""
    report = yield
    report.sections = [(name, text.encode("utf-8", "backslashreplace").decode()) for name, text in report.sections]
    return report
