# Each target makes what it needs; nothing but Python 3.11+ (and gcc for `bench`) has to be there before.
PYTHON ?= python3
RUNS ?= 20
comma := ,
BIN := .venv/bin
INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt
# On all cores. Tests that share something expensive, such as a browser, are one group and stay in one process. A process
# that dies is an error at once, with the name of its test.
PYTEST := $(BIN)/python -m pytest -n auto --dist loadgroup --max-worker-restart=0

.PHONY: help venv demo test test-all test-quick chromium postgres java lint docs reproduce bench release test-lowest format clean

help: ## what can be made
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

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

test: .venv/dev chromium postgres java ## the suite, in about six minutes on two cores
	$(PYTEST) -q -m 'not exhaustive'

# Folders whose tests run kernels. Coverage of both runs counts: the lines of a kernel are seen only in plain Python.
PLAIN := $(wildcard tests/core tests/multi tests/monitor tests/stream tests/hosts tests/backtest/replay tests/backtest/test_replay.py)
test-all: .venv/dev chromium postgres java ## the suite, all its cases and the paper's, with coverage; then kernels as plain Python
	@rm -f .coverage
	$(PYTEST) --cov --cov-report= --cov-fail-under=0
	NUMBA_DISABLE_JIT=1 $(PYTEST) $(PLAIN) --cov --cov-append --cov-report= --cov-fail-under=0
	$(BIN)/python -m coverage report $$($(BIN)/python tests/components.py)

test-quick: .venv/dev ## for daily work: the suite without its slow tests and browsers
	$(PYTEST) -q -m 'not slow and not exhaustive'

# What the tests use and pip does not install comes from Debian's packages, unless it is there. Where they cannot be had, the
# tests that need them skip (not in CI: there they fail).
SUDO := $(if $(filter 0,$(shell id -u)),,sudo)
DEBIAN := $(SUDO) apt-get update -qq && $(SUDO) env DEBIAN_FRONTEND=noninteractive \
	apt-get install -y -qq --no-install-recommends
chromium: ## the browser of the tests
	@which chromium chromedriver >/dev/null || { $(DEBIAN) chromium chromium-driver; } || echo "no Chromium: its tests will skip"

# The tests start a server of their own, as another user: PostgreSQL refuses to run as root. Debian's package would start one
# too, unless it is told not to.
NO_CLUSTER := $(SUDO) mkdir -p /etc/postgresql-common && \
	echo "create_main_cluster = false" | $(SUDO) tee /etc/postgresql-common/createcluster.conf >/dev/null
postgres: ## the database of the tests
	@ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1 || which postgres >/dev/null || { \
	  $(NO_CLUSTER) && $(DEBIAN) -o Dpkg::Options::=--force-confold postgresql; } || echo "no PostgreSQL: its tests will skip"

java: ## the Java runtime of Spark
	@which java >/dev/null || { $(DEBIAN) openjdk-17-jre-headless; } || echo "no Java: the tests of Spark will skip"

lint: .venv/dev ## ruff, mypy, and who may import whom
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache --no-logo

format: .venv/dev ## let ruff lay out the code
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

# The site is browsed by its own tests when it is built: search, console, phone, dark mode, links.
docs: .venv/docs chromium ## the site into out/site, warnings are errors; then its tests in a browser
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet --jobs auto -d out/doctrees docs out/site
	CALIBEAT_SITE=out/site $(BIN)/python -m pytest -q tests/docs/test_site.py

reproduce: .venv/reproduce ## the paper's tables and figures into docs/ (RUNS=20)
	$(BIN)/python -m reproduction all --runs $(RUNS) --jobs 2 --out docs

bench: .venv/bench ## speed beside a C loop and other libraries, as tables
	$(BIN)/python -m benchmarks

# What pip would install for a user, and nothing else: the wheel in an empty environment, where the README's example runs.
release: .venv/release ## sdist and wheel into dist/, checked by twine, installed in an empty environment and tried there
	rm -rf dist out/release
	$(BIN)/python -m build --quiet
	$(BIN)/python -m twine check --strict dist/*
	$(PYTHON) -m venv out/release
	out/release/bin/pip install --quiet --disable-pip-version-check --constraint constraints.txt dist/*.whl
	cd out/release && bin/python -m doctest -o NORMALIZE_WHITESPACE ../../README.md && bin/calibeat --version

# The oldest versions that pyproject.toml allows. River asks for a NumPy that is newer than the core's oldest, and Spark for a
# download of 300 MB: they are not part of it. Old libraries warn of what has changed since, so warnings are not errors here.
LOWEST := backtest,client,demo,frames,onnx,plot,postgres,reproduce,service,sklearn
LOWEST_TESTS ?= tests/hosts/test_calibrator.py tests/test_plot.py tests/util/test_columns.py \
	tests/service/test_routes.py tests/test_export.py
test-lowest: ## a part of the tests with the oldest dependencies (LOWEST_TESTS=...)
	$(PYTHON) -m venv out/lowest
	$(PYTHON) tests/lowest.py $(subst $(comma), ,$(LOWEST)) testing > out/lowest/constraints.txt
	out/lowest/bin/pip install --quiet --disable-pip-version-check --constraint out/lowest/constraints.txt \
	  --editable '.[$(LOWEST),testing]'
	out/lowest/bin/python -m pytest -q -W default $(LOWEST_TESTS)

clean: ## forget the environment, caches and compiled kernels
	rm -rf .venv out .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage .coverage.*
	find src tests benchmarks -name __pycache__ -exec rm -rf {} +
