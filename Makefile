# Sets up an environment once and runs graphcheck in it. On a bare machine with Python 3.11 or newer:
#
#   make matrix    run the default matrix      make matrix ARGS="--disable-fix metadata-refresh"
#   make test      run the test suite          make test ARGS="-k golden"
#   make golden    make the goldens again, by transformers (then: graphcheck golden diff, accept)
#   make probe     train the probe model again (then: make golden)
#   make lint      ruff and mypy
#
# All of them use .venv, made on first use. `PYTHON=/path/to/python make ...` uses that interpreter instead: it must
# have torch >= 2.11 already, which stays as it is. make reports any failure as 2; for graphcheck's own exit codes run
# `.venv/bin/graphcheck` itself.

.PHONY: matrix test golden probe lint setup
.DELETE_ON_ERROR:

PIP := -m pip install --quiet --disable-pip-version-check

ifeq ($(strip $(PYTHON)),)
RUN   := .venv/bin/python
READY := .venv/ready
CONSTRAINTS := constraints.txt
else
RUN   := $(or $(shell command -v "$(PYTHON)"),$(PYTHON))
STATE := build/env$(subst /,-,$(RUN))
READY := $(STATE)/ready
CONSTRAINTS := $(STATE)/constraints.txt
endif

matrix: $(READY)
	$(RUN) -m graphcheck run matrix $(ARGS)

test: $(READY)
	$(RUN) -m pytest $(ARGS)

golden: $(READY)
	$(RUN) -m graphcheck golden regen $(ARGS)

probe: $(READY)
	$(RUN) -m graphcheck.models.probe_train --out graphcheck/models/probe $(ARGS)

lint: $(READY)-lint
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy

setup: $(READY)

$(READY): pyproject.toml $(CONSTRAINTS)
	$(RUN) $(PIP) -c $(CONSTRAINTS) -e '.[test]'
	@touch $@

$(READY)-lint: $(READY)
	$(RUN) $(PIP) -c $(CONSTRAINTS) -e '.[test,dev]'
	@touch $@

ifeq ($(strip $(PYTHON)),)
$(READY): .venv/torch

# torch comes first and alone: with the pin in sight pip looks at no other build of it.
.venv/torch: constraints.txt
	@for python in python3 python3.14 python3.13 python3.12 python3.11; do \
		if $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
			echo "$$python -m venv .venv"; $$python -m venv .venv; exit; \
		fi; \
	done; echo "graphcheck needs Python 3.11 or newer and finds none; install it, or name it: PYTHON=/path make" >&2; exit 1
	$(RUN) $(PIP) -c constraints.txt torch
	@touch $@
else
# The given interpreter keeps its torch: the pin is left out and the version that is there takes its place.
$(CONSTRAINTS): constraints.txt
	@mkdir -p $(@D)
	@grep -v '^torch==' constraints.txt > $@
	@$(RUN) -c 'import sys; from importlib.metadata import version; torch = version("torch"); print(f"torch=={torch}"); \
		sys.exit(sys.version_info < (3, 11) or [int(part) for part in torch.split(".")[:2]] < [2, 11])' >> $@ 2>/dev/null \
	|| { echo "$(RUN) is no Python 3.11+ with torch 2.11+; install torch there, or run make without PYTHON" >&2; exit 1; }
endif
