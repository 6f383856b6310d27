# kolm: `make demo` shows it, `make test` checks it. Nothing needs to be installed first but Python 3.11 or newer.

# The first Python here that is new enough; set-up says what is wrong when there is none.
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo "$$p"; exit; }; done; echo python3)
RUN := .venv/bin/python
FILES :=
# workers share the cores: a second thread of one would only spin while another works
SUITE := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(RUN) -m pytest -q -p no:cacheprovider
# one more than there are cores: a test that waits leaves its core to another
WORKERS := -n $(shell "$(PYTHON)" -c 'import os; print(min(8, (os.cpu_count() or 1) + 1))')

# bytecode is kept: the suite and the stack start hundreds of processes, each of which would compile a thousand files anew
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup demo demo-json demo-drafts up key down status test check unit static test-all repeat lines structure durations lint format types contracts migrations-check openapi openapi-check pytest test-faults setup-vllm test-vllm bench-vllm-drafts bench-vllm-recipes bench-vllm-exactness bench-banking77 bench-selection bench-draft-policy bench-draft-pool bench-drafts bench-draft-kscore test-browser screenshots snapshots bench-api bench-streams bench-queue bench-serving base base-anew base-gemma bench-trainer bench-snips bench-recipes bench-registry bench-rules bench-gate bench-label bench-estimates bench-sizes bench-gpu setup-llama setup-llama-server test-llama bench-llama bench-exports bench-encoder-engines test-servers bench-structured-output ledger-check backup restore lock wheel clean setup-clients test-clients bench-gallery bench-sources docs

help:
	@echo "make demo    compile examples/refund-router.yaml end to end on this machine"
	@echo "make demo-json   compile examples/order-extractor.yaml (a json task) and ask it at the OpenAI-compatible address"
	@echo "make demo-drafts   what the drafts of one compile save the next, at two lengths of message"
	@echo "make up      start the stack and leave it running    make down    end it (the data stays)"
	@echo "make key     an API key of the demo tenant, for curl and the kolm command"
	@echo "make backup  the stack's data, keys included, into TO=folder    make restore FROM=folder   (docs/backups.md)"
	@echo "make wheel   dist/kolm_compiler-….whl: client, command, verifier and runner for other machines"
	@echo "make docs    the documentation as static files in build/docs-site    (served at /docs/)"
	@echo "make check   lint, types, contracts and unit tests: what to run while you write"
	@echo "make test    everything that CI checks; make pytest FILES=tests/deploy for a part; make test-all for what takes hours"

setup:
	@$(PYTHON) -m deploy.setup

# the documentation as static files, in build/docs-site; the web process serves them at /docs/
docs: setup
	@$(RUN) -m deploy.docs_site

demo: setup
	@$(RUN) -m deploy.embedded up --detach
	@$(RUN) -m deploy.demo.refund_router

# the json half of it: a student that copies values and chooses classes
demo-json: setup
	@$(RUN) -m deploy.embedded up --detach
	@$(RUN) -m deploy.demo.order_extractor

# two tasks up to their selection, and the next version of each: what drafts save
demo-drafts: setup
	@$(RUN) -m deploy.embedded up --detach
	@$(RUN) -m deploy.demo.drafts

up: setup
	@$(RUN) -m deploy.embedded up --detach

key: setup
	@$(RUN) -m deploy.demo.refund_router --key

down: setup
	@$(RUN) -m deploy.embedded down

status: setup
	@$(RUN) -m deploy.embedded status

# lint, types, contracts and the unit tier (tests/tiers.py): no server, no other process
check: setup static unit

test: setup
	@$(MAKE) --no-print-directory --jobs 2 --output-sync lint types contracts migrations-check openapi-check
	@$(MAKE) --no-print-directory pytest

# everything there is but vLLM's: hypothesis' full profile, the nightly tier, the engines on torch's plain kernels, faults; hours
test-all: setup static migrations-check openapi-check
	HYPOTHESIS_PROFILE=full $(SUITE) $(WORKERS) -m "not faults and not vllm"
	ATEN_CPU_CAPABILITY=default ONEDNN_MAX_CPU_ISA=SSE41 $(SUITE) $(WORKERS) -m process tests/gpu_runners tests/workers
	$(MAKE) test-faults

# two at a time: mypy takes as long as the others together
static: setup
	@$(MAKE) --no-print-directory --jobs 2 --output-sync lint types contracts

lint: setup
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .

format: setup
	$(RUN) -m ruff check --fix .
	$(RUN) -m ruff format .

# status 2 is a crash and no finding: on a very busy machine its two processes miss each other, and one alone does it
types: setup
	$(RUN) -m mypy || { test $$? -eq 2 && $(RUN) -m mypy --num-workers 0; }

contracts: setup
	.venv/bin/lint-imports

migrations-check: setup
	$(RUN) -m deploy.embedded.within manage.py makemigrations --check --dry-run

openapi: setup
	$(RUN) -m deploy.embedded.within --no-servers manage.py spectacular --validate --fail-on-warn --format openapi-json --file docs/openapi.json

openapi-check: setup
	$(RUN) -m deploy.openapi_check

unit: setup
	$(SUITE) -n logical --maxprocesses 8 -m unit tests

# in parallel; FILES=tests/deploy runs a part, in one process
pytest: setup
	$(if $(FILES),$(RUN) -m pytest $(FILES),$(SUITE) $(WORKERS) --durations=15 tests)

# ten daily suites in a row beside a process that spins: nothing may be flaky (two hours; docs/benchmarks/suite.md)
RUNS := 10
repeat: setup
	@$(RUN) -m tests.repeat --runs $(RUNS)

# lines of every room and package beside docs/lines.md; WRITE=yes sets the budgets to what is there
lines: setup
	@$(RUN) -m tests.structure.lines $(if $(WRITE),--write)

# pairs of packages that import each other, full folders and the ways of four values, beside what they were: docs/structure.md
structure: setup
	@$(RUN) -m tests.structure.report

# measures how long each test takes, nightly ones too, into tests/durations.tsv (the order of the workers' work)
durations: setup
	$(SUITE) $(WORKERS) -m "not faults and not vllm" --durations-to tests/durations.tsv tests

# longer suites; their last results are in docs/benchmarks
test-faults: setup
	$(RUN) -m pytest tests/faults -m faults --durations=20

# all browser tests (`make test` has a first look alone), and the pictures in docs/screenshots
test-browser: setup
	$(RUN) -m pytest -m "not faults and not vllm" tests/browser --durations=20

screenshots: setup
	$(RUN) -m tests.browser.screenshots

# the committed pictures that tests/browser/snapshots compares the main pages with, after a change that is wanted
snapshots: setup
	$(RUN) -m tests.browser.snapshots.pictures

# a few minutes each: the API under 64 clients, 1,000 event streams with cuts and a restart
bench-api: setup
	$(RUN) -m tests.bench.api_latency --out docs/benchmarks/api.md

# the queue of runner jobs: turns of tenants beside first in, first out, with a simulated clock on a real Postgres (a quarter of an hour)
# reading files of customers beside pandas: a minute or two
bench-sources: setup
	$(RUN) -m tests.bench.source_reading --out docs/benchmarks/source-reading.md

bench-curves: setup
	$(RUN) -m tests.bench.quality_forecasts --out docs/benchmarks/curves.md

bench-queue: setup
	$(RUN) -m deploy.embedded.within -m tests.bench.fair_queue --out docs/benchmarks/queue.md

bench-streams: setup
	$(RUN) -m tests.bench.event_streams --out docs/benchmarks/event-streams.md

# the small causal base that tests, demo and benches use, into build/bases
base: setup
	@$(RUN) -m gpu_runners.tiny_base --out build/bases

# trains it again and puts it into the package (a quarter of an hour of one core)
base-anew: setup
	OMP_NUM_THREADS=1 $(RUN) -m gpu_runners.tiny_base --out build/bases --train --ship

# a real language model of 270 million weights for benches and tests, into build/bases; under Google's terms, which it shows
base-gemma: setup
	@$(RUN) -m deploy.gemma --out build/bases

# half an hour: packed, bucketed and padded training of causal adapters, beside transformers' loop and TRL (.bench-peers/trl)
bench-trainer: setup
	$(RUN) -m tests.bench.causal_trainer $(KOLM_DATA)

# half an hour: SNIPS as a JSON compile, end to end
bench-snips: setup
	$(RUN) -m tests.bench.snips $(KOLM_DATA)

# an hour: what recipe packs cover and save, beside suffix decoding (fetched into .bench-peers/recipes), and what looking one up costs
bench-recipes: setup
	-$(RUN) -m pip install --quiet --no-deps --target .bench-peers/recipes -r tests/bench/peers_recipes.txt
	OMP_NUM_THREADS=1 $(RUN) -m tests.bench.recipe_lookup
	$(RUN) -m tests.bench.recipe_replay $(KOLM_DATA)
	OMP_NUM_THREADS=1 $(RUN) -m tests.bench.recipe_controller --batches 1 8 32 --rounds 5 --requests 256
	OMP_NUM_THREADS=1 $(RUN) -m tests.bench.draft_verification --prompts 2000 --rounds 3
	OMP_NUM_THREADS=1 $(RUN) -m tests.bench.recipe_engines $(KOLM_DATA)
	OMP_NUM_THREADS=1 $(RUN) -m tests.bench.recipe_serving $(KOLM_DATA)

# two minutes: what an epoch of the registry gives a task that it does not know
bench-registry: setup
	$(RUN) -m tests.bench.registry_cold_start $(KOLM_DATA) --out docs/benchmarks/registry.md

# some minutes: how fast a rule list answers, in Python and JavaScript, and how often it is right
bench-rules: setup
	$(RUN) -m tests.bench.rules_quality $(KOLM_DATA)
	OMP_NUM_THREADS=1 $(RUN) -m tests.bench.rules_speed $(KOLM_DATA)
	$(RUN) -m tests.bench.rules_surest $(KOLM_DATA)

# a quarter of an hour and more: the K-score of one artifact ten times, half of them beside a load of the whole machine
bench-gate: setup
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(RUN) -m tests.bench.gate_stability

# an hour and more: every task of the console's gallery compiled for two teams; the figures of its cards and of the landing page
bench-gallery: setup base
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(RUN) -m tests.bench.gallery --write

# forty compiles for real, what each cost beside its estimate; an hour and more, and it goes on where it was stopped
bench-estimates: setup base
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 nice -n 19 $(RUN) -m tests.bench.estimates_hold $(KOLM_DATA)

# ten minutes, 5 GB of memory and of disk: what adapters and checkpoints weigh at a 7B's widths, and handing over 300 MB and 1.3 GB
bench-sizes: setup
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(RUN) -m tests.bench.sizes --out docs/benchmarks/sizes.md

# on a machine with a GPU: a 7B's widths trained in several ways (15 GB in GPU_DIR), and the engine over Gemma beside transformers
GPU_DIR := /dev/shm/kolm-gpu
bench-gpu: setup base-gemma
	$(RUN) -m tests.bench.gpu_training --folder $(GPU_DIR)
	$(RUN) -m tests.bench.gpu_engine $(KOLM_DATA)

# every invariant of the ledger, of all tenants of the stack that is up
ledger-check: setup
	@set -a; eval "$$($(RUN) -m deploy.embedded env)"; $(RUN) manage.py ledger_check

# ten minutes: an exported label student as ONNX, in four bytes a weight and in one, beside numpy
bench-exports: setup
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(RUN) -m tests.bench.exports $(KOLM_DATA)

# ten minutes: a span student's answers by numpy and by ONNX Runtime, warm and as processes, on SNIPS below KOLM_DATA
bench-encoder-engines: setup
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(RUN) -m tests.bench.encoder_engines $(KOLM_DATA)

bench-banking77: setup
	$(RUN) -m tests.bench.banking77 $(KOLM_DATA)

# hours: which rows are labelled, how budgets for labels are spent, which student wins, beside SetFit (fetched into .bench-peers/setfit).
# Sets beyond $KOLM_DATA are taken from $KOLM_LABEL_DATA; one that is not there is left out with a word (docs/benchmarks/label.md)
bench-label: setup
	-$(RUN) -m pip install --quiet --no-deps --target .bench-peers/setfit -r tests/bench/peers_setfit.txt
	mkdir -p build/bench-label
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(RUN) -m tests.bench.label.choosing --out build/bench-label/choosing.jsonl
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(RUN) -m tests.bench.label.plans --out build/bench-label/plans.jsonl
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(RUN) -m tests.bench.label.same_accuracy --out build/bench-label/same_accuracy.jsonl
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(RUN) -m tests.bench.label.student_doubt --out build/bench-label/student_doubt.jsonl
	PYTHONPATH=.bench-peers/setfit HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 $(RUN) -m tests.bench.label.students --out build/bench-label/students.jsonl --arms "frozen random" "frozen rounds" "adapter random" "adapter rounds" "setfit random"
	PYTHONPATH=.bench-peers/setfit HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 $(RUN) -m tests.bench.label.students --out build/bench-label/few.jsonl --sets subj emotion cr snips7 trec mr irony agnews offensive --seeds 6 --k 8 16 --arms "frozen few" "adapter few" "auto few" "setfit few"
	PYTHONPATH=.bench-peers/setfit HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 $(RUN) -m tests.bench.label.students --out build/bench-label/many.jsonl --sets subj emotion cr snips7 trec mr irony agnews offensive --k 334 1000 --arms "auto random" "setfit random"
	OMP_NUM_THREADS=1 $(RUN) -m tests.bench.label.out_of_scope
	OMP_NUM_THREADS=1 $(RUN) -m tests.bench.label.trainer_speed
	OMP_NUM_THREADS=1 $(RUN) -m tests.bench.label.trainer_quality

# minutes to hours: speed beside peers (fetched into .bench-peers), the gap detector, and what a student learns from what is kept
bench-selection: setup
	$(RUN) -m tests.bench.selection_speed --with-100k
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(RUN) -m tests.bench.selection_whole
	$(RUN) -m tests.bench.selection_gap $(KOLM_DATA)
	PYTHONPATH=.bench-peers $(RUN) -m tests.bench.selection_quality $(KOLM_DATA)
	$(RUN) -m tests.bench.selection_quality $(KOLM_DATA) --student lora --seeds 10
	$(RUN) -m tests.bench.selection_quality_code $(KOLM_DATA)

# half an hour: the draft cache's store at 320,000 slices of 1,000 tenants, beside shared indexes
bench-drafts: setup
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 KOLM_DATA=$(KOLM_DATA) $(RUN) -m tests.bench.drafts

# a vLLM of the tests' own, on the CPU (1 GB once; Linux x86-64 and Python 3.11 with a torch+cpu wheel at hand)
setup-vllm:
	@$(PYTHON) -m deploy.vllm.setup

test-vllm: setup setup-vllm
	$(RUN) -m pytest tests/vllm -m vllm

# llama.cpp for the tests of its hook, built from source (ten minutes of one core; a C++ compiler)
setup-llama:
	@$(PYTHON) -m deploy.llama.setup

# llama-server from the same sources: cmake, and minutes more (CMAKE_BUILD_PARALLEL_LEVEL=2 takes two cores)
setup-llama-server:
	@$(PYTHON) -m deploy.llama.build_server

test-llama: setup setup-llama-server
	$(RUN) -m pytest tests/gpu_runners/speculation/test_llama_cpp.py tests/gpu_runners/speculation/test_llama_server.py

# litellm, langchain-openai and instructor for the tests of the OpenAI-compatible interface (100 MB)
setup-clients:
	@$(PYTHON) -m deploy.clients.setup

test-clients: setup setup-clients
	$(RUN) -m pytest tests/clients

# drafts in llama.cpp's Python library and in llama-server, on SNIPS below KOLM_DATA and the example tasks; minutes
bench-llama: setup setup-llama-server
	OMP_NUM_THREADS=1 $(RUN) -m tests.bench.recipe_llama $(KOLM_DATA)

# teachers that are real servers over Gemma, the paid half of a compile at each: llama-server, and vLLM and `transformers
# serve` where `make setup-vllm` was done; what is not installed is skipped by name. Half an hour
test-servers: setup setup-llama-server base-gemma
	@$(RUN) -m deploy.gemma.gguf
	$(RUN) -m pytest tests/workers/real_servers -m "nightly or vllm"

# an hour: structured output beside free text at llama-server over Gemma, in valid answers per dollar; SNIPS below KOLM_DATA
bench-structured-output: setup setup-llama-server base-gemma
	@$(RUN) -m deploy.gemma.gguf
	OMP_NUM_THREADS=1 $(RUN) -m tests.bench.structured_output $(KOLM_DATA)

# ten minutes each: the server of many tenants beside bare engines; with setup-vllm done, beside `transformers serve` too
bench-serving: setup
	$(RUN) -m tests.bench.serving --out docs/benchmarks/serving.md

bench-vllm-drafts: setup setup-vllm
	$(RUN) -m tests.vllm.bench_drafts

# packs in vLLM: what they save, and that thousands of answers are the same with them as without
bench-vllm-recipes: setup setup-vllm
	$(RUN) -m tests.vllm.bench_recipes

bench-vllm-exactness: setup setup-vllm
	$(RUN) -m tests.vllm.bench_exactness

# a quarter of an hour: when drafts are shown, on CLINC150 and BANKING77 below KOLM_DATA and HWU64 below KOLM_LABEL_DATA; KOLM_VCACHE: its own code too
bench-draft-policy: setup
	OMP_NUM_THREADS=1 $(RUN) -m tests.bench.draft_policy $(KOLM_DATA)

# a quarter of an hour: drafts that compete unverified, on HWU64 (below KOLM_LABEL_DATA), CLINC150 and BANKING77
bench-draft-pool: setup
	OMP_NUM_THREADS=1 $(RUN) -m tests.bench.draft_pool $(KOLM_DATA)

# an hour: K-scores of compiles that take drafts, beside those that take none; goes on where it was interrupted
bench-draft-kscore: setup
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(RUN) -m tests.bench.draft_kscore

# the client, the command, the offline verifier and a runner as one file for other machines (docs/client.md)
wheel: setup
	@$(RUN) -m deploy.wheel

# everything of the stack at one moment, keys included, while it works: into TO, or backups/kolm-TIME (docs/backups.md)
backup: setup
	@$(RUN) -m deploy.embedded.backup $(if $(TO),--to "$(TO)")

# a backup, into a home that holds no data
restore: setup
	@$(RUN) -m deploy.embedded.restore --from "$(FROM)"

lock:
	$(PYTHON) -m deploy.lock

clean:
	rm -rf .venv build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -not -path './.git/*' -prune -exec rm -rf {} +
