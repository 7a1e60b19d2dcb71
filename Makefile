# Each target makes what it needs; nothing but Python 3.11+ (and gcc for `bench`) has to be there before.
PYTHON ?= python3
RUNS ?= 20
BIN := .venv/bin
INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: help venv demo test chromium lint reproduce bench format clean

help: ## what can be made
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

venv: .venv/dev ## the environment for everything but the benchmarks

.venv/bin/python:
	$(PYTHON) -m venv .venv

# One stamp a set of extras, so that `make demo` installs no more than the demo needs.
.venv/%: .venv/bin/python pyproject.toml constraints.txt
	$(INSTALL) --editable '.[$*]'
	@touch $@

demo: .venv/demo ## a year of flights: a table, and a picture and a report in out/
	@mkdir -p out
	$(BIN)/calibeat demo --out out

test: .venv/dev chromium ## the whole suite twice: with the JIT, and without it for the coverage
	$(BIN)/python -m pytest
	NUMBA_DISABLE_JIT=1 $(BIN)/python -m coverage run -m pytest
	$(BIN)/python -m coverage report

# The report is tested in a real browser. Where Debian's packages cannot be had, its tests skip (not in CI: there they fail).
SUDO := $(if $(filter 0,$(shell id -u)),,sudo)
chromium: ## the browser of the tests, from Debian's packages unless there is one
	@which chromium chromedriver >/dev/null || { \
	  $(SUDO) apt-get update -qq && $(SUDO) env DEBIAN_FRONTEND=noninteractive \
	  apt-get install -y -qq --no-install-recommends chromium chromium-driver; } || echo "no Chromium: its tests will skip"

lint: .venv/dev ## ruff and mypy
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

format: .venv/dev ## let ruff lay out the code
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

reproduce: .venv/reproduce ## the paper's tables and figures into docs/ (RUNS=20; data from ../shared/data or CALIBEAT_DATA)
	$(BIN)/calibeat reproduce all --runs $(RUNS) --jobs 2 --out docs $(addprefix --data ,$(wildcard ../shared/data))

bench: .venv/bench ## speed beside a C loop and other libraries, as tables
	$(BIN)/python -m benchmarks

clean: ## forget the environment, caches and compiled kernels
	rm -rf .venv out .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage
	find src tests benchmarks -name __pycache__ -exec rm -rf {} +
