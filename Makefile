# make run    sets everything up in .venv and prints how one token's context is computed
# make test   sets everything up and runs all quick checks
# make slow   the long checks too; with the data of GLASSFORMER_DATA, or ../shared/data where that exists

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
TEXT ?= 고양이가 생선을 먹었다
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet -c constraints.txt

# pip says nothing for as long as it works.
define INSTALLING
@echo "Installing PyTorch and what else is needed into $(VENV): once, up to several GB, some minutes ..."
@echo "PyTorch 등 필요한 패키지를 $(VENV) 폴더에 설치합니다. 처음 한 번만 하며, 몇 GB까지 받을 수 있고 몇 분 걸립니다 ..."
endef

.PHONY: run test slow lint clean

# The sentence reaches the command through the environment, exactly: neither make nor the shell reads its $, " or `.
run: export GLASSFORMER_TEXT := $(value TEXT)
run: $(VENV)/installed
	@$(BIN)/glassformer trace -- "$$GLASSFORMER_TEXT"

test: lint
	$(BIN)/python -m pytest -n 2 -m "not slow"

slow: lint
	$(BIN)/python -m pytest -m slow

lint: $(VENV)/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/installed: $(BIN)/python pyproject.toml constraints.txt
	$(INSTALLING)
	$(PIP) -e .
	touch $@

$(VENV)/installed-dev: $(BIN)/python pyproject.toml constraints.txt
	$(INSTALLING)
	$(PIP) -e ".[dev]"
	touch $@ $(VENV)/installed

clean:
	rm -rf $(VENV) out build dist
