# `make demo` and `make test` do all the set-up they need; the second time they start at once.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test numerical campaign lint browser axe clean

demo: $(STAMP)
	$(BIN)/sptnet demo --out runs/demo --overwrite

test: lint browser
	$(BIN)/python -m pytest -n 2 --dist worksteal
	$(MAKE) numerical

# Other processors and numbers of threads round otherwise: repeat the numerical tests with torch's code for the oldest
# processors, and with four threads. tests/helpers/rounding.py derives what may differ.
numerical: $(STAMP)
	ATEN_CPU_CAPABILITY=default OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2 --dist worksteal -m numerical
	OMP_NUM_THREADS=4 $(BIN)/python -m pytest -q -n 2 --dist worksteal -m numerical

# Kills, damaged inputs, hostile names and faults, for MINUTES; `make campaign ONLY=names CASE=3` repeats one case.
MINUTES ?= 30
SEED ?= 0
campaign: $(STAMP) browser
	$(BIN)/python -m tools.campaigns --minutes $(MINUTES) --seed $(SEED) $(if $(ONLY),--only $(ONLY)) \
	  $(if $(CASE),--case $(CASE)) $(if $(OUT),--out $(OUT))

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The report page is tested in Chromium. Debian has it; elsewhere those tests are skipped and say so.
browser:
	@if command -v chromium >/dev/null && command -v chromedriver >/dev/null; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  echo "installing chromium for the tests of the report page"; \
	  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium chromium-driver; } >/dev/null \
	    || echo "chromium could not be installed: the tests of the report page will be skipped"; \
	else echo "no chromium and chromedriver found: the tests of the report page will be skipped"; fi

# Accessibility of the report page by axe-core, from npm; without it those tests are skipped and say so.
axe: $(STAMP) browser
	npm install --silent --no-save --prefix .axe axe-core@4
	$(BIN)/python -m pytest -q tests/report/test_page_axe.py

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "sptnet needs Python 3.11 or newer: make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $(STAMP)

clean:
	rm -rf $(VENV) .axe build src/sptnet.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
