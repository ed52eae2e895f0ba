#!/usr/bin/env bash
# Qualify a GPU: one receipt for each kind of cache, plans whose pool the budget decides, and a table.
# In order of worth: a small cache (does it run at all), the installed engine on the plans (its own blocks, where vLLM is
# there), the plans with weights, the models by kind of cache.
# It needs torch, numpy, PyYAML, pydantic and nvidia-ml-py.
#
#   tests/gpu/qualify.sh [FOLDER]               on the first GPU, in under 8 minutes (13 with an engine)
#   QUALIFY_DEVICE=cpu tests/gpu/qualify.sh     the small form: a rehearsal in host memory
#
# FOLDER takes the receipts (default: examples/evidence on a GPU, a temporary folder in a rehearsal); all of it is packed
# into FOLDER.tgz after every run, so that nothing measured is lost where time ends.
# QUALIFY_MODELS, QUALIFY_PLANS, QUALIFY_SMOKE, QUALIFY_POOL, QUALIFY_SECONDS (a run), QUALIFY_ENGINE (whose worker
# measures the plans; empty: none), QUALIFY_ENGINE_SECONDS, QUALIFY_ENGINE_PYTHON and PYTHON change the defaults.
# Exit 1: a run left no receipt, or one is not confirmed. Speeds are printed and decide nothing.
set -euo pipefail
cd "$(dirname "$0")/../.."
export TORCHINDUCTOR_COMPILE_THREADS=${TORCHINDUCTOR_COMPILE_THREADS:-1}

device=${QUALIFY_DEVICE:-cuda}
python=${PYTHON:-python3}
seconds=${QUALIFY_SECONDS:-50}
engine_python=${QUALIFY_ENGINE_PYTHON:-$python}
engine_seconds=${QUALIFY_ENGINE_SECONDS:-150}  # an engine loads, profiles and captures
limit=$seconds
# dense GQA, MHA, MLA, sliding window, state space beside attention, gated delta net, mixture of experts, the first once
# more with an 8-bit cache, and MQA: its thousands of requests take longest
models=${QUALIFY_MODELS-"llama-3.1-8b llama-2-7b deepseek-v2-lite gemma-3-27b falcon-h1-7b qwen3-next-80b-a3b \
qwen3-30b-a3b llama-3.1-8b:fp8 falcon-7b"}

"$python" -c "import tests.gpu.table"  # what is needed at the end fails at the beginning
if [ "$device" = cpu ]; then
  folder=${1:-$(mktemp -d)}
  plans=${QUALIFY_PLANS-}
  options=(--device cpu --reserve 256MiB)
  engine_options=(--device cpu)
  of_models=()
  smoke=${QUALIFY_SMOKE-}
  smoke_pool=32MiB
  engine=${QUALIFY_ENGINE-}
else
  folder=${1:-examples/evidence}
  # Weights and the pool that the budget leaves, which the models below do without: on their own GPU only.
  plans=${QUALIFY_PLANS-"examples/plans/agents-qwen3-32b-h200.yaml examples/plans/rag-llama-3.1-8b-128k-h200.yaml"}
  options=(--gpu 0)
  engine_options=(--gpu 0)
  # The cache alone: weights would leave no room for nine tenths.
  of_models=(--weights 0B)
  smoke=${QUALIFY_SMOKE-llama-3.1-8b}
  smoke_pool=4GiB
  there=$("$engine_python" -c "import vllm" >/dev/null 2>&1 && echo vllm || true)
  engine=${QUALIFY_ENGINE-$there}
fi

mkdir -p "$folder"
failed=0

# What was measured until here is packed also where the script is stopped: by a signal, or by a run that fails.
trap pack EXIT
trap 'exit 143' TERM
trap 'exit 130' INT
pack() { tar czf "${folder%/}.tgz" -C "$(dirname "$folder")" "$(basename "$folder")" || true; }

# run NAME WORDS…: one validation. A rehearsal of a plan ends with 3 and is judged by its receipt; what is for another GPU
# or release, or for an engine that is not there, is left out.
run() {
  local name=$1 out=$folder/$1-$device code=0
  shift
  "$python" -m kvplan validate "$@" "${options[@]}" --time-limit "$limit" --output "$out.json" \
    >"$out.txt" 2>"$out.err" || code=$?
  if grep -qE 'error\[(other-gpu|other-release|no-engine)\]' "$out.err"; then
    echo "$name: left out, $(head -n 1 "$out.err")"
  elif [ "$code" != 0 ] && ! { [ "$device" = cpu ] && [ "$code" = 3 ] && [ -f "$out.json" ]; }; then
    echo "$name: exit $code (see $out.txt, $out.err): $(tail -n 1 "$out.err")"
    failed=1
  fi
  pack
}

begun=$SECONDS
if [ -n "$smoke" ]; then
  run smoke "$smoke" --weights 0B --kv-cache-memory "$smoke_pool"
fi
if [ -n "$engine" ]; then
  limit=$engine_seconds
  own_options=("${options[@]}")
  options=("${engine_options[@]}")  # an engine leaves what it leaves: --reserve is kvplan's own run's
  for plan in $plans; do
    run "$(basename "${plan%.yaml}")-$engine" "$plan" --with "$engine" --engine-python "$engine_python"
  done
  limit=$seconds
  options=("${own_options[@]}")
fi
for plan in $plans; do
  run "$(basename "${plan%.yaml}")" "$plan"
done
for entry in $models; do
  model=${entry%%:*}
  name=$model
  words=("$model" ${of_models[@]+"${of_models[@]}"})
  if [ "$entry" != "$model" ]; then
    words+=(--kv-cache-dtype "${entry##*:}")
    name=$model-${entry##*:}
  fi
  pool=${QUALIFY_POOL:-}
  if [ -z "$pool" ] && [ "$device" = cpu ]; then
    pool=512MiB
  elif [ -z "$pool" ]; then
    pool=$("$python" -m tests.gpu.room "${words[@]}") || { echo "$name: no pool"; failed=1; continue; }
  fi
  run "$name" "${words[@]}" --kv-cache-memory "$pool"
done
"$python" -m tests.gpu.table "$folder" | tee "$folder/table.out" || failed=1
pack
echo "$((SECONDS - begun)) s, receipts in $folder, all of it in ${folder%/}.tgz"
exit "$failed"
