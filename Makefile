# make demo       a heat problem, from Python to the best target of this machine
# make test       every test that needs no GPU
# make gpu-test   the tests that need one
# make fuzz       random kernels, program texts, matrix files and wrong calls, for SECONDS=60
# make docs       tables, pictures and excerpts of the documents anew, from results and code that are here
# make site       the documents, tutorials and references as pages in build/site; a warning is an error
# make lint, make typecheck, make clean
#
# TORCH=1 makes "make test" install torch too, and test what needs it.
# PYTHON=python3.12 picks the interpreter, VENV=.venv312 the environment, PYTEST_ARGS="-k name" what pytest runs,
# JOBS=4 how many processes run the tests.

SHELL := /bin/bash
VENV ?= .venv
JOBS ?= 2
SECONDS ?= 60
PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check install --quiet

# A toolkit is one on PATH or one that CUDA_HOME names.
NVCC := $(or $(wildcard $(CUDA_HOME)/bin/nvcc),$(shell command -v nvcc 2>/dev/null))
HAVE_GPU := $(if $(wildcard /dev/nvidia0),yes,$(shell nvidia-smi -L 2>/dev/null | grep -m1 -o GPU))
comma := ,
TEST_EXTRAS := test$(if $(NVCC),,$(comma)nvcc)$(if $(TORCH),$(comma)torch-cpu)
# pycuda takes the toolkit to be where the nvcc on PATH is, which may be a wrapper or a link; nvcc itself knows.
TOOLKIT := $(if $(NVCC),$(shell $(NVCC) --dryrun -x cu -c /dev/null 2>&1 | sed -n 's/^\#\$$ TOP=//p'))
DEMO_EXTRAS := plot$(if $(NVCC),$(if $(HAVE_GPU),$(comma)cuda))

.PHONY: demo test gpu-test fuzz docs site lint typecheck clean
.DELETE_ON_ERROR:

# Where pycuda does not build, the demo says so and runs on the emulator.
demo:
	@$(MAKE) --no-print-directory $(VENV)/.stamp-$(DEMO_EXTRAS) || { echo "sparsegen: going on without a GPU" >&2; \
	    $(MAKE) --no-print-directory $(VENV)/.stamp-plot; }
	$(PY) examples/heat2d.py

test: $(VENV)/.stamp-$(TEST_EXTRAS)
	$(PY) -m pytest -m "not gpu" -n $(JOBS) --durations=15 $(PYTEST_ARGS)

gpu-test: $(VENV)/.stamp-test,cuda
	$(PY) -m pytest -m "gpu and not alone" -n $(JOBS) --durations=15 $(PYTEST_ARGS)
	$(PY) -m pytest -m "gpu and alone" $(PYTEST_ARGS)

# SEED= draws other things; without it a seed is drawn and printed.
fuzz: $(VENV)/.stamp-test
	$(PY) -m tests.fuzz --seconds $(SECONDS) $(if $(SEED),--seed $(SEED))

docs: $(VENV)/.stamp-$(TEST_EXTRAS)
	for made in walkthrough render_tables fragment_tables counters_table scaling_tables; do $(PY) .ci/$$made.py || exit 1; done

site: $(VENV)/.stamp-docs
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --quiet

lint: $(VENV)/.stamp-dev
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .

typecheck: $(VENV)/.stamp-dev
	$(PY) .ci/typecheck.py

clean:
	rm -rf $(VENV) .typecheck build dist *.egg-info .pytest_cache .hypothesis .ruff_cache .mypy_cache
	find . -name .git -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/pyvenv.cfg:
	@python=$$(sh .ci/find_python.sh $(PYTHON)) && echo "making $(VENV) with $$python" && { "$$python" -m venv $(VENV) || { rm -rf $(VENV); exit 1; }; }

# One stamp for each set of extras; a change of pyproject.toml installs anew.
$(VENV)/.stamp-%: pyproject.toml $(VENV)/pyvenv.cfg
	@echo "installing sparsegen[$*] into $(VENV)"
	@$(if $(TOOLKIT),PATH="$(TOOLKIT)/bin:$$PATH") $(PIP) -e ".[$*]" || { echo "sparsegen: could not install the extras $*$(if $(findstring cuda,$*), (pycuda is compiled: this needs a C++ compiler and the CUDA toolkit))" >&2; exit 1; }
	@touch $@
