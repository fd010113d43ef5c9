# `make sim` and `make test` need Python >= 3.10 with venv, make and nothing else: each installs
# what it needs into .venv first. Any Python can be named: `make sim PYTHON=python3.12`.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
export PIP_NO_WARN_SCRIPT_LOCATION = 1

SIM := --model examples/digits/weights.npz --image examples/digits/images/digit_7.png

BOARD ?= ulx3s-85f

.PHONY: help setup sim test test-all lint format synth synth-check fuzz bench train clean

help: ## List the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	    { echo "Python 3.10 or newer is needed; name one with PYTHON=..." >&2; exit 2; }
	@$(PYTHON) -m venv $(VENV) || \
	    { echo "$(PYTHON) has no venv: install it (Debian: python3-venv)" >&2; exit 2; }

$(VENV)/.core: pyproject.toml | $(BIN)/python
	@echo "Installing Trirow into $(VENV) ..."
	@$(PIP) -e . && touch $@

$(VENV)/.test: pyproject.toml | $(BIN)/python
	@echo "Installing Trirow and what its tests need into $(VENV) ..."
	@$(PIP) -e '.[test]' && touch $@ $(VENV)/.core

$(VENV)/.lint: pyproject.toml | $(BIN)/python
	@$(PIP) -e '.[lint]' && touch $@ $(VENV)/.core

$(VENV)/.synth: pyproject.toml | $(BIN)/python
	@$(PIP) -e '.[synth]' && touch $@ $(VENV)/.core

setup: | $(BIN)/python ## Make .venv with everything needed to develop
	@$(PIP) --upgrade pip
	@$(PIP) -e '.[test,lint,synth,train]'
	@touch $(VENV)/.core $(VENV)/.test $(VENV)/.lint $(VENV)/.synth

sim: $(VENV)/.core ## Run the digits network on the simulated accelerator and compare
	@$(BIN)/trirow sim $(SIM)

test: $(VENV)/.test ## Run the tests that take less than a minute each
	@$(BIN)/python -m pytest -q -n 2 -m "not slow"

test-all: $(VENV)/.test ## Run all tests
	@$(BIN)/python -m pytest -q -n 2

lint: $(VENV)/.lint ## Check style (ruff) and types (mypy)
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy

format: $(VENV)/.lint ## Format the sources
	@$(BIN)/ruff format
	@$(BIN)/ruff check --fix

fuzz: $(VENV)/.test ## Run random layers in the compiled engine: SECONDS=600 SEED=1
	@$(BIN)/python tests/fuzz.py --seconds $(or $(SECONDS),60) --seed $(or $(SEED),1)

bench: $(VENV)/.core ## Measure the layers of docs/performance.md
	@$(BIN)/python tests/bench_layers.py

synth: $(VENV)/.synth ## Make the bitstream of a board: BOARD=ulx3s-85f
	@$(BIN)/trirow synth $(BOARD)

synth-check: $(VENV)/.synth ## Synthesise for ECP5: resources against limits, and the datapath's Fmax
	@$(BIN)/python -m trirow_hw.synthesis.check build/synth

train: $(VENV)/.core ## Train the digits network anew
	@$(PIP) -e '.[train]'
	@$(BIN)/python examples/digits/train.py

clean: ## Remove what was built, but not .venv
	@rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache
