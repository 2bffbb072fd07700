"""Property tests of generated files: few of them in the quick tests, and a thousand in `make test-all`."""

import pytest
from hypothesis import given, settings


def check_files(*strategies, quick=200):
    """Give a test `quick` drawn examples, or 1,000 in the full tests. strategies: one for each argument."""

    def decorate(test):
        @pytest.mark.parametrize("examples", [quick, pytest.param(1000, marks=pytest.mark.full)])
        def run(examples):
            settings(max_examples=examples)(given(*strategies)(test))()

        return run

    return decorate
