# Two commands: `make run` and `make test`. Both set up .venv on first use.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# On a machine with a GPU one process at a time has its memory: make test PYTEST_ARGS=
PYTEST_ARGS ?= -n 2 --dist loadgroup
READY := $(VENV)/.ready
CLANG_FILES = $(shell find csrc tests -name '*.cu' -o -name '*.cuh' -o -name '*.cpp' -o -name '*.h')

.PHONY: run test lint format readme clean

run: $(READY)  ## the tool on its first op
	$(BIN)/python -m runner op=gelu variant=all

test: $(READY) lint  ## lint and all tests
	$(BIN)/python -m pytest $(PYTEST_ARGS)

lint: $(READY)
	$(BIN)/ruff check runner kernels tests
	$(BIN)/ruff format --check runner kernels tests
	$(BIN)/clang-format --dry-run --Werror $(CLANG_FILES)

format: $(READY)
	$(BIN)/ruff check --fix runner kernels tests
	$(BIN)/ruff format runner kernels tests
	$(BIN)/clang-format -i $(CLANG_FILES)

# The lock pins every package but triton, which torch pins itself where it needs one.
$(READY): requirements.lock pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --requirement requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	touch $(READY)

readme: $(READY)  ## the tables of README.md and METHODOLOGY.md, and all published reports, from outputs/published
	$(BIN)/python -m tests.test_readme

clean:
	rm -rf $(VENV) *.egg-info
