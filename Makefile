# Every target sets up .venv by itself, once; afterwards none of them needs the network.
#   make test ARGS="-k claim -x"      passes arguments on
#   make test PYTHON=python3.13       chooses the Python that a new .venv is made from
#   make soak MINUTES=20 SEED=7 DATABASE=postgres

PYTHON   ?= python3
ARGS     ?=
MINUTES  ?= 2
SEED     ?= 1
DATABASE ?= both
VENV     := .venv
PY       := $(VENV)/bin/python
READY    := $(VENV)/.ready
DOCS     := $(VENV)/.ready-docs

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test check bench docs matrix mutants picture soak clean

help: ## Say what can be made
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-7s %s\n", $$1, $$2 }' Makefile

demo: $(READY) ## Show what it does, in a minute
	@$(PY) -m penstock demo $(ARGS)

test: $(READY) ## Run the tests on SQLite and PostgreSQL (ARGS goes to pytest)
	@$(PY) -m tests $(ARGS)

# A cache that root left behind stops a plain user's run, so mypy has one for each user (and none
# in a checkout that cannot be written to); the others take a second and need none.
check: MYPY_CACHE := $(shell if test -w .; then echo .mypy_cache.$$(id -u); else echo /dev/null; fi)
check: $(READY) ## Lint, check the format, the types and the layers
	$(PY) -m ruff check --no-cache .
	$(PY) -m ruff format --no-cache --check .
	$(PY) -m mypy --cache-dir=$(MYPY_CACHE)
	$(PY) -c 'from importlinter.cli import lint_imports_command; lint_imports_command()' --no-cache

bench: $(READY) ## Measure beside other systems, up to 40 minutes (ARGS=--quick: five to eight minutes)
	@$(PY) -m benchmarks $(ARGS)

docs: $(DOCS) ## Build the documentation into build/site; any warning stops it
	@NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict
	@echo "The start page is build/site/index.html; for the search: $(PY) -m http.server -d build/site"

picture: $(READY) ## Record the demo anew, as docs/assets/demo.svg
	@$(PY) docs/site/picture.py docs/assets/demo.svg

matrix: $(READY) ## Run the matrix of faults and write its table (ARGS goes to pytest)
	@$(PY) -m tests.faults $(ARGS)

mutants: $(READY) ## Take each protection out, and see that a test notices (ARGS: part of a name)
	@$(PY) -m tests.mutants $(ARGS)

soak: $(READY) ## Random work with random faults, then an audit (MINUTES, SEED, DATABASE)
	@$(PY) -m tests.soak --minutes $(MINUTES) --seed $(SEED) --database $(DATABASE)

clean: ## Remove everything that can be made again
	rm -rf $(VENV) build dist .hypothesis .import_linter_cache .mypy_cache* .pytest_cache .ruff_cache
	find src tests -type d -name __pycache__ -prune -exec rm -rf {} +

# The stamp holds the directory it was made in: a checkout that was moved or copied with its .venv
# would otherwise go on importing the package from the old place.
ifneq ($(shell cat $(READY) 2>/dev/null),$(CURDIR))
.PHONY: $(READY)
endif

# hatchling goes first and the build is not isolated, so that installing again, after an edit of
# pyproject.toml that brings no new dependency, works without a network.
$(READY): pyproject.toml
	@command -v "$(PYTHON)" >/dev/null || { \
	    echo "There is no '$(PYTHON)' here. Install Python 3.11 or newer, or name one: make PYTHON=python3.12" >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	    echo "Penstock needs Python 3.11 or newer, and '$(PYTHON)' is $$("$(PYTHON)" --version 2>&1). Name a newer one: make PYTHON=python3.12" >&2; exit 1; }
	@"$(PYTHON)" -c 'import ensurepip, venv' 2>/dev/null || { \
	    echo "'$(PYTHON)' cannot make virtual environments: its venv or ensurepip module is missing. On Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	@"$(PY)" -m pip --version >/dev/null 2>&1 || "$(PYTHON)" -m venv --clear $(VENV)
	@echo "Setting up $(VENV) (once, a minute or so) ..."
	@"$(PY)" -m pip install --quiet --disable-pip-version-check 'hatchling>=1.27'
	@"$(PY)" -m pip install --quiet --disable-pip-version-check --no-build-isolation --editable '.[dev]'
	@"$(PY)" -m compileall -q src >/dev/null || true  # for a quick start; not everywhere may it write
	@pwd -P > $@

$(DOCS): $(READY)
	@echo "Adding what builds the documentation to $(VENV) (once) ..."
	@"$(PY)" -m pip install --quiet --disable-pip-version-check --no-build-isolation --editable '.[docs]'
	@touch $@
