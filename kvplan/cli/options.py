"""The options that ``size`` and ``explain`` share: one table for everything that reads them.

Every value is read as text and parsed by the same function wherever it came from: flags first, then
``KVPLAN_<LONG_NAME>``, then the config file. An error says which of the three it was.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

from kvplan.cli.lists import pieces_of
from kvplan.engines import OWN_OPTIONS, owners_of
from kvplan.engines.options import EngineOption
from kvplan.engines.shared_options import speculative
from kvplan.errors import KvplanError
from kvplan.named import NamedTuple
from kvplan.settings import LONGEST, MEDIA
from kvplan.units import parse_bytes, parse_tokens, ungrouped

Parser = Callable[[str], Any]


def whole_number(text: str) -> int:
    """A whole number: digits, with commas between thousands or without. Raises KvplanError(bad-count)."""
    cleaned = ungrouped(text.strip())
    if not cleaned.isascii() or not cleaned.isdigit() or len(cleaned) > 18:
        raise KvplanError(
            "bad-count", f"{text!r} is not a whole number", help="write digits only, for example 8"
        )
    return int(cleaned)


def word(text: str) -> str:
    """A word of the engine's own, checked there."""
    if not text.strip():
        raise KvplanError("bad-setting", "the value is empty")
    return text.strip()


def one_of(*words: str) -> Parser:
    """A parser that takes these words only."""

    def parse(text: str) -> str:
        if text.strip().lower() not in words:
            raise KvplanError("bad-setting", f"{text!r} is not one of {', '.join(words)}")
        return text.strip().lower()

    return parse


def switch(text: str) -> bool:
    """A flag's value in the environment or a file."""
    known = {
        "1": True,
        "true": True,
        "on": True,
        "yes": True,
        "0": False,
        "false": False,
        "off": False,
        "no": False,
    }
    if text.strip().lower() not in known:
        raise KvplanError("bad-setting", f"{text!r} is neither true nor false")
    return known[text.strip().lower()]


def share_of_hundred(text: str) -> Fraction:
    """``2%``, ``0.5 %`` or ``2`` as a fraction of 1. Raises KvplanError(bad-setting)."""
    digits = text.strip().removesuffix("%").strip()
    whole, _, decimals = digits.partition(".")
    if not (whole + decimals).isascii() or not (whole + decimals).isdigit() or len(digits) > 18:
        raise KvplanError("bad-setting", f"{text!r} is not a percentage", help="write, for example, 2%")
    return Fraction(int(whole + decimals), 100 * 10 ** len(decimals))


def longest_or(text: str) -> int:
    """A length, or ``auto`` for the longest that fits."""
    return LONGEST if text.strip().lower() in ("auto", "-1") else parse_tokens(text)


class Option(NamedTuple):
    """One option. name: the library's keyword; many: a comma list is taken; switch options have no value.

    complete: the name of a completer in kvplan.cli.completion; repeats: of several, all count, with
    ``between`` them. special: not every engine has it, so that ``--help ENGINE`` shows it.
    """

    name: str
    flags: tuple[str, ...]
    metavar: str
    parse: Parser
    help: str
    panel: str
    many: bool = False
    off_flags: tuple[str, ...] = ()
    complete: str | None = None
    repeats: bool = False
    between: str = " "
    special: bool = False

    @property
    def is_switch(self) -> bool:
        return self.parse is switch

    @property
    def engines(self) -> tuple[str, ...]:
        """The engines that alone have it; none where it is everybody's."""
        return owners_of(self.name) if self.special else ()


QUESTION = "The question"
_REQUEST = "The requests"
_MEDIA = "Images, video and sound"
_ENGINE = "The engine"
_PARALLEL = "The GPUs"
_FORMATS = "Weights and formats"
_SERVING = "Batches and blocks"
_DRAFTS = "Speculative decoding"
OUTPUT = "Output and help"
TASKS = (QUESTION, _REQUEST, _MEDIA, _ENGINE, _PARALLEL, _FORMATS, _SERVING, _DRAFTS)
"""Groups of options by what they are for, in their order; the output comes last."""

_METAVARS = {
    "count": "NUMBER",
    "size": "SIZE",
    "share": "SHARE",
    "ratio": "RATIO",
    "flag": "",
    "word": "WORD",
    "counts": "NUMBERS",
    "shares": "SHARES",
    "ratios": "RATIOS",
    "words": "NAMES",
    "map": "JSON",
    "retention": "TOKENS",
}


def _own(option: EngineOption) -> Option:
    """An option of engines' own as the command line offers it."""
    name = "--" + option.name.replace("_", "-")
    flag = option.kind == "flag"
    return Option(
        option.name,
        (name, *option.flags),
        _METAVARS[option.kind],
        switch if flag else option.parse,
        f"{option.help} One of {', '.join(option.choices)}." if option.choices else option.help,
        _ENGINE,
        off_flags=(name.replace("--", "--no-", 1),) if flag else (),
        special=True,
    )


_SHARED: tuple[Option, ...] = (
    Option("engine", ("--engine", "-e"), "NAME[@VERSION]", word,
           "Engine whose rules count; a comma list or `all` compares.", _ENGINE, many=True,
           complete="engines"),
    Option("tokens", ("--tokens", "--context", "-t"), "LENGTH", parse_tokens,
           "Tokens of one request; 32k is 32,768; a comma list makes a grid. Default: all the model takes.",
           _REQUEST, many=True),
    Option("answer_tokens", ("--answer-tokens",), "LENGTH", parse_tokens,
           "Of a request's tokens, those that are generated. Default: an eighth.", _REQUEST),
    Option("requests", ("--requests", "--batch-size", "-n"), "NUMBER", whole_number,
           "How many requests run at once; a comma list makes a grid.", _REQUEST, many=True),
    Option("encoder_tokens", ("--encoder-tokens",), "LENGTH", parse_tokens,
           "Positions that cross attention reads.", _REQUEST),
    Option("images", ("--images",), "NUMBER", whole_number,
           "Images in one request, counted by the model's own processor.", _MEDIA),
    Option("image_size", ("--image-size",), "WIDTHxHEIGHT", word,
           "Size of the images, or of the video's frames, such as 1280x720.", _MEDIA),
    Option("video_frames", ("--video-frames",), "NUMBER", whole_number,
           "Frames of one video in the request, as they are sampled.", _MEDIA),
    Option("audio_seconds", ("--audio-seconds",), "SECONDS", word, "Audio in the request.", _MEDIA),
    Option("min_pixels", ("--min-pixels",), "NUMBER", whole_number,
           "Least pixels of an image, where the server's processor differs.", _MEDIA),
    Option("max_pixels", ("--max-pixels",), "NUMBER", whole_number,
           "Most pixels of an image, where the server's processor differs.", _MEDIA),
    Option("kv_cache_memory", ("--kv-cache-memory", "--kv-cache-memory-bytes"), "SIZE", parse_bytes,
           "Memory for the cache on each GPU, such as 16GiB: how many requests fit?", _PARALLEL),
    Option("gpu", ("--gpu", "-g"), "GPU[xN]", word,
           "GPU (kvplan list gpus), how many, a size such as 80GiB, or auto: its memory budget and pool.",
           _PARALLEL, complete="gpus"),
    Option("tensor_parallel_size", ("--tp", "--tensor-parallel-size"), "NUMBER", whole_number,
           "Tensor parallel size.", _PARALLEL),
    Option("pipeline_parallel_size", ("--pp", "--pipeline-parallel-size"), "NUMBER", whole_number,
           "Pipeline parallel size.", _PARALLEL),
    Option("data_parallel_size", ("--dp", "--data-parallel-size"), "NUMBER", whole_number,
           "Data parallel size (replicas).", _PARALLEL),
    Option("decode_context_parallel_size", ("--dcp", "--decode-context-parallel-size"), "NUMBER",
           whole_number,
           "Decode context parallel size.", _PARALLEL),
    Option("dtype", ("--dtype",), "DTYPE",
           word, "The model's dtype: auto, bfloat16, float16, float32.", _FORMATS),
    Option("kv_cache_dtype", ("--kv-cache-dtype", "--kv-dtype"), "DTYPE", word,
           "The cache's dtype: auto, bfloat16, fp8, fp8_e5m2, nvfp4, fp8_ds_mla, q8_0 and more.", _FORMATS,
           many=True,
           complete="dtypes"),
    Option("mamba_cache_dtype", ("--mamba-cache-dtype",), "DTYPE",
           word, "Dtype of convolution states.", _FORMATS),
    Option("mamba_ssm_cache_dtype", ("--mamba-ssm-cache-dtype",), "DTYPE", word,
           "Dtype of recurrent states.", _FORMATS),
    Option("max_model_len", ("--max-model-len",), "LENGTH", longest_or,
           "Longest request that the engine is started for; auto: the longest that fits.", _SERVING),
    Option("gpu_memory_utilization", ("--gpu-memory-utilization",), "SHARE", word,
           "Share of the GPU's memory that vLLM may take. Default: the version's.", _PARALLEL),
    Option("weights", ("--weights",), "SIZE", parse_bytes,
           "Weights on each GPU, such as 15GiB: what its log says that loading took.", _FORMATS),
    Option("weights_from", ("--weights-from",), "LIBRARY", one_of("transformers"),
           "transformers: count the weights by building the model's class, for models without tensor rules.",
           _FORMATS),
    Option("quantization", ("--quantization", "-q"), "METHOD", word,
           "Quantise the weights while loading: fp8, bitsandbytes.", _FORMATS),
    Option("enforce_eager", ("--enforce-eager",), "", switch,
           "No CUDA graphs.", _SERVING, off_flags=("--no-enforce-eager",)),
    Option("enable_expert_parallel", ("--enable-expert-parallel",), "", switch,
           "Whole experts on each GPU.", _PARALLEL, off_flags=("--no-enable-expert-parallel",)),
    Option("cpu_offload_gb", ("--cpu-offload-gb",), "GIB", word,
           "GiB of weights kept in the CPU's memory, for each GPU.", _PARALLEL, special=True),
    Option("max_num_seqs", ("--max-num-seqs",), "NUMBER", whole_number, "Most requests in one step.",
           _SERVING),
    Option("max_num_batched_tokens", ("--max-num-batched-tokens",), "LENGTH", parse_tokens,
           "Most tokens in one step; a window layer keeps this many more.", _SERVING),
    Option("block_size", ("--block-size",), "TOKENS", whole_number, "Tokens in a block.", _SERVING),
    Option("num_gpu_blocks_override", ("--num-gpu-blocks-override",), "NUMBER", whole_number,
           "Blocks of the pool, whatever the memory.", _SERVING, special=True),
    Option("enable_prefix_caching", ("--enable-prefix-caching",), "", switch,
           "Keep finished prompts for reuse.", _SERVING, off_flags=("--no-enable-prefix-caching",)),
    Option("speculative", ("--speculative", "--speculative-config"), "METHOD:TOKENS", speculative,
           "Speculative decoding: mtp:1, draft_model:5, or vLLM's JSON with method or model.", _DRAFTS),
    Option("speculative_model", ("--speculative-model", "--speculative-draft-model-path"), "MODEL", word,
           "The draft model, beside --speculative draft_model:5: its weights and its cache count.", _DRAFTS,
           complete="models"),
    Option("disable_hybrid_kv_cache_manager", ("--disable-hybrid-kv-cache-manager",), "", switch,
           "Every layer keeps all tokens, as vLLM does with this flag.", _SERVING, special=True,
           off_flags=("--no-disable-hybrid-kv-cache-manager",)),
    Option("attention_backend", ("--attention-backend",), "NAME", word,
           "Attention backend, where it decides the block size.", _SERVING),
    Option("async_scheduling", ("--async-scheduling",), "", switch,
           "Schedule a step while another runs: window layers keep the tokens of both.", _SERVING,
           special=True,
           off_flags=("--no-async-scheduling",)),
    Option("usage", ("--usage",), "server|llm", one_of("server", "llm"),
           "Defaults of `vllm serve` or of the LLM class.", _SERVING, special=True),
    Option("cache_implementation", ("--cache-implementation",), "dynamic|static", one_of("dynamic", "static"),
           "transformers: the cache that grows, or the one allocated at full length.", _SERVING,
           special=True),
)  # fmt: skip

OPTIONS = (
    *_SHARED,
    *(_own(option) for option in OWN_OPTIONS.values()),
)
SET = Option(
    "set", ("--set",), "NAME=VALUE", word,
    "Any setting by its name, or an option of an engine: --set max_loras=4. Again for each.", _ENGINE,
    repeats=True,
)  # fmt: skip

PLAN_CHOICE = (
    Option(
        "environment",
        ("--env",),
        "NAME",
        word,
        "Apply the overlay of this environment of a plan file.",
        QUESTION,
    ),
    Option("plan_name", ("--plan",), "NAME", word, "Which plan, where a file has several.", QUESTION),
)
SHOW_LENGTHS, SHOW_LEAST, SHOW_FORMATS = "lengths", "least", "formats"
COMPARISONS = (
    Option("show", ("--show",), "VIEW", one_of(SHOW_LENGTHS, SHOW_LEAST, SHOW_FORMATS),
           "lengths: requests by length, and the longest; least: memory, share and GPUs that the load needs;"
           " formats: a line for each KV cache format.", QUESTION),
)  # fmt: skip

_NOT_COMPARED = ("tokens", "answer_tokens", "requests", "encoder_tokens", "cache_implementation", *MEDIA)
OBSERVED = (
    Option("log", ("--log",), "FILE", word, "Start-up log of the engine (- for standard input).", QUESTION),
    Option("url", ("--url",), "URL", word,
           "A running vLLM or SGLang: http://HOST:PORT. KVPLAN_TOKEN holds a bearer token.", QUESTION),
    Option("tolerance", ("--tolerance",), "PERCENT", share_of_hundred,
           "By how much a figure may be off, such as 2% (the default).", QUESTION),
    Option("receipt", ("--receipt",), "FILE", word,
           "Of a plan: hold the server against its own answer, and write that down for `check`.", QUESTION),
    Option("load", ("--load",), "", switch,
           "With --receipt and --url: also send as many requests as run together, and one more.", QUESTION),
    Option("watch", ("--watch",), "", switch,
           "Follow the server's load instead, every SECONDS (2): --watch 5.", QUESTION),
    Option("samples", ("--samples",), "NUMBER", whole_number,
           "With --watch: stop after so many samples.", QUESTION),
    *(option for option in OPTIONS if option.name not in _NOT_COMPARED),
)  # fmt: skip

COMMON = (
    Option("json", ("--json",), "", switch, "Only JSON on stdout.", OUTPUT),
    Option(
        "color",
        ("--color",),
        "auto|always|never",
        one_of("auto", "always", "never"),
        "Colour on stdout.",
        OUTPUT,
    ),
    Option("debug", ("--debug",), "", switch, "Show the traceback of an error.", OUTPUT),
)

VERBOSE = Option(
    "verbose", ("--verbose", "-v"), "", switch, "All that is known: every setting, figure and source.", OUTPUT
)

BY_NAME = {option.name: option for option in OPTIONS}


def values_of(option: Option, text: str, where: str) -> Any:
    """The parsed value (a list where the option takes one). ``where``: what the user wrote, for the error."""
    try:
        if not option.many:
            return option.parse(text)
        return [option.parse(piece) for piece in pieces_of(text, option.name)]
    except KvplanError as error:
        raise KvplanError(
            error.code, error.message, where=error.places or where, detail=error.detail, help=error.help
        ) from None
