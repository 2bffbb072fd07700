"""Which cases of a test run in the quick tier."""

import pytest


def only(cases, *quick):
    """All cases of a parametrised test; those that are not among the quick ones run in the full tier alone."""
    return [case if case in quick else pytest.param(*_values(case), marks=pytest.mark.full) for case in cases]


def _values(case):
    return case if isinstance(case, tuple) else (case,)
