"""Selection of parametrised cases for the quick tests."""

import pytest


def full_except(cases, *quick):
    """Return all cases of a parametrised test. Those not in `quick` are marked `full`."""
    return [case if case in quick else pytest.param(*_values(case), marks=pytest.mark.full) for case in cases]


def _values(case):
    return case if isinstance(case, tuple) else (case,)
