"""The options and help texts of ``simulate``."""

from __future__ import annotations

from kvplan.cli.options import OPTIONS, OUTPUT, PLAN_CHOICE, Option, one_of, switch, whole_number, word
from kvplan.units import parse_tokens

_LOAD = "The load"
_FLEET = "The fleet"
_TARGET = "What must hold"
_TIME = "Step time and runs"

SIMULATED: tuple[Option, ...] = (
    Option("trace", ("--trace",), "FILE", word,
           "Requests with times: mooncake, bailian, azure, burstgpt, vidur, weka, dynamo, aiperf, CSV, JSON"
           " lines, Parquet; .gz too.", _LOAD),
    Option("trace_format", ("--trace-format",), "FORMAT", word, "Where it is not to be guessed.", _LOAD,
           complete="trace_formats"),
    Option("trace_columns", ("--trace-columns",), "NAMES", word,
           "Columns of prompt, answer, time (seconds) and identities: in,out,t,ids.", _LOAD),
    Option("trace_block", ("--trace-block",), "TOKENS", whole_number,
           "Tokens of one identity, where the trace does not say.", _LOAD),
    Option("first", ("--first",), "NUMBER", whole_number, "Only the trace's first requests.", _LOAD),
    Option("generate", ("--generate",), "WORDS", word,
           "A load in place of a trace: requests=1000,input=2000,output=300,arrivals=gamma,cv=2.5,seed=1.",
           _LOAD),
    Option("rate", ("--rate",), "RATE", word, "Requests a second, in place of the trace's own: 4 or 4/s.",
           _LOAD),
    Option("concurrency", ("--concurrency",), "NUMBER", whole_number,
           "So many requests are always under way, in place of the trace's times.", _LOAD),
    Option("replicas", ("--replicas",), "NUMBER|auto", word,
           "Replicas; auto: as many as are needed. Default: the plan's, else auto.", _FLEET),
    Option("hours", ("--hours",), "", switch,
           "Also the least replicas of every hour of the trace, each served alone.", _FLEET),
    Option("router", ("--router",), "POLICY", word,
           "How requests are dealt: round-robin, least-loaded, power-of-two, prefix-hash, session,"
           " cache-aware (SGLang's), longest-match, llm-d, dynamo; llm-d:prefix=3,queue=2,kv=2.", _FLEET,
           complete="routers"),
    Option("prefill_replicas", ("--prefill-replicas",), "NUMBER", word,
           "Disaggregated prefill: replicas that compute prompts …", _FLEET),
    Option("decode_replicas", ("--decode-replicas",), "NUMBER", word, "… and replicas that make answers.",
           _FLEET),
    Option("link", ("--link",), "RATE", word,
           "Between them, in one direction, all GPUs of an engine together: 50GB/s.", _FLEET),
    Option("offload", ("--offload",), "TIERS", word,
           "Caches outside the GPU: cpu:64GiB,nvme:2TiB@6GB/s; also policy=arc, chunk=64, backend=lmcache,"
           " load=cheaper.", _FLEET),
    Option("acceptance", ("--acceptance",), "RATE", word,
           "Of --speculative: drafted tokens that are right. 70%, a mean acceptance length of 2.4, or"
           " 0.8,0.6,0.4 by place.", _TIME),
    Option("ttft", ("--ttft",), "TIME", word, "Time to first token at most, such as 2s.", _TARGET),
    Option("tpot", ("--tpot",), "TIME", word, "Time per further token at most, such as 50ms.", _TARGET),
    Option("goodput", ("--goodput",), "SHARE", word, "Share of requests that must keep them: 99%.", _TARGET),
    Option("pool", ("--pool",), "likely|safe", one_of("likely", "safe"),
           "Only with this figure of the pool. Default: both.", _TARGET),
    Option("step_time", ("--step-time",), "TERMS", word,
           "What a step takes, where you know: 6ms+25us*tokens+25ns*context.", _TIME),
    Option("calibrate", ("--calibrate",), "FILE", word,
           "Results of a benchmark of this deployment (vllm bench serve, AIPerf, GuideLLM, inference-perf,"
           " /metrics) or vLLM's log of its steps, by which step times are scaled.", _TIME),
    Option("quick", ("--quick",), "", switch, "Without the sustainable rate and what would help.", _TIME),
    Option("hit_rates", ("--hit-rates",), "BLOCKS", word,
           "Only hit rates, of caches of so many blocks of the trace's width: 1k,10k,50k. No model needed.",
           _TIME),
    Option("evict", ("--evict",), "POLICIES", word,
           "With --hit-rates: of flat caches that evict by lru, fifo, lfu or belady,"
           " or radix, SGLang's own tree. vLLM itself has only lru.", _TIME, complete="evictions"),
    Option("sweep", ("--sweep",), "KEY=a,b", word,
           "One run for each combination: 'replicas=2,3 max_num_batched_tokens=2048,8192'. May be repeated.",
           _TIME, repeats=True),
    Option("executor", ("--executor",), "NAME", word,
           "Of a sweep: auto, serial, processes, dask, dask://HOST:PORT, ray, ray://HOST:PORT.", _TIME,
           complete="executors"),
    Option("resume", ("--resume",), "FILE", word,
           "Of a sweep: results are appended here, and what is there is not run again.", _TIME),
    Option("html", ("--html",), "FILE", word, "Also write the answer as one page that needs no network.",
           OUTPUT),
    Option("csv", ("--csv",), "", switch, "Of a sweep: comma separated values on stdout.", OUTPUT),
)  # fmt: skip
_NOT = (
    "tokens", "answer_tokens", "requests", "encoder_tokens", "images", "image_size", "video_frames",
    "audio_seconds", "min_pixels", "max_pixels", "cache_implementation", "ctx_size", "parallel",
)  # fmt: skip
_TAKEN = frozenset(option.name for option in SIMULATED)
ASKED = tuple(option for option in OPTIONS if option.name not in _TAKEN and option.name not in _NOT)
"""The settings of the deployment, as ``size`` takes them."""
SIMULATE_OPTIONS = (*SIMULATED, *ASKED, *PLAN_CHOICE)
LENGTHS = parse_tokens
EPILOG = """\
\b
Examples:
  kvplan simulate qwen3-32b --trace conversation.jsonl --gpu h100 --tp 2 \\
      --ttft 2s --tpot 50ms                  how many replicas, safely
  kvplan simulate plan.yaml                  its own trace and targets
  kvplan simulate plan.yaml --trace day.csv --rate 6
  kvplan simulate plan.yaml --trace day.csv --hours --quick
  kvplan simulate llama-3.1-8b --trace t.jsonl --gpu h100 --replicas 2 \\
      --router prefix-hash --json
  kvplan simulate llama-3.1-8b --trace t.jsonl --gpu h100 --replicas 2 \\
      --sweep 'max_num_batched_tokens=2048,8192' --csv
  kvplan simulate --trace conversation.jsonl --hit-rates 1k,10k,50k \\
      --evict lru,lfu,belady

\b
The engine's own scheduler, step by step, in virtual time; step times are an
estimate, so every time and preemption has an interval (two pools, three
speeds), and hit rates, which hardly depend on them, can be relied on.
Exit code 1: the target is missed.
"""
