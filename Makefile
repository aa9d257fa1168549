# `make test` and `make demo` need Python 3.11 or newer and nothing else.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

.PHONY: setup test demo docs lint types format mutants attack clean

setup: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("friendly-sam needs Python 3.11 or newer" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt "pip>=25.1" hatchling editables
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --no-build-isolation --editable ".[lab,hf,lightning,pretrained,cluster,tune,wandb,mlflow]" --group dev
	touch $@

test: setup lint types
	$(BIN)/python -m pytest -n 2

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	$(BIN)/mypy

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

demo: setup
	$(BIN)/fsam demo

docs: $(VENV)/.docs-installed
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
	@echo "The documentation is in site/index.html"

$(VENV)/.docs-installed: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --group docs
	touch $@

mutants: setup
	$(BIN)/python tests/break_promises.py
	PYTHONPATH=tests OMP_NUM_THREADS=1 $(BIN)/python tests/lab/break_remedies.py

# A fork copies the table of pages: with large ones it takes a third of the time.
LARGE_PAGES = PYTHONMALLOC=malloc GLIBC_TUNABLES=glibc.malloc.hugetlb=1

attack: setup
	cd tests && OMP_NUM_THREADS=1 ../$(BIN)/python attack.py
	cd tests/lab && OMP_NUM_THREADS=1 ../../$(BIN)/python kills.py
	cd tests/lab && OMP_NUM_THREADS=1 $(LARGE_PAGES) ../../$(BIN)/python hostile.py

clean:
	rm -rf $(VENV) dist site .mypy_cache .ruff_cache .pytest_cache .hypothesis
