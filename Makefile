# make demo: from a fresh clone to the chart.   make check: a minute.   make test: five.   make nightly: the slow rest.
# make docs: the site.   make dist: wheel and sdist, tried.   Without an NVIDIA GPU, on Linux, beside any of them:
#   TORCH_INDEX=https://download.pytorch.org/whl/cpu
PYTHON ?= python3
VENV ?= .venv
TORCH_INDEX ?=
BIN := $(VENV)/bin
INTEGRATIONS := $(VENV)/integrations
PACKAGES := import sysconfig; print(sysconfig.get_path("purelib"))
PYTEST := OMP_NUM_THREADS=1 $(BIN)/pytest --numprocesses auto --max-worker-restart 0 --dist loadfile
# Rooms whose annotations of shapes are checked while the laws and runs use them (tests/support/shape_checks.py).
SHAPES_CHECKED := stats models engine probes evidence_parts interventions plan evidence detectors
PIP := $(BIN)/python -m pip install --disable-pip-version-check --quiet --constraint constraints.txt

.PHONY: demo test check nightly lint types unit golden docs examples dist lock install clean

demo: $(VENV)/installed
	$(BIN)/anchorscope models --install smollm2-135m
	$(BIN)/anchorscope run --limit 500 --keep states --out runs/demo
	$(BIN)/anchorscope detect runs/demo --detectors confidence,probe,auto

# At most a minute on two quiet cores: format, lint, imports, types, and the tests that need no torch.
check: $(VENV)/test-installed
	@$(MAKE) --no-print-directory --jobs 2 --output-sync=target lint types unit

# Five minutes on two quiet cores: check, the laws on tiny models, and whole runs.
test: $(VENV)/test-installed
	-$(BIN)/anchorscope models --install smollm2-135m
	sh tools/install_chromium.sh
	@$(MAKE) --no-print-directory check
	SHAPES_CHECKED="$(SHAPES_CHECKED)" $(PYTEST) tests/runs tests/laws

# What is slow: kills, damage, hostile cases, network partitions, every page in a browser, every command of the docs,
# the plug-ins with the libraries themselves, and the properties of the other tiers with ten times as many examples.
nightly: $(VENV)/test-installed $(INTEGRATIONS)/installed
	-$(BIN)/anchorscope models --install smollm2-135m
	sh tools/install_chromium.sh
	$(PYTEST) tests/nightly
	$(PYTEST) tests/unit tests/laws -m hypothesis --hypothesis-profile=nightly
	OMP_NUM_THREADS=1 $(INTEGRATIONS)/bin/python -m pytest plugins/integrations/tests

lint:
	$(BIN)/ruff format --check --quiet src plugins tests tools benchmarks || \
	  { echo "run: $(BIN)/ruff format src plugins tests tools benchmarks"; exit 1; }
	$(BIN)/ruff check --quiet src plugins tests tools benchmarks
	$(BIN)/lint-imports --no-cache > /dev/null || $(BIN)/lint-imports --no-cache

types:
	$(BIN)/mypy

unit:
	$(PYTEST) tests/unit

# What commands write, compared with tests/golden; shows what moved and writes it again.
golden: $(VENV)/test-installed
	OMP_NUM_THREADS=1 $(BIN)/python tests/golden/write.py

# The site, into site/: pages are put together in build/docs (tools/docs_site.py), then built; a warning is an error.
docs: $(VENV)/docs-installed
	$(BIN)/python tools/docs_site.py build/docs
	$(BIN)/zensical build --clean --strict

# The demo's page among the site's live examples, after make demo.
examples:
	cp runs/demo/report.html docs/examples/demo.html

# Wheel and sdist into dist/, and the wheel tried in an environment of its own.
dist:
	PYTHON=$(PYTHON) sh tools/check_dist.sh dist

# uv.lock with the versions of constraints.txt, from the public index and nowhere else.
lock:
	rm -f uv.lock
	uv lock --no-config --default-index https://pypi.org/simple \
	  $$(sed -nE 's/^([a-z][^ ]*==[^ ]+)$$/--upgrade-package \1/p' constraints.txt)

install: $(VENV)/installed

# torch first: on Linux the one that PyPI has comes with the CUDA libraries, a download of some 2.7 GB.
$(VENV)/installed: pyproject.toml constraints.txt plugins/integrations/pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "anchorscope needs Python 3.11 or newer; set PYTHON=...")'
	$(PYTHON) -m venv $(VENV)
	@if [ -z "$(TORCH_INDEX)" ] && [ "$$(uname -s)" = Linux ] && ! command -v nvidia-smi > /dev/null; then \
	  echo "No NVIDIA GPU was found. If torch's download is too large (2.7 GB with CUDA), stop and run instead:"; \
	  echo "  make $(MAKECMDGOALS) TORCH_INDEX=https://download.pytorch.org/whl/cpu"; fi
	$(PIP) "$$(grep '^torch==' constraints.txt)" $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX))
	$(PIP) --editable . --editable plugins/integrations
	touch $@

$(VENV)/test-installed: $(VENV)/installed
	$(PIP) --editable '.[test]'
	touch $@

# inspect_ai needs an older fsspec than $(VENV) has: this environment shares all else with it, and has its own versions
# of what the libraries need. They are listed one by one, so that pip has nothing to search for.
$(INTEGRATIONS)/installed: $(VENV)/test-installed plugins/integrations/constraints.txt
	$(PYTHON) -m venv --clear --without-pip $(INTEGRATIONS)
	echo "import site; site.addsitedir('$$($(BIN)/python -c '$(PACKAGES)')')" \
	  > "$$($(INTEGRATIONS)/bin/python -c '$(PACKAGES)')/shared.pth"
	$(INTEGRATIONS)/bin/python -m pip install --disable-pip-version-check --quiet --no-deps \
	  --requirement plugins/integrations/constraints.txt
	$(INTEGRATIONS)/bin/python -m pip check
	touch $@

$(VENV)/docs-installed: $(VENV)/installed
	$(PIP) --editable '.[docs]'
	touch $@

clean:
	rm -rf $(VENV) runs/demo build site dist
