# `make help` lists the targets.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
PINS := $(VENV)/.installed
STAMP := $(VENV)/.editable
DOCS := $(VENV)/.docs
RAY := $(VENV)/.ray
TYPES := .venv-types/.installed
INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-compile
BUILT := build/docs/.built
# What the pages are made of; the folders too, for a file that has gone.
PAGES := $(shell find docs/ results/ tutorials/ tff_ssl/ 2>/dev/null \
  -name __pycache__ -prune -o -print) .github/SECURITY.md CHANGELOG.md CITATION.cff
RUN_DIR ?= runs/first_run
# What it has already is not done again.
CHAOS ?= build/chaos.csv
# Processes of tests: one per core, but 2 to 6, since each takes about 2 GB.
JOBS ?= $(shell n=$$(getconf _NPROCESSORS_ONLN); echo $$((n < 2 ? 2 : n > 6 ? 6 : n)))
PYTEST = $(BIN)/python -m pytest -n $(JOBS) --dist=loadgroup --no-loadscope-reorder
# NAMES=grouping,easgd and SHARD=1/2 narrow a further target down.
FURTHER = $(PYTEST) --tier=$(@:test-%=%) $(NAMES:%=--names=%) $(SHARD:%=--shard=%)

.DEFAULT_GOAL := help
.PHONY: help env gpu ray run test test-all test-contract test-runs test-parts \
  test-tables test-cases test-ray test-notebooks chaos check docs pins wheel clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 16

env: $(STAMP) ## build .venv from requirements/runtime.txt, and make tff_ssl importable

# --no-deps: the pinned file is the whole set, and TFF's own metadata asks for a
# jaxlib that the registry no longer holds (docs/how_to/install.md).
$(PINS): requirements/runtime.txt
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info[:2] == (3, 11) else 1)' 2>/dev/null || { \
	  echo "tff_ssl needs Python 3.11 (TensorFlow Federated 0.87 has no wheel for newer ones): install it, or name it with 'make $(MAKECMDGOALS) PYTHON=/path/to/python3.11'." >&2; exit 1; }
	@echo "Building $(VENV) (a few minutes, once) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(INSTALL) -r requirements/runtime.txt
# On all cores, which pip does not do, and without the packages' own tests; some
# packages hold templates that are no Python.
	@$(BIN)/python -m compileall -qq -j 0 -x '/tests?/' $(VENV)/lib || true
	@touch $(PINS)

# `import tff_ssl` from any folder. It takes seconds and needs no network; the
# source files stay where they are, so only another setup.py makes it necessary.
$(STAMP): $(PINS) setup.py pyproject.toml
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --config-settings editable_mode=compat -e .
	@touch $(STAMP)

$(RAY): $(PINS) requirements/ray.txt
	@$(INSTALL) -r requirements/ray.txt
	@touch $(RAY)

gpu: $(STAMP) ## add the CUDA libraries of TensorFlow to .venv (2 GB)
	@$(INSTALL) -r requirements/gpu.txt

ray: $(STAMP) $(RAY) ## add Ray to .venv, for runs on several machines (--cluster)

# A run that fails, and was not stopped (by Ctrl-C, SIGTERM or a closed pipe),
# may do so for what the machine lacks.
run: $(STAMP) ## grouping on the embedded digits: first run, no download
	@$(BIN)/python -m experiments.run --process=grouping --dataset=digits --run_dir=$(RUN_DIR) || { \
	  code=$$?; \
	  case $$code in 130|141|143) ;; *) \
	    echo "The run has failed. Is it this machine? (python -m tff_ssl.doctor)" >&2; \
	    $(BIN)/python -m tff_ssl.doctor >&2;; \
	  esac; \
	  exit $$code; }

test: $(STAMP) ## the tests that each change pays for (tests/README.md)
	@$(PYTEST) --tier=test

test-all: test test-contract test-runs test-parts test-tables test-cases test-ray test-notebooks wheel ## all tests

test-contract: $(STAMP) ## the whole contract suite; of some processes with NAMES=grouping,easgd
	@$(FURTHER)

test-runs: $(STAMP) ## whole runs and commands
	@$(FURTHER)

test-parts: $(STAMP) ## matrices and enumerations of single parts
	@$(FURTHER)

test-tables: $(STAMP) ## every row of every recipe table
	@$(FURTHER)

test-cases: $(STAMP) ## TFF's own test cases with our builders
	@$(FURTHER)

test-ray: $(STAMP) $(RAY) ## runs on a cluster; installs Ray
	@$(FURTHER)

test-notebooks: $(STAMP) $(DOCS) ## tutorials and examples, executed
	@$(FURTHER)

# The second command adds to the rows of the first.
chaos: $(STAMP) $(RAY) ## kill runs at each file operation and at random, on a cluster, too, let their disks fail (hours)
	@$(BIN)/python -m benchmarks.chaos --kills=50 --write=$(CHAOS)
	@$(BIN)/python -m benchmarks.chaos --only=cluster --signals=3 --write=$(CHAOS)

# mypy wants newer packages than TFF allows.
$(TYPES): requirements/types.txt
	@$(PYTHON) -m venv .venv-types
	@.venv-types/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r requirements/types.txt
	@touch $(TYPES)

check: $(STAMP) $(TYPES) ## lint, format (ruff) and types (mypy); CI runs it before the tests
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@.venv-types/bin/mypy

$(DOCS): $(PINS) requirements/docs.txt
	@$(INSTALL) -r requirements/docs.txt
	@touch $(DOCS)

docs: $(BUILT) ## build the documentation into build/docs; a warning is an error
	@echo "Open build/docs/index.html."

# After a warning all pages are read anew: Sphinx warns about a page only when
# it reads the page, so the next build would pass.
$(BUILT): $(STAMP) $(DOCS) $(PAGES)
	@TF_CPP_MIN_LOG_LEVEL=3 $(BIN)/python -m sphinx -W --keep-going -q -b html docs build/docs || { \
	  rm -f build/docs/.doctrees/environment.pickle; exit 1; }
	@touch $(BUILT)

pins: $(STAMP) ## make requirements/*.txt anew from requirements/*.in
	@$(PYTHON) -m venv build/uv && build/uv/bin/pip install --quiet uv
	@build/uv/bin/uv pip compile --quiet --upgrade --python-version 3.11 \
	  --override requirements/overrides.txt --no-annotate \
	  --custom-compile-command 'make pins' \
	  -o requirements/runtime.txt requirements/runtime.in
	@build/uv/bin/uv pip compile --quiet --upgrade --python-version 3.11 \
	  --no-annotate --custom-compile-command 'make pins' \
	  -o requirements/types.txt requirements/types.in
# These are installed over requirements/runtime.txt, of which they change nothing.
	@for file in notebooks docs ray; do \
	  build/uv/bin/uv pip compile --quiet --upgrade --python-version 3.11 \
	    --constraints requirements/runtime.txt --no-annotate \
	    --custom-compile-command 'make pins' \
	    -o requirements/$$file.txt requirements/$$file.in || exit 1; done

# Away from the checkout (-I), as docs/how_to/install.md says; the program is README's.
wheel: $(STAMP) ## build the wheel with its pins; install and try both in a bare environment
	@rm -rf build/wheel && mkdir -p build/wheel
	@$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation -w build/wheel .
	@cp requirements/runtime.txt build/wheel
	@sed -n '/^```python$$/,/^```$$/{/^```/!p}' README.md > build/wheel/program.py
	@$(PYTHON) -m venv build/wheel/env
	@cd build/wheel && \
	  env/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r runtime.txt tff_ssl-*.whl && \
	  env/bin/python -I -c 'import tff_ssl; print("imported", tff_ssl.__version__, "from", tff_ssl.__file__)' && \
	  env/bin/python -I -m tff_ssl.doctor && \
	  TF_CPP_MIN_LOG_LEVEL=3 env/bin/python -I program.py

clean: ## remove the environment and what was built
	@rm -rf $(VENV) .venv-types build dist
