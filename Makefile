# make demo: from a fresh clone to the chart.   make test: every check that must pass.   make check: the quick ones.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --disable-pip-version-check --quiet --constraint constraints.txt

.PHONY: demo test check adapters install clean

demo: $(VENV)/installed
	$(BIN)/anchorscope models --install smollm2-135m
	$(BIN)/anchorscope run --limit 600 --keep states --out runs/demo
	$(BIN)/anchorscope detect runs/demo --fit-only --bundles anchor --out runs/demo/detectors

test: $(VENV)/test-installed
	$(BIN)/anchorscope models --install smollm2-135m
	$(BIN)/ruff check src tests
	$(BIN)/mypy
	$(BIN)/lint-imports
	sh tools/install_chromium.sh
	OMP_NUM_THREADS=1 $(BIN)/pytest --numprocesses auto --dist loadfile --no-loadscope-reorder

check: $(VENV)/test-installed
	$(BIN)/ruff check src tests
	$(BIN)/mypy
	$(BIN)/lint-imports
	OMP_NUM_THREADS=1 $(BIN)/pytest --numprocesses auto --dist loadfile --no-loadscope-reorder --quick -m 'not embedded'

# The adapters with the libraries themselves, each in an environment of its own (docs/adapters.md).
adapters:
	PYTHON=$(PYTHON) sh tools/test_adapters.sh .adapters

install: $(VENV)/installed

# torch first, by exact version: asked for by another package it may come as several gigabytes of GPU libraries.
$(VENV)/installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "anchorscope needs Python 3.11 or newer; set PYTHON=...")'
	$(PYTHON) -m venv $(VENV)
	$(PIP) "$$(grep '^torch==' constraints.txt)"
	$(PIP) --editable .
	touch $@

$(VENV)/test-installed: $(VENV)/installed
	$(PIP) --editable '.[test]'
	touch $@

clean:
	rm -rf $(VENV) .adapters runs/demo
