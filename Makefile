# Few targets, and each does all of its own set-up. `make` alone lists them.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: help demo test test-user check bench soak verify-long measures fuzz asan clean lint system peers fuzzers

# What a user may set: make demo DEMO_ARGS="--seed 7", make test PYTEST_ARGS="-x", make soak SOAK_S=60,
# make fuzz FUZZ_S=3600
DEMO_ARGS ?=
PYTEST_ARGS ?=
SOAK_S ?= 600
SOAK_CYCLES ?= 100000
FUZZ_S ?= 300
REPEATS ?= 5

PY := .venv/bin/python
# Part of the stamp's name is a checksum of the directory, because an environment does not survive
# being moved, and of the modules' names, because an editable install knows only the modules that
# there were when it was made.
INSTALLED := .venv/.installed-$(firstword $(shell (pwd; find src -name '*.py' | sort) | cksum))
BUILD_INPUTS := pyproject.toml scripts/setup-venv $(shell find native -type f)

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-11s %s\n", $$1, $$2}' Makefile

demo: $(INSTALLED)  ## watch a model get better at repairing code (about 12 minutes)
	.venv/bin/tiltyard demo $(DEMO_ARGS)

test: peers fuzzers $(INSTALLED) lint  ## run every check and every test, and the quick ones of the sandbox as an ordinary user too
	$(PY) scripts/test_all.py $(PYTEST_ARGS)

test-user: $(INSTALLED)  ## every sandbox test, the slow ones too, as an ordinary user
	scripts/test-as-user $(PYTEST_ARGS)

check: $(INSTALLED) lint  ## lint, types, contracts and the fast tests
	$(PY) -m pytest -m "not slow" $(PYTEST_ARGS)

bench: peers $(INSTALLED)  ## measure against other systems; writes bench/results.json
	$(PY) bench

soak: peers $(INSTALLED)  ## crash for SOAK_S seconds, then make and destroy SOAK_CYCLES sandboxes
	$(PY) -m pytest -m soak --soak-s $(SOAK_S) --soak-cycles $(SOAK_CYCLES) --timeout 0 -rP $(PYTEST_ARGS)

verify-long: $(INSTALLED)  ## every cheat on every suite, all of HumanEval and all samples of a model (about 5 minutes)
	$(PY) -m pytest tests/verify tests/cli tests/bench tests/native -m long $(PYTEST_ARGS)

measures: $(INSTALLED)  ## measure how well growth and leaks are told, over all their programs REPEATS times
	$(PY) -m pytest tests/verify -m collection --verify-repeats $(REPEATS) --timeout 0 -rP $(PYTEST_ARGS)

fuzz: fuzzers $(INSTALLED)  ## fuzz the C programs for FUZZ_S seconds each; keeps its inputs in build/fuzz
	cd tests && ../$(PY) -m native.seeds ../build/fuzz/seeds
	$(PY) scripts/fuzz.py --seconds $(FUZZ_S) --inputs build/fuzz/seeds

# The sanitized programs are installed beside the others, and found first by Python's own path.
asan: $(INSTALLED)  ## run the sandbox tests with the C programs under AddressSanitizer
	rm -rf build/asan
	$(PY) -m pip install --quiet --disable-pip-version-check --no-deps --target build/asan \
	  -C cmake.define.TILTYARD_SANITIZE=ON -C build-dir=build/asan-cmake .
	PYTHONPATH=build/asan $(PY) -m pytest tests/sandbox tests/native/test_frames.py $(PYTEST_ARGS)

clean:  ## remove the environment, the build and the caches; keeps runs/
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find src tests bench -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true

lint: $(INSTALLED)
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	$(PY) -m mypy
	.venv/bin/lint-imports

system:
	@scripts/setup-system

peers:
	@scripts/setup-system --peers

fuzzers:
	@scripts/setup-system --fuzz

$(INSTALLED): $(BUILD_INPUTS) | system
	@rm -f .venv/.installed-*
	@scripts/setup-venv $@
