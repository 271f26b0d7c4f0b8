# make demo: see an edit in a minute.  make test: what every change has to pass.  make test-slow: fidelity and real models.
# make test-clients: real clients from npm against a running server.  make soak: load, mutated frames, thousands of turns.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test test-slow test-clients soak lint format clean

$(STAMP): pyproject.toml setup.py $(wildcard vivace/engine/native/src/*) vivace/engine/native/vivace_native.h
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@

demo: $(STAMP)
	@$(BIN)/vivace models pull coder-0.5b
	@rm -rf build/demo && mkdir -p build && cp -r examples/demo build/demo
	@cd build/demo && echo && echo '$$ vivace edit inventory.py "Rename the method total_price to total_cost everywhere."' \
	  && ../../$(BIN)/vivace edit --yes inventory.py "Rename the method total_price to total_cost everywhere."

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: lint
	$(BIN)/python -m pytest --durations=10

test-slow: $(STAMP)
	$(BIN)/python -m pytest -m slow --durations=10

test-clients: $(STAMP)
	sh tests/clients/setup.sh
	$(BIN)/python -m pytest -m clients --durations=10 tests/clients

# SOAK_SECONDS: how long the load lasts; 600 for the full run.
soak: $(STAMP)
	SOAK_SECONDS=$(or $(SOAK_SECONDS),120) $(BIN)/python -m pytest -m soak --durations=10 tests/soak

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) build *.egg-info
	find vivace -name '*.so' -delete
