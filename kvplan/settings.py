"""Settings of a user: one request's shape, the parallelism and the engine's own options."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from operator import attrgetter
from typing import Any, Generic, TypeVar

from kvplan.errors import KvplanError, did_you_mean
from kvplan.gpu import Gpu
from kvplan.model import Model
from kvplan.own_options import NO_OPTIONS, OwnOptions
from kvplan.record import KeptHash, field_names, record, replace


@record()
class Layout(KeptHash):
    """The settings that decide how an engine lays its cache out: parallelism, formats, batch, speculation.

    A plan of the cache reads these alone, so that a plan is kept under them. Options have the engines' long
    names. None = the engine's default.
    """

    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    data_parallel_size: int = 1
    decode_context_parallel_size: int = 1
    dtype: str = "auto"
    """the model's element type"""
    kv_cache_dtype: str = "auto"
    """the cache's; auto: the engine decides"""
    mamba_cache_dtype: str = "auto"
    mamba_ssm_cache_dtype: str = "auto"
    block_size: int | None = None
    max_model_len: int | None = None
    """may be LONGEST: the longest that fits"""
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    enable_prefix_caching: bool | None = None
    speculative_method: str | None = None
    num_speculative_tokens: int = 0
    speculative_model: Model | None = None
    """a draft model of its own beside the target"""
    disable_hybrid_kv_cache_manager: bool | None = None
    gpu: Gpu | None = None
    """one GPU of the replica"""
    attention_backend: str | None = None
    async_scheduling: bool | None = None
    usage: str = "server"
    quantization: str | None = None
    enable_expert_parallel: bool = False
    own: OwnOptions = NO_OPTIONS
    """options that one engine alone has"""


@record()
class Serving(Layout):
    """With what a server is started: also what leaves more or less of a GPU to the cache. Sizes are bytes."""

    num_gpu_blocks_override: int | None = None
    gpu_memory_utilization: Fraction | None = None
    weights: int | None = None
    """bytes on one GPU, where the user knows them better"""
    enforce_eager: bool = False
    cpu_offload_gb: Fraction = Fraction(0)
    """GiB of weights in host memory, as the engine counts them"""


@record()
class Settings(Serving):
    """All that a user may set: also the cache's memory, and what is asked of a server that has started."""

    kv_cache_memory: int | None = None
    """bytes of one GPU's cache"""
    tokens: int | None = None
    """decoder positions of one request"""
    encoder_tokens: int | None = None
    """positions that cross attention reads"""
    answer_tokens: int | None = None
    """of `tokens`, those that are generated; None: an eighth"""
    requests: int = 1
    """requests at once"""
    media: tuple[tuple[str, object], ...] = ()
    """what images, video and audio add, for the answer's settings; `tokens` has them already"""
    gpus: int | None = None
    """GPUs that were named, over all replicas; None: as many as one server takes"""
    spread: bool = False
    """the tensor-parallel size stands for the GPUs that were named; nobody wrote it"""
    starts: bool = False
    """`kv_cache_memory` is what a GPU's budget leaves: a server starts in it, and what the engine checks once
    its cache is planned is checked too"""
    cache_implementation: str = "dynamic"
    """of the transformers library"""

    def __post_init__(self) -> None:
        for name in _AT_LEAST_ONE:
            _check_range(name, getattr(self, name), 1)
        for name in _AT_LEAST_ZERO:
            _check_range(name, getattr(self, name), 0)
        if self.max_model_len is not None and self.max_model_len != LONGEST:
            _check_range("max_model_len", self.max_model_len, 1)
        share = self.gpu_memory_utilization
        if share is not None and not 0 < share <= 1:
            raise KvplanError(
                "bad-setting",
                f"gpu_memory_utilization is {float(share):g}",
                help="it lies above 0 and is at most 1, for example 0.9",
            )
        if not 0 <= self.cpu_offload_gb <= MOST_GIB:
            raise KvplanError("bad-setting", f"cpu_offload_gb is {float(self.cpu_offload_gb):g}")
        if self.speculative_model is not None and not self.num_speculative_tokens:
            raise KvplanError(
                "bad-setting",
                "a draft model was named, and not how many tokens it proposes",
                help="--speculative draft_model:5",
            )
        if self.usage not in ("server", "llm"):
            raise KvplanError("bad-setting", f"usage is {self.usage!r}", help="usage is server or llm")


def stated_length(settings: Settings) -> int | None:
    """max_model_len in tokens; None where nobody said one or it is LONGEST, which the memory decides."""
    return None if settings.max_model_len == LONGEST else settings.max_model_len


def started_in(settings: Settings, pool: int) -> Settings:
    """The settings with the bytes that a GPU's budget leaves for the cache (`Settings.starts`)."""
    return replace(settings, kv_cache_memory=pool, starts=True)


S = TypeVar("S", bound="Layout")


def with_settings(settings: S, changes: Mapping[str, object]) -> S:
    """The settings with others: fields, or options that one engine alone has."""
    known = field_names(type(settings))
    fields: dict[str, Any] = {name: value for name, value in changes.items() if name in known}
    own = {name: value for name, value in changes.items() if name not in known}
    fields["own"] = fields.get("own", settings.own) | own
    return replace(settings, **fields)


def with_setting(settings: S, name: str, value: object) -> S:
    """`with_settings` of a single one."""
    return with_settings(settings, {name: value})


def experts_spread(settings: Settings) -> bool:
    """Whether whole experts lie on each GPU, by the common flag or by the engine's own size."""
    return settings.enable_expert_parallel or expert_width_ways(settings) < settings.tensor_parallel_size


def expert_width_ways(settings: Settings) -> int:
    """Tensor ranks among which the width of one expert is divided: those that do not divide whole experts
    (SGLang's ep_size, which a backend of moe_a2a_backend sets; TensorRT-LLM's moe_expert_parallel_size)."""
    own, tensor = settings.own, settings.tensor_parallel_size
    size = own.get("ep_size") or own.get("moe_expert_parallel_size")
    if own.get("moe_a2a_backend", "none") != "none":
        size = tensor
    if isinstance(size, int):
        return max(1, tensor // size)
    return 1 if settings.enable_expert_parallel else tensor


def further_ranks(settings: Any) -> int:
    """GPUs for each tensor-parallel rank that divide prompts and hold the same cache (vLLM's
    prefill_context_parallel_size)."""
    size = settings.own.get("prefill_context_parallel_size")
    return size if isinstance(size, int) else 1


REQUEST = tuple(
    name for name in field_names(Settings) if name not in (*field_names(Serving), "kv_cache_memory")
)
"""Settings that say what is asked of an engine that has started."""
NO_FLAG = (
    *REQUEST,
    *("gpu", "usage", "weights", "own", "num_speculative_tokens", "speculative_model"),
)
"""Settings that no flag of a server says: what is asked, where it runs, and what comes with another one."""

L = TypeVar("L", bound=Layout)


class Key(Generic[L]):
    """The part of the settings that a type names, as a key for a cache, and back again."""

    def __init__(self, kind: type[L]) -> None:
        self._kind, self._names = kind, field_names(kind)
        self.values = attrgetter(*self._names)

    def settings(self, values: tuple[Any, ...]) -> L:
        """The settings of a key. They were checked when they were set."""
        return self._kind(*values)


_SERVING = Key(Serving)


def asked_of(serving: Serving, **request: Any) -> Settings:
    """The settings of a server with what is asked of it."""
    return Settings(*_SERVING.values(serving), **request)


MEDIA = ("images", "image_size", "video_frames", "audio_seconds", "min_pixels", "max_pixels")
"""Options for what a request carries beside its text; a reader turns them into tokens."""
_OF_MEDIA = ("image_tokens", "video_tokens", "audio_tokens")


def media_tokens(shown: Iterable[tuple[str, object]]) -> int:
    """Tokens of a request that are no text, of what an answer shows of its media."""
    return sum(int(str(amount)) for name, amount in shown if name in _OF_MEDIA)


LOOKUP_METHODS = ("ngram", "ngram_gpu", "suffix")
"""Speculative methods that propose what was seen before: no model, no layers, no weights."""
HEAD_METHODS = ("eagle", "eagle3")
"""Speculative methods whose draft is a head of one layer like the target's."""
EAGLE_LIKE = (*HEAD_METHODS, "mtp", "dflash", "dspark")
"""Methods whose drafts read the target's hidden states (vllm/config/speculative.py, use_eagle)."""
LONGEST = -1
"""max_model_len ``auto``: the longest that fits, at most the model's own (vLLM's -1)."""
MOST_GIB = 10**6
_AT_LEAST_ONE = (
    "requests",
    "gpus",
    "answer_tokens",
    "tensor_parallel_size",
    "pipeline_parallel_size",
    "data_parallel_size",
    "decode_context_parallel_size",
    "block_size",
    "max_num_seqs",
    "max_num_batched_tokens",
    "num_gpu_blocks_override",
)
_AT_LEAST_ZERO = ("tokens", "encoder_tokens", "num_speculative_tokens", "kv_cache_memory", "weights")
_LARGEST = 10**18
_MOST_RANKS = 65_536


def _check_range(name: str, value: int | None, lowest: int) -> None:
    if value is None:
        return
    if not isinstance(value, int) or isinstance(value, bool):
        raise KvplanError("bad-setting", f"{name} is {value!r}, not a whole number")
    highest = _MOST_RANKS if name.endswith("_parallel_size") else _LARGEST
    if not lowest <= value <= highest:
        raise KvplanError(
            "bad-setting", f"{name} is {value:,}", help=f"{name} lies in {lowest} … {highest:,}"
        )


MTP = "mtp"
_MTP_WORDS = frozenset(
    """deepseek_mtp dots3_note_mtp mimo_mtp mimo_v2_mtp glm4_moe_mtp glm4_moe_lite_mtp glm_ocr_mtp ernie_mtp
    nemotron_h_mtp exaone_moe_mtp exaone4_5_mtp qwen3_next_mtp qwen4_exp_mtp qwen3_5_mtp longcat_flash_mtp
    bailing_hybrid_v3_mtp minimax_m3_mtp bailing_hybrid_mtp kimi_k3_mtp pangu_ultra_moe_mtp step3p5_mtp
    hy_v3_mtp hy_v4_mtp gemma4_mtp inkling_mtp glm5_next_mtp""".split()
)
METHODS = (
    MTP,
    *"draft_model eagle eagle3 ngram ngram_gpu suffix medusa mlp_speculator dflash dspark".split(),
)
"""vllm-project/vllm 0.32 vllm/config/speculative.py, SpeculativeMethod, which rewrites _MTP_WORDS to mtp."""


def known_method(word: str) -> str:
    """A speculative method as the rules know it. Raises KvplanError(bad-setting) for any other word."""
    plain = word.strip().lower()
    if plain in _MTP_WORDS:
        return MTP
    if plain in METHODS:
        return plain
    near = did_you_mean(plain, METHODS)
    raise KvplanError(
        "bad-setting",
        f"there is no speculative method {word!r}",
        help=f"did you mean {near}?" if near else "known: " + ", ".join(METHODS),
    )


def gpus_per_replica(settings: Settings) -> int:
    """GPUs of one server: tensor × pipeline × data × prefill context parallel size; SGLang's attention groups
    lie inside tensor parallelism."""
    ranks = settings.tensor_parallel_size * settings.pipeline_parallel_size * further_ranks(settings)
    return ranks if _has(settings, "enable_dp_attention") else ranks * settings.data_parallel_size


def pools_per_replica(settings: Settings) -> int:
    """Pools with requests of their own: one a data-parallel rank; one an attention group (SGLang's
    ``attn_dp_size``, or ``enable_dp_attention`` with dp_size); one a GPU of a stage where attention itself is
    data-parallel (TensorRT-LLM's ``enable_attention_dp``)."""
    groups = settings.own.get("attn_dp_size")
    ways = settings.data_parallel_size * (groups if isinstance(groups, int) else 1)
    return ways * settings.tensor_parallel_size if _has(settings, "enable_attention_dp") else ways


def attention_ranks(settings: Settings) -> int:
    """Tensor ranks that attend to the same requests: all, or one group of data-parallel attention."""
    inside = pools_per_replica(settings)
    if not _has(settings, "enable_dp_attention"):
        inside //= max(1, settings.data_parallel_size)
    return max(1, settings.tensor_parallel_size // max(1, inside))


def _has(settings: Settings, option: str) -> bool:
    return settings.own.get(option) is True
