# make bench: set everything up, run the ladder, print the table.   make test: set everything up, lint, validate all
# shaders, run all tests.
# make quick: lint, the unit tests, and each op and call once.   make test-long: soak, fuzz, faults and tiles, in parts;
# ARGS="--parts soak tiles", ARGS="--continue", ARGS="--seed 7".
# make fuzz N=30000 SEED=0: check N random problems, starting at SEED; ARGS="--steps 100000": sequences of calls instead,
# ARGS="--kills 500": calls on files, whose processes are killed.   make soak: run eight threads for ten minutes.
# make web: build the page in build/web, for any static host.   make npm: build the npm package in build/npm.
# make docs: build the documentation in build/site.
VENV := .venv
BIN := $(VENV)/bin
ARGS ?=
N ?= 500
SEED ?= 0
PROCESSES ?= 2
TOO_OLD := "the tests need Python 3.11 or newer, for Tint (wgpudawn): make clean test PYTHON=python3.12"

.PHONY: bench test quick test-long ready lint unit fuzz soak web npm docs clean

bench: $(VENV)/bench tools/ensure-vulkan
	tools/ensure-vulkan $(BIN)/webmm
	$(BIN)/webmm bench $(ARGS)

test: ready
	$(MAKE) lint docs
	PATH="$(CURDIR)/.tools/bin:$$PATH" $(BIN)/webmm check
	PATH="$(CURDIR)/.tools/bin:$$PATH" $(BIN)/pytest -n $(PROCESSES) --dist loadfile --no-loadscope-reorder $(ARGS)

quick: $(VENV)/dev
	tools/ensure-vulkan $(BIN)/webmm
	$(MAKE) lint
	PATH="$(CURDIR)/.tools/bin:$$PATH" $(BIN)/pytest -n $(PROCESSES) --dist loadfile tests/unit tests/fuzz/test_smoke.py $(ARGS)

test-long: ready
	PATH="$(CURDIR)/.tools/bin:$$PATH" $(BIN)/python tests/long.py $(ARGS)

ready: $(VENV)/dev
	@$(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 11) and $(TOO_OLD))'
	tools/ensure-vulkan $(BIN)/webmm
	tools/ensure-naga
	tools/ensure-browser
	tools/ensure-display

lint: $(VENV)/dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m webmm.page.core
	@if [ -d web/node_modules/prettier ]; then PATH="$(CURDIR)/.tools/bin:$$PATH" npm --prefix web run --silent lint; else echo "web/ was not linted; run tests/web/prepare first"; fi

unit: $(VENV)/dev
	$(BIN)/pytest tests/unit $(ARGS)

fuzz: $(VENV)/dev
	$(BIN)/python tests/fuzz/fuzz.py $(N) --seed $(SEED) $(ARGS)

soak: $(VENV)/dev
	$(BIN)/python tests/gpu/soak.py $(ARGS)

web: $(VENV)/bench
	$(BIN)/webmm bundle --force build/web

npm: $(VENV)/bench web/node_modules/.package-lock.json
	$(BIN)/webmm bundle --npm --force build/npm
	PATH="$(CURDIR)/.tools/bin:$$PATH" npm --prefix web run --silent declarations
	@echo "build/npm has TypeScript's declarations, too"

web/node_modules/.package-lock.json: web/package-lock.json
	tools/ensure-node
	PATH="$(CURDIR)/.tools/bin:$$PATH" npm --prefix web ci --ignore-scripts --no-audit --no-fund
	touch $@

docs: $(VENV)/dev
	tools/ensure-node
	PATH="$(CURDIR)/.tools/bin:$$PATH" tools/site/build $(BIN)

$(VENV)/bench: pyproject.toml tools/make-venv
	tools/make-venv $(VENV) plot
	touch $@

$(VENV)/dev: pyproject.toml tools/make-venv
	tools/make-venv $(VENV) plot,dev
	touch $@ $(VENV)/bench

clean:
	rm -rf $(VENV) .tools dist build
