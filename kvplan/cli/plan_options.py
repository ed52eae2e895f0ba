"""Options of ``kvplan plan`` that ``size`` does not have."""

from __future__ import annotations

from kvplan.cli.options import OPTIONS, OUTPUT, QUESTION, Option, switch, whole_number, word
from kvplan.units import parse_bytes, parse_tokens

_LOAD = "The load"
_GPUS = "The GPUs"
_ENGINE = "The engine"
_SEARCH = "What is tried (a comma list each)"

PLANNED: tuple[Option, ...] = (
    Option("requests", ("--requests", "--in-flight", "-n"), "NUMBER", whole_number,
           "Requests at once, over the whole plan. Default: 1.", _LOAD),
    Option("tokens", ("--tokens", "--context", "-t"), "LENGTH", parse_tokens,
           "Tokens of one request, prompt and answer. Default: all that is served.", _LOAD),
    Option("input_tokens", ("--input-tokens",), "LENGTH", parse_tokens,
           "Tokens of the prompt, with --output-tokens instead of --tokens.", _LOAD),
    Option("output_tokens", ("--output-tokens",), "LENGTH", parse_tokens, "Tokens of the answer.", _LOAD),
    Option("workload", ("--workload",), "FILE", word,
           "A trace (CSV or JSON lines), or a plan whose workload counts.", _LOAD),
    Option("trace_columns", ("--trace-columns",), "NAMES", word,
           "With --workload: the columns of prompt and answer, where it is none of the traces that kvplan"
           " knows: prompt_tokens,completion_tokens.", _LOAD),
    Option("shared_prefix", ("--shared-prefix",), "LENGTH", parse_tokens,
           "Tokens that all prompts begin with: held once where the engine shares them.", _LOAD),
    Option("samples", ("--samples",), "NUMBER", whole_number,
           "Answers (or beams) to each prompt, which share it. Default: 1.", _LOAD),
    Option("arrival", ("--arrival",), "RATE", word,
           "Requests that arrive: 3/s, with --ttft, --tpot or both instead of --requests. They are simulated,"
           " as Poisson or by the trace's times.", _LOAD),
    Option("burstiness", ("--burstiness",), "CV", word,
           "With --arrival: standard deviation of the gaps over their mean. Default: 1, Poisson.", _LOAD),
    Option("acceptance", ("--acceptance",), "RATE", word,
           "With --arrival and --speculative: drafted tokens that are right. 70%, a mean acceptance length of"
           " 2.4, or 0.8,0.6,0.4 by place.", _LOAD),
    Option("gpu", ("--gpu", "-g"), "GPU[xN]", word,
           "GPUs to choose from; 8xh100: so many are there. Default: every GPU that kvplan knows and that"
           " is sold everywhere; of a plan file its own.", _GPUS,
           many=True, complete="gpus"),
    Option("fleet", ("--fleet",), "FILE", word, "A fleet file: GPUs, how many, at what price.", _GPUS),
    Option("prices", ("--prices",), "FILE", word,
           "What a GPU costs an hour (YAML or CSV). Default: prices.yaml beside the config file, where it is;"
           " none: without it.", _GPUS),
    Option("remember", ("--remember",), "", switch,
           "With --prices: keep the file beside the config file, for the next plans.", _GPUS),
    Option("max_gpus", ("--max-gpus",), "NUMBER", whole_number, "GPUs of the whole plan at most.", _GPUS),
    Option("engine", ("--engine", "-e"), "NAME[@VERSION]", word,
           "Engine whose rules count; a comma list or `all`: side by side.", _ENGINE, complete="engines"),
    Option("objective", ("--objective",), "WHAT", word,
           "What is best: fewest-gpus (the default), cost, requests or context.", QUESTION,
           complete="objectives"),
    Option("quality", ("--quality",), "POLICY", word,
           "Formats that may be taken: lossless, safe (the default) or aggressive.", QUESTION),
    Option("tpot", ("--tpot",), "TIME", word, "Time per output token at most, such as 50ms.", QUESTION),
    Option("ttft", ("--ttft",), "TIME", word, "Time to first token at most, such as 2s.", QUESTION),
    Option("goodput", ("--goodput",), "SHARE", word,
           "With --arrival: the share of requests that keep both times. Default: 99%.", QUESTION),
    Option("headroom", ("--headroom",), "SHARE", word, "Share of the pool that stays free: 10%.", QUESTION),
    Option("pool", ("--pool",), "likely|safe", word,
           "Which figure must do: safe (the default) or likely (with --arrival the default; safe also means"
           " slow steps there).", QUESTION),
    Option("levers", ("--levers",), "", switch,
           "Also what each memory lever would do: sharing, formats, offload, …", QUESTION),
    Option("disaggregated", ("--disaggregated",), "", switch,
           "Engines that read prompts beside engines that make answers; with --arrival, --ttft and --tpot.",
           QUESTION),
    Option("host_memory", ("--host-memory",), "SIZE", parse_bytes,
           "A cache tier in host memory, over all GPUs: 256GiB.", QUESTION),
    Option("pareto", ("--pareto",), "", switch,
           "Also the Pareto front of GPUs, requests and context.", QUESTION),
    Option("top", ("--top",), "NUMBER", whole_number, "How many plans to show. Default: 5.", QUESTION),
    Option("tensor_parallel_size", ("--tp", "--tensor-parallel-size"), "NUMBERS", whole_number,
           "Tensor parallel sizes.", _SEARCH, many=True),
    Option("pipeline_parallel_size", ("--pp", "--pipeline-parallel-size"), "NUMBERS", whole_number,
           "Pipeline parallel sizes.", _SEARCH, many=True),
    Option("data_parallel_size", ("--dp", "--data-parallel-size"), "NUMBERS", whole_number,
           "Data parallel sizes inside one engine (experts over all ranks).", _SEARCH, many=True),
    Option("decode_context_parallel_size", ("--dcp", "--decode-context-parallel-size"), "NUMBERS",
           whole_number, "Decode context parallel sizes.", _SEARCH, many=True),
    Option("kv_cache_dtype", ("--kv-cache-dtype", "--kv-dtype"), "DTYPES", word,
           "KV formats, by name: also those that --quality would not take.", _SEARCH, many=True,
           complete="dtypes"),
    Option("max_num_seqs", ("--max-num-seqs",), "NUMBERS", whole_number, "Most requests in one step.",
           _SEARCH, many=True),
    Option("max_model_len", ("--max-model-len",), "LENGTHS", parse_tokens,
           "Longest request that the engine is started for. Default: the longest of the load.", _SEARCH,
           many=True),
    Option("enable_expert_parallel", ("--enable-expert-parallel",), "", switch,
           "Whole experts on each GPU, or never. Default: both are tried.", _SEARCH,
           off_flags=("--no-enable-expert-parallel",)),
    Option("write", ("--write",), "FILE", word, "Write the best as a plan file.", OUTPUT),
    Option("overwrite", ("--overwrite",), "", switch, "With --write: also over a file that exists.", OUTPUT),
    Option("markdown", ("--markdown",), "", switch, "Markdown, for a pull request.", OUTPUT),
)  # fmt: skip
_TAKEN = frozenset(option.name for option in PLANNED)
_NOT_PLANNED = (
    *("kv_offloading_size", "kv_cache_memory", "num_gpu_blocks_override", "cache_implementation", "ctx_size"),
    "parallel",
)
SHARED = tuple(option for option in OPTIONS if option.name not in _TAKEN and option.name not in _NOT_PLANNED)
"""Settings that all candidates have in common."""
EPILOG = """\
\b
Examples:
  kvplan plan qwen3-32b -n 32 -t 8k              any GPU
  kvplan plan llama-3.1-8b -t 8k --gpu rtx-3090
  kvplan plan deepseek-v3 -n 64 -t 16k --gpu 8xh200,8xb200
  kvplan plan gpt-oss-120b -n 100 -t 8k --gpu h100 --objective requests \\
      --max-gpus 8
  kvplan plan qwen3-32b -n 64 -t 8k --prices prices.yaml --objective cost
  kvplan plan qwen3-32b -n 32 -t 8k --write plan.yaml
  kvplan plan plan.yaml                          its load, on its kind of GPU
  kvplan plan plan.yaml --gpu h100,h200 -n 200   other GPUs, a higher load

\b
Of a plan file the model, the engine, its flags, the load, what is required
and the kind of GPU stand; how many GPUs, the layout and --max-num-seqs are
searched. What is typed counts first; --quality lets other checkpoints in.

Every candidate is judged by the engine's own rules; nothing is rented or run.
Formats that lose quality are not taken silently: --quality says which may be.
Exit code 1: nothing serves the load within these limits.
"""
