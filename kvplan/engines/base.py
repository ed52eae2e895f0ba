"""Shared by the engines: versions, the walk over terms, and the encoder's length."""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from typing import Protocol

from kvplan.dtypes import FLOAT32, SCALARS, Packing, scalar
from kvplan.engines.options import EngineOption
from kvplan.errors import KvplanError
from kvplan.families import Kind, Part, Storage
from kvplan.model import EncoderInput, Model
from kvplan.record import Json, record
from kvplan.results import (
    EngineRef,
    LayerTerms,
    ModelRef,
    PerGpu,
    Pool,
    Refusal,
    Request,
    SizeResult,
    Total,
)
from kvplan.settings import Key, Layout, Serving, Settings, stated_length
from kvplan.terms import Grows, Term
from kvplan.units import human_bytes

Version = tuple[int, ...]
StoreFor = Callable[[Part], Storage]
TermsOf = Callable[[Part], tuple[Term, ...]]


class Engine(Protocol):
    """One serving engine.

    versions: the releases whose rules the file mirrors, oldest first. options: what it alone can be told.
    """

    name: str
    versions: tuple[str, ...]
    options: tuple[EngineOption, ...]

    def size(self, model: Model, settings: Settings, version: str) -> SizeResult: ...


LIKELY, SAFE = "likely", "safe"
"""The figures of a budget's pool."""


@record()
class Choice:
    """An engine and the version whose rules apply; ``warning`` when that is not the one asked for."""

    engine: Engine
    version: str
    warning: str | None = None
    asked: str | None = None
    """the version as written, which may name a patch release"""
    pool: str | None = None
    """LIKELY or SAFE, where answers have the pool that a named GPU leaves for the cache"""
    door: str | None = None
    """the program that starts the engine, where one was named (`kvplan.engines.doors`)"""
    notes: tuple[str, ...] = ()
    """what it does that nobody asked for"""
    advice: bool = True
    """a refusal for want of memory names other starts that were tried; a search tries its own and reads
    none"""


@lru_cache(maxsize=1024)
def parse_version(text: str) -> Version:
    """``0.32.1`` → (0, 32, 1). Raises KvplanError(bad-version)."""
    parts = text.split(".")
    if len(parts) <= 4 and all(part.isascii() and part.isdigit() and len(part) <= 6 for part in parts):
        return tuple(map(int, parts))
    if not re.fullmatch(r"v?\d{1,6}(\.\d{1,6}){0,3}([a-z+.-][\w.+-]*)?", text):
        raise KvplanError("bad-version", f"{text!r} is not a version", help="write, for example, vllm@0.32")
    return tuple(int(part) for part in re.findall(r"\d+", re.split(r"[a-z+-]", text.removeprefix("v"))[0]))


@lru_cache(maxsize=8192)
def part_terms(part: Part, store: Storage) -> tuple[Term, ...]:
    """The terms of a part; compiled once for each storage. Raises TypeError, with the family's file, where
    it gives something else."""
    found = part.terms(store)
    if not isinstance(found, tuple) or not all(isinstance(term, Term) for term in found):
        file = f"{type(part).__module__.replace('.', '/')}.py"
        raise TypeError(f"{file}: terms() of {type(part).__name__} gives no tuple of Term")
    return found


@lru_cache(maxsize=8192)
def rank_terms(part: Part, store: Storage, tensor_parallel_size: int) -> tuple[Term, ...]:
    """The terms of a part on one tensor-parallel rank."""
    return tuple(term.on_rank(tensor_parallel_size) for term in part_terms(part, store))


def layer_answers(model: Model, store_for: StoreFor, draft: Model | None = None) -> tuple[LayerTerms, ...]:
    """`layers_with` of the terms that the architecture has under each part's storage."""
    return layers_with(model, lambda part: part_terms(part, store_for(part)), draft)


def layers_with(model: Model, terms_of: TermsOf, draft: Model | None = None) -> tuple[LayerTerms, ...]:
    """The layers of the answer: each distinct layer with its unsharded terms, a separate draft's too."""
    counts = model.distinct()
    for layer, count in draft.distinct().items() if draft is not None else ():
        counts[layer] = counts.get(layer, 0) + count
    return tuple(
        LayerTerms(layer, count, tuple(term for part in layer.parts for term in terms_of(part)))
        for layer, count in counts.items()
    )


@record()
class Held:
    """The cache of one request on one rank, term by term, without allocator rules."""

    bytes: int
    bytes_per_token: Fraction
    fixed_bytes: int

    def __add__(self, other: Held) -> Held:
        return Held(
            self.bytes + other.bytes,
            self.bytes_per_token + other.bytes_per_token,
            self.fixed_bytes + other.fixed_bytes,
        )

    def times(self, count: int) -> Held:
        return Held(self.bytes * count, self.bytes_per_token * count, self.fixed_bytes * count)


NOTHING = Held(0, Fraction(0), 0)


def held_by(terms: tuple[Term, ...], tokens: int, encoder_tokens: int) -> Held:
    """Sum over terms of entries * entry_bytes; fixed = what grows per request or per encoder token."""
    total = fixed = 0
    growth = Fraction(0)
    for term in terms:
        amount = term.bytes_at(tokens, encoder_tokens)
        total += amount
        if term.grows is Grows.TOKEN:
            growth += term.growth_at(tokens)
        else:
            fixed += amount
    return Held(total, growth, fixed)


NO_LENGTH = "no-length"


def request_tokens(model: Model, settings: Settings) -> int:
    """tokens as given, else max_model_len as given, else the model's own. Raises KvplanError(no-length)."""
    for tokens in (settings.tokens, stated_length(settings), model.max_model_len):
        if tokens is not None:
            return tokens
    raise KvplanError(
        NO_LENGTH,
        f"{model.id} does not state a maximum length",
        help="give one: --tokens 4096",
    )


ANSWER_PART = 8
"""One token of so many is generated, where nobody says how many are."""


def answer_length(settings: Settings, tokens: int) -> int:
    """Tokens that are generated, of the request's: as given, else an eighth; a prompt has one at least."""
    return generated(tokens, settings.answer_tokens)


def generated(tokens: int, answer: int | None) -> int:
    """`answer_length` of a request of which the answer is known, or None."""
    return max(1, min(tokens // ANSWER_PART if answer is None else answer, tokens - 1))


def encoder_length(model: Model, settings: Settings, tokens: int) -> tuple[int, str | None]:
    """Encoder positions of one request and, where they had to be assumed, a warning.

    As given; else the model's fixed number (Whisper 1,500); else 0 for images and ``tokens`` for text.
    """
    if model.encoder is None:
        return 0, None
    if settings.encoder_tokens is not None:
        return settings.encoder_tokens, None
    if model.encoder.tokens is not None:
        return model.encoder.tokens, None
    if model.encoder.input is EncoderInput.IMAGE:
        return 0, "no image tokens counted: give --encoder-tokens for requests with images"
    return tokens, f"encoder length not given: taken as {tokens:,}, the decoder's; give --encoder-tokens"


def named_or_float32(part: Part) -> Packing:
    """The recurrent state's element type as the config names it, else fp32."""
    word = part.state_dtype
    return scalar(word) if word else FLOAT32


def served_dtype(model: Model, settings: Serving) -> Packing:
    """The model's element type when served: as asked; else the checkpoint's 16-bit type; else bfloat16.

    float32 and unstated checkpoints are served in bfloat16, as vLLM does on GPUs that have it
    (vllm-project/vllm vllm/config/model.py, _get_and_verify_dtype).
    """
    if settings.dtype != "auto":
        return scalar(settings.dtype)
    stated = scalar(model.dtype) if model.dtype else FLOAT32
    return stated if stated.bytes == 2 else SCALARS["bfloat16"]


SINK_TYPES = frozenset({"flint", "gpt_oss", "granite_swa", "granitemoe_swa", "mimo_v2", "mimo_v2_flash"})
"""Model types whose attention has sinks."""


def has_kind(model: Model, *kinds: Kind) -> bool:
    return any(part.kind in kinds for run in model.runs for part in run.layer.parts)


def is_assumed(model: Model, settings: Layout, *, routed: bool = False) -> bool:
    """Whether the format is what builds of that name usually have: this one may be padded, or spare the
    matrix. Then nothing is refused, and `doubt` is said. A maker's own FP8 has its blocks in every matrix;
    of a model that was put together, for certain in the routed experts alone."""
    own = model.is_makers_own and model.quantization == "fp8" and (routed or not model.is_put_together)
    return (model.is_by_name and not own) or (
        settings.quantization is not None and model.quantization is None
    )


def doubt(refusal: Refusal | None) -> tuple[str, ...]:
    """A refusal as a warning."""
    if refusal is None:
        return ()
    ways = f" ({', '.join(refusal.help)})" if refusal.help else ""
    return (f"{refusal.message}, as builds of this name usually are: such a one does not start{ways}",)


def undividable(model: Model, settings: Layout) -> Refusal | None:
    """A stage without a layer: no engine starts one (vLLM's get_pp_indices and its like). Ranks over MIG
    slices: CUDA shows a process one slice, so that no second rank has a device (NVIDIA's MIG user guide,
    "CUDA visible devices")."""
    stages, gpu = settings.pipeline_parallel_size, settings.gpu
    if gpu is not None and gpu.is_mig_slice and (ranks := settings.tensor_parallel_size * stages) > 1:
        return Refusal(
            MIG_SLICES,
            f"one engine would take {ranks} MIG slices, and a process sees one",
            help=("--tp 1", "more replicas, each on a slice of its own"),
        )
    if stages <= model.num_layers:
        return None
    return Refusal(
        "pipeline-parallel",
        f"{model.num_layers} layers make fewer than {stages} stages",
        help=(f"--pp {model.num_layers}",) if model.num_layers else (),
    )


CUT_BLOCKS = "cuts the experts' FP8 blocks"
"""Words of a warning that such ranks run, with kernels that are not the fastest."""
EMULATED = "is emulated"
"""Words of a warning that no kernel multiplies the weights as they are stored."""
SLOWER = (CUT_BLOCKS, EMULATED)
"""Warnings that a layout runs beside the engine's fast kernels have one of these."""
MIG_SLICES = "mig-slices-do-not-join"
"""Code of a refusal: ranks over parts of GPUs."""


class Compiled(Protocol):
    """An engine's knowledge of (model, settings, version) before a request comes."""

    @property
    def model(self) -> ModelRef: ...
    @property
    def engine(self) -> EngineRef: ...
    @property
    def settings(self) -> Json: ...
    @property
    def layers(self) -> tuple[LayerTerms, ...]: ...
    @property
    def warnings(self) -> tuple[str, ...]: ...


def answer_of(
    compiled: Compiled,
    request: Request,
    held: tuple[PerGpu, Total],
    pool: Pool | None,
    refusal: Refusal | None,
    *,
    settings: Json | None = None,
    warnings: tuple[str | None, ...] = (),
) -> SizeResult:
    """The answer for one request. settings: as shown, where not those compiled; warnings: further ones."""
    return SizeResult(
        compiled.model,
        compiled.engine,
        compiled.settings if settings is None else settings,
        request,
        held[0],
        held[1],
        compiled.layers,
        pool,
        refusal,
        (*compiled.warnings, *(text for text in (*warnings, _beyond(pool)) if text)),
    )


_SAID = 100
"""Blocks may take one part in so many more than the pool before it is said."""


def _beyond(pool: Pool | None) -> str | None:
    """An engine that allocates more blocks than its memory for the cache holds: places for drafts (SGLang to
    0.5.6), whole pages of the driver and a block of each pool (TensorRT-LLM's KVCacheManagerV2)."""
    allocated = 0 if pool is None else pool.num_blocks * pool.bytes_per_block
    if pool is None or (allocated - pool.bytes) * _SAID <= pool.bytes:
        return None
    more = human_bytes(allocated - pool.bytes)
    return (
        f"the engine allocates {human_bytes(allocated)} of blocks, {more} more than it counts for the cache"
    )


NOTHING_HELD = (PerGpu(0, 0, 0, 0, 0), Total(0, 0))
"""Of a model that the engine refuses."""


_PLANNED = Key(Serving)
planned_values, planned_settings = _PLANNED.values, _PLANNED.settings
"""The settings that decide an engine's plan, as a key for its cache; the settings of such a key."""
