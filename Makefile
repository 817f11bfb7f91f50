# Works on a machine that has only Python 3.11 or 3.12, pip and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Pinned, and installed first, so that nothing else picks another build. Where the index offers several,
# name the one for CPUs: nothing here needs a GPU.
TORCH ?= torch==2.13.0

# Four processes keep two cores busy while some of them wait; threads of libraries would be in their way. The
# order is ours: files with slow tests first, and not those with many.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 4 --dist loadgroup --no-loadscope-reorder

# Else each of the many processes that tests start would compile all modules anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: install demo pictures test test-all test-cluster lint reader clean

install: $(VENV)/installed

$(VENV)/installed: pyproject.toml benchmarks/pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(0 if (3, 11) <= v <= (3, 12) else f"groundwatch needs Python 3.11 or 3.12 here, and $(PYTHON) is {v[0]}.{v[1]}: make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet $(TORCH)
	$(BIN)/python -m pip install --quiet $(TORCH) --editable '.[dev]' --editable ./benchmarks
	@touch $@

demo: install
	@$(BIN)/groundwatch demo

# Those of the docs, of the demo's own pages.
pictures: install
	$(BIN)/python -m tools.pictures

test: install lint
	$(PYTEST) -m 'not slow'

test-all: install lint
	$(PYTEST)

# In a cluster of kind's, which needs Docker, kubectl and helm; elsewhere it is skipped, and says why.
test-cluster: install
	DEPLOY_TESTS=1 $(BIN)/python -m pytest tests/deploy/test_cluster.py

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	cd benchmarks && ../$(BIN)/lint-imports

# One to two hours on two idle cores; stopped, it goes on from its last epoch. ANNOTATION is FaithScore's
# annotation file, whose labels say which sub-sentences are descriptive.
reader: install
	$(BIN)/python -m tools.reader $(if $(ANNOTATION),--annotation $(ANNOTATION))

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .groundwatch
