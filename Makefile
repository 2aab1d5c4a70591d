# make bench: set everything up, run the ladder, print the table.   make test: set everything up, run all tests.
# make fuzz N=30000 SEED=0: check N random problems, starting at SEED.   make soak: run eight threads for ten minutes.
# make web: build the page in build/web, for any static host.
VENV := .venv
BIN := $(VENV)/bin
ARGS ?=
N ?= 500
SEED ?= 0
PROCESSES ?= 2
TOO_OLD := "make test needs Python 3.11 or newer, for Tint (wgpudawn): make clean test PYTHON=python3.12"

.PHONY: bench test lint unit fuzz soak web clean

bench: $(VENV)/bench tools/ensure-vulkan
	tools/ensure-vulkan $(BIN)/webmm
	$(BIN)/webmm bench $(ARGS)

test: $(VENV)/dev
	@$(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 11) and $(TOO_OLD))'
	tools/ensure-vulkan $(BIN)/webmm
	tools/ensure-naga
	tools/ensure-browser
	$(MAKE) lint
	PATH="$(CURDIR)/.tools/bin:$$PATH" $(BIN)/pytest -n $(PROCESSES) --dist loadfile $(ARGS)

lint: $(VENV)/dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	@if [ -d web/node_modules/prettier ]; then PATH="$(CURDIR)/.tools/bin:$$PATH" npm --prefix web run --silent lint; else echo "web/ was not linted; run tests/web/prepare first"; fi

unit: $(VENV)/dev
	$(BIN)/pytest tests/unit $(ARGS)

fuzz: $(VENV)/dev
	$(BIN)/python tests/fuzz/fuzz.py $(N) $(SEED)

soak: $(VENV)/dev
	$(BIN)/python tests/gpu/soak.py $(ARGS)

web: $(VENV)/bench
	$(BIN)/webmm bundle --force build/web

$(VENV)/bench: pyproject.toml tools/make-venv
	tools/make-venv $(VENV) plot
	touch $@

$(VENV)/dev: pyproject.toml tools/make-venv
	tools/make-venv $(VENV) plot,dev
	touch $@ $(VENV)/bench

clean:
	rm -rf $(VENV) .tools dist build
