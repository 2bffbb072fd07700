"""Property tests of generated files, few in the quick tests and more in `make test-all`, and damaged files."""

import random

import pytest
from hypothesis import given, settings

from docmt.core.errors import DocmtError


def check_files(*strategies, quick=50, full=100):
    """Give a test `quick` drawn examples (with 0 it is no quick test), or `full` in the full tests (times --fuzz).

    strategies: one for each argument.
    """
    tiers = [*([quick] if quick else []), pytest.param(full, marks=pytest.mark.full)]

    def decorate(test):
        @pytest.mark.parametrize("examples", tiers)
        def run(examples, pytestconfig):
            settings(max_examples=examples * pytestconfig.getoption("--fuzz"))(given(*strategies)(test))()

        return run

    return decorate


def mutate(data, generator):
    """Bytes with one to four pieces flipped, replaced, removed or doubled."""
    new = bytearray(data)
    for _ in range(generator.randint(1, 4)):
        start = generator.randrange(len(new) + 1)
        piece = new[start : start + generator.randint(1, 12)]
        kind = generator.randrange(4)
        if kind == 0 and piece:
            new[start] ^= 1 << generator.randrange(8)
        elif kind == 1 and piece:
            new[start] = generator.randrange(256)
        elif kind == 2:
            del new[start : start + len(piece)]
        else:
            new[start:start] = piece
    return bytes(new)


def read_mutants(read, *samples):
    """Yield files of 200 damaged samples, which are written as they are. Others are refused."""
    generator = random.Random(1)
    for number in range(200):
        data = mutate(samples[number % len(samples)], generator)
        try:
            file = read(data)
        except DocmtError:
            continue
        assert file.write(file.units) == data
        yield file
