# make run    sets everything up in .venv, prints how one token's context is computed, and opens the page of that run
#             (Ctrl-C ends it; without a terminal it only prints)
# make test   sets everything up and runs all quick checks; those of the page where there is a browser
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

define PAGE_BUILDING
@echo "Building the explorer's page (Node.js and npm; where there is no Node.js, that of a Python package) ..."
@echo "탐색기 화면을 만듭니다 (Node.js와 npm 사용. Node.js가 없으면 파이썬 패키지의 것을 받아 씁니다) ..."
endef

.PHONY: run test slow lint page page-again clean

# The sentence reaches the command through the environment, exactly: neither make nor the shell reads its $, " or `.
run: export GLASSFORMER_TEXT := $(value TEXT)
run: page
	@if [ -t 1 ]; then serve=--serve; else serve=--no-serve; fi; $(BIN)/glassformer explore $$serve -- "$$GLASSFORMER_TEXT"

# What the tests start anew is compiled once, also where the surroundings say otherwise.
test slow: export PYTHONDONTWRITEBYTECODE =

test: lint
	@$(BIN)/python tests/ui/browsers.py || true
	$(BIN)/python -m pytest -n 2 -m "not slow"

slow: lint
	@$(BIN)/python tests/ui/browsers.py || true
	$(BIN)/python -m pytest -m slow

# The page is built by the installation, and again where its sources changed since. Without it everything else works:
# what went wrong is said, and the next call tries again.
page: $(VENV)/installed
	@$(BIN)/python ui/page_build.py --check >/dev/null || $(MAKE) --no-print-directory page-again

page-again:
	$(PAGE_BUILDING)
	@$(PIP) --no-deps -e . || true
	@$(BIN)/python ui/page_build.py --check || true

lint: $(VENV)/installed-dev page
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/installed: $(BIN)/python pyproject.toml constraints.txt
	$(INSTALLING)
	$(PAGE_BUILDING)
	$(PIP) -e .
	touch $@

$(VENV)/installed-dev: $(BIN)/python pyproject.toml constraints.txt
	$(INSTALLING)
	$(PAGE_BUILDING)
	$(PIP) -e ".[dev]"
	touch $@ $(VENV)/installed

clean:
	rm -rf $(VENV) out build dist
