# The two commands of the README are `make demo` and `make test`; both install what is missing.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

help:  ## this list
	@grep --extended-regexp '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand --tabs=12

setup: $(VENV)/.ready  ## install what is missing: system packages (apt), the virtual environment
system:
	@tests/lab/install
$(VENV)/.ready: pyproject.toml | system
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --editable '.[dev]'
	touch $@

test: setup lint  ## everything: lint, types, layers, unit, golden, stub lab, one real Ray + vLLM
	tests/run-on-wheel

lint: $(VENV)/.ready  ## ruff, mypy, import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

unit: $(VENV)/.ready  ## the fast tests alone
	$(BIN)/pytest tests/unit -q -m "not real"

coverage: setup  ## lines and branches of the package and the supervisor that the fast tests run
	$(BIN)/pytest tests/unit tests/remote -q -m "not real" --cov=orchestrator --cov=templates --cov-branch --cov-report=term

demo: setup  ## a pair on this machine: up, a completion, a small bench, status, down
	$(BIN)/python -m tests.demo

accuracy: setup  ## how exact `bench` is, beside `vllm bench serve`: the table of docs/measurements.md (10 minutes)
	$(BIN)/python -m tests.accuracy

clean:  ## remove what was built here
	rm --recursive --force $(VENV) build dist

.PHONY: help setup system test lint unit coverage demo accuracy clean
