# Each target makes what it needs; nothing but Python 3.11+ (and gcc for `bench`) has to be there before. Where there is no C
# compiler, the build takes one from the package index.
PYTHON ?= python3
RUNS ?= 20
comma := ,
BIN := .venv/bin
INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt
# On all cores. Tests that share something expensive, such as a browser, are one group and stay in one process. A process
# that dies is an error at once, with the name of its test.
PYTEST := $(BIN)/python -m pytest -n auto --dist loadgroup --max-worker-restart=0
# Python keeps what it has compiled: the tests start hundreds of processes, and each would compile the package again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help venv build demo test test-all coverage test-quick sanitize chromium postgres java deploy-tools lint docs reproduce bench release test-lowest format clean

help: ## what can be made
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

venv: .venv/dev ## the environment for everything but the benchmarks

HEADERS := import pathlib, sysconfig, sys; sys.exit(not pathlib.Path(sysconfig.get_paths()["include"], "Python.h").exists())
.venv/bin/python:
	@$(PYTHON) -c '$(HEADERS)' || { $(DEBIAN) python3-dev; } || echo "no header files of Python: the build will say so"
	$(PYTHON) -m venv .venv

# One stamp a set of extras, so that `make demo` installs no more than the demo needs.
.venv/%: .venv/bin/python pyproject.toml constraints.txt
	$(INSTALL) --editable '.[$*]'
	@touch $@ .venv/core

# The compiled core is made again when a kernel has changed, or a file whose structs and constants kernels use.
CORE := $(shell grep -lrE '^@(kernel|large_kernel|entry|loop)$$' src/calibeat --include=*.py) $(wildcard src/calibeat/core/*.py) \
	$(addprefix src/calibeat/,_util/types.py monitor/slots.py service/store/types.py) \
	$(wildcard src/calibeat/*.pyx src/calibeat/_*.pxi) setup.py $(wildcard compiling/*.py)
.venv/core: .venv/bin/python $(CORE)
	$(INSTALL) --no-deps --editable .
	@touch $@
build: .venv/core ## compile the kernels, if one has changed

demo: .venv/demo .venv/core ## a year of flights: a table, and a picture and a report in out/
	@mkdir -p out
	$(BIN)/calibeat demo --out out

test: .venv/dev .venv/core chromium postgres java deploy-tools ## the suite, in about six minutes on two cores
	$(PYTEST) -q -m 'not exhaustive'

test-all: coverage sanitize ## the suite, all its cases and the paper's, with coverage; then under sanitizers

coverage: .venv/dev .venv/core chromium postgres java deploy-tools
	@rm -f .coverage
	$(PYTEST) --cov --cov-report= --cov-fail-under=0
	$(BIN)/python -m coverage report $$($(BIN)/python tests/components.py)

# The kernels once more in a build that stops at the first read or write outside of an array, and at undefined arithmetic.
SANITIZE := -fsanitize=address,undefined -fno-sanitize-recover=undefined
sanitize: .venv/dev .venv/core ## the tests of the core on kernels compiled with sanitizers
	@rm -rf out/sanitize && mkdir -p out/sanitize && cp -r src out/sanitize/src && rm -f out/sanitize/src/calibeat/_compiled*.so
	CALIBEAT_CFLAGS='$(SANITIZE) -O1' CALIBEAT_LDFLAGS='$(SANITIZE)' $(BIN)/python setup.py --quiet build_ext --build-lib out/sanitize/src
	PYTHONPATH=out/sanitize/src LD_PRELOAD="$$(gcc -print-file-name=libasan.so) $$(gcc -print-file-name=libubsan.so)" \
	  ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 $(BIN)/python -m pytest -q -p no:cacheprovider -k 'not interrupt' $(SANITIZED)
SANITIZED := tests/core/test_compiled.py tests/core/test_golden.py tests/core/test_groups.py tests/hosts/test_calibrator.py \
	tests/hosts/test_calibrator_groups.py tests/hosts/test_keys.py tests/hosts/test_fold.py

test-quick: .venv/dev .venv/core ## for daily work: the suite without its slow tests and browsers
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

# The programs that read the files of deploy/. Of nginx and Prometheus one program each is unpacked: the packages would start a
# server, and bring 90 MB.
unpack = which $(notdir $(2)) >/dev/null || { place=$$(mktemp -d) && cd $$place && $(SUDO) apt-get update -qq && \
	apt-get -o APT::Sandbox::User=root download -qq $(1) && dpkg-deb --fsys-tarfile $(1)_*.deb | tar -xO ./$(2) > program && \
	$(SUDO) install program /usr/local/bin/$(notdir $(2)) && rm -rf $$place; } || echo "no $(notdir $(2)): its tests will skip"
deploy-tools: ## the checkers of deploy/: nginx, promtool, systemd-analyze
	@$(call unpack,nginx,usr/sbin/nginx)
	@$(call unpack,prometheus,usr/bin/promtool)
	@which systemd-analyze >/dev/null || { $(DEBIAN) systemd; } || echo "no systemd-analyze: its tests will skip"

lint: .venv/dev ## ruff, mypy, and who may import whom
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache --no-logo

format: .venv/dev ## let ruff lay out the code
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

# The site is browsed by its own tests when it is built: search, console, phone, dark mode, links.
docs: .venv/docs .venv/core chromium ## the site into out/site, warnings are errors; then its tests in a browser
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet --jobs auto -d out/doctrees docs out/site
	CALIBEAT_SITE=out/site $(BIN)/python -m pytest -q tests/docs/test_site.py

reproduce: .venv/reproduce .venv/core ## the paper's tables and figures into docs/ (RUNS=20)
	$(BIN)/python -m reproduction all --runs $(RUNS) --jobs 2 --out docs

bench: .venv/bench .venv/core ## speed beside a C loop and other libraries, as tables
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

clean: ## forget the environment, caches and the compiled core
	rm -rf .venv out build src/calibeat/_compiled*.so src/calibeat/_compiled*.c src/calibeat/kernels*.pxi .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage .coverage.*
	find src tests benchmarks -name __pycache__ -exec rm -rf {} +
