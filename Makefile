# Everything a person or CI does with this repository, by name. `make` alone prints the list.
PYTHON ?= python3
VENV := .venv/bin
PYTEST := $(VENV)/python -m pytest
# CI runners and laptops alike have at least two cores, and tests wait a good part of their time: one worker more than
# there are cores keeps these busy (150 s instead of 187 for the fast ones).
JOBS ?= 3
SIDE_BY_SIDE ?= 3

# Where a shell says that nobody shall write bytecode, each of the hundreds of processes of a suite would compile all anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := list
.PHONY: list setup demo test check integration alone bench quality fuzz chaos docs clean

list: ## print these lines
	@echo "make TARGET [PYTHON=python3.12] [JOBS=3] [SIDE_BY_SIDE=3]"; echo
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /\1\t/' | awk -F'\t' '{printf "  %-12s %s\n", $$1, $$2}'

setup: ## make .venv with torch and the eight packages (quick when it stands)
	@$(PYTHON) tools/setup.py

demo: setup ## train a real model on two uneven ranks of this box, then say what happened
	@$(VENV)/python -m tools.demo

test: setup ## the fast tests of every package and tool
	$(PYTEST) packages tools -n $(JOBS) --dist worksteal

check: setup ## ruff, mypy --strict, the rules of the house, links and quoted help texts
	$(VENV)/ruff check .
	$(VENV)/mypy
	$(VENV)/python -m tools.check
	$(VENV)/python -m tools.pages

integration: setup ## the installed executables together, on several hosts (root and iproute2 for those)
	$(PYTEST) integration -n $(SIDE_BY_SIDE) --dist loadfile

alone: setup ## each package by itself with flodl-wire and nothing else (tox)
	$(VENV)/tox run -q

bench: setup ## measure against torchrun, gloo and a bare interpreter; tables, and rows in build/bench/
	$(VENV)/python -m tools.bench.run $(ONLY)

quality: setup ## every mode, wire type and outer optimizer against one rank alone, over five seeds; writes docs/quality.md
	$(VENV)/python -m tools.quality

fuzz: setup ## a million mutated inputs for the codec, 20,000 strangers for a live port
	$(VENV)/python -m tools.fuzz

chaos: setup ## 200 runs with something terrible at a random moment, and what became of them (root for disks and cables)
	$(VENV)/python -m tools.chaos $(ARGS)

docs: setup ## write the help texts into the pages as --help prints them, and check the links
	$(VENV)/python -m tools.pages --write

clean: ## remove what this file made, .venv too
	rm -rf .venv .tox build .mypy_cache .ruff_cache .pytest_cache .hypothesis
