# make setup | demo | test | bench | lint | docs      (PYTHON=python3.12 chooses the interpreter)
PYTHON ?= python3
VENV ?= .venv
JOBS ?= 2

BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PLUGINS := $(sort $(dir $(wildcard plugins/*/pyproject.toml)))

.PHONY: setup demo test bench lint format docs clean
.DEFAULT_GOAL := setup

setup: $(STAMP)

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "error: Python 3.11 or later is needed" >&2; \
	  echo "  seen:  $$($(PYTHON) --version 2>&1)" >&2; \
	  echo "  try:   make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || $(PYTHON) -m virtualenv $(VENV) || { \
	  echo "error: no virtual environment could be made" >&2; \
	  echo "  seen:  $(PYTHON) -m venv failed" >&2; \
	  echo "  try:   install your system's python3-venv package" >&2; exit 1; }

# The stamp is younger than everything that decides what is installed. The dependency group `dev`
# needs pip 25.1.
$(STAMP): Makefile pyproject.toml constraints.txt $(wildcard plugins/*/pyproject.toml) | $(BIN)/python
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --group dev \
	  --editable . $(foreach plugin,$(PLUGINS),--editable $(plugin))
	$(BIN)/python -m pip install --quiet --no-deps --group peers
	@touch $@

demo: setup
	$(BIN)/landscape demo

test: setup
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS) --dist worksteal $(ARGS)

bench: setup
	$(BIN)/python -m bench $(ARGS)

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: setup
	$(BIN)/python -m landscape_cli.cli.reference docs/reference/commands.md
	$(BIN)/python -m pip install --quiet --group docs
	$(BIN)/mkdocs build --strict

clean:
	rm -rf build dist demo-output bench-output .pytest_cache .mypy_cache .ruff_cache .hypothesis
