# make demo    install into .venv, rescore the shipped dumps, write build/demo/ with a report
# make test    install what the tests need, test the built wheel, check an editable install built for this processor
# make develop editable install for working on the sources

PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin
PIP := $(RUN)/python -m pip --disable-pip-version-check -q
DEMO := data/demo
SOURCES := pyproject.toml CMakeLists.txt constraints.txt $(shell find lattice lm decode -type f -not -name '*.pyc')

# What could differ in an editable install, and what the native core computes.
EDITABLE := test_package.py test_readme.py rescoring/test_rescorer.py
NATIVE := $(addprefix rescoring/test_,best_paths.py best_tree.py normalised.py open_tree.py core_hostile.py) lm/test_ngram.py bench/test_openfst.py
PYTEST := OMP_NUM_THREADS=1 $(RUN)/python -m pytest -q -n $(WORKERS)
WORKERS ?= $(shell nproc 2>/dev/null || sysctl -n hw.ncpu)

.PHONY: demo test develop check clean
.DELETE_ON_ERROR:

$(VENV)/created:
	@$(PYTHON) tools/check/python.py
	$(PYTHON) -m venv $(VENV)
	touch $@

$(VENV)/installed: $(VENV)/created $(SOURCES)
	$(PIP) install --no-warn-script-location -c constraints.txt ".[report]"
	touch $@

demo: $(VENV)/installed
	@mkdir -p build/demo
	$(RUN)/rescore run $(DEMO)/forced $(DEMO)/sampled --lm $(DEMO)/demo.ngram \
	    --json build/demo/run.json --drafts build/demo/drafts.parquet
	$(RUN)/rescore draw $(DEMO)/sampled --lm $(DEMO)/demo.ngram --best 6 -o build/demo
	$(RUN)/rescore report $(DEMO)/forced --lm $(DEMO)/demo.ngram -o build/demo/report.html
	@echo "build/demo/: report.html, run.json, drafts.parquet and the pictures named above"

# The whole suite against the wheel, which runs on any processor of a kind; then what could differ in an editable install, and
# with a core for this processor alone. pytest exits 5 when it finds no test; make stops at that as at any failure.
test: $(VENV)/created
	rm -rf build/dist
	$(PIP) wheel --no-deps -w build/dist .
	$(PIP) install --no-warn-script-location --force-reinstall --no-deps build/dist/*.whl
	$(PIP) install --no-warn-script-location -c constraints.txt "$$(ls build/dist/*.whl)[test]"
	$(PYTEST) tests
	$(PIP) install --no-deps --config-settings=cmake.define.RESCORE_NATIVE=ON -e .
	$(PYTEST) $(addprefix tests/,$(EDITABLE) $(NATIVE))
	touch $(VENV)/installed

develop: $(VENV)/created
	$(PIP) install -c constraints.txt -e ".[test,dev]"

check: develop
	$(RUN)/ruff check .
	$(RUN)/mypy

clean:
	rm -rf build $(VENV)
