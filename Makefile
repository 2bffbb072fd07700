# Everything runs in .venv, which `make setup` builds from nothing.
PYTHON ?= python3
BIN := .venv/bin
SHELL := /bin/bash

.PHONY: setup demo demo-training test test-all lint docs bench clean

setup: .venv/.installed

.venv/.installed: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@

demo: setup
	$(BIN)/docmt demo

demo-training: setup
	PATH=$(BIN):$$PATH sh recipes/demo-training.sh

# One thread for each of the processes that share the tests: more would fight for the same cores.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses auto --maxprocesses 4 --dist worksteal --durations 10

# Of these folders the quick tests take less than a minute together: `make test FAST=1`.
FAST_TESTS := $(addprefix tests/,test_import_layers.py checking core data documents evaluation formats model terms text)

LINT := $(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy

# Lint and types run beside the quick tests; what they say comes last.
test: setup
	@($(LINT)) >.venv/lint.txt 2>&1 & \
	$(PYTEST) -m 'not full' $(if $(FAST),$(FAST_TESTS)); tests=$$?; \
	wait $$!; lint=$$?; cat .venv/lint.txt; echo "make test took $$SECONDS s"; exit $$((tests | lint))

# What takes longer: full products of systems and properties, fuzz, parity with every fixture, every page.
test-all: test
	$(PYTEST) -m full

lint: setup
	$(LINT)

# The documentation site, in docs/_build. A broken link is an error.
docs: setup
	$(BIN)/python -m sphinx -q -W --keep-going -b html docs docs/_build

bench: setup
	$(BIN)/python -m benchmarks

clean:
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache docs/_build docmt-demo docmt-demo-training
