"""MLX (mlx_lm.server, mlx_lm.generate): caches that grow by 256 tokens, on one Mac.

Mirrors ml-explore/mlx-lm 0.32.2 mlx_lm/models/cache.py, generate.py (BatchGenerator) and server.py. Nothing
is allocated before a request comes: a request fits while its cache, and what reading its prompt takes, lie in
the memory that macOS lets the GPU use. max_num_seqs is decode_concurrency, max_num_batched_tokens
prefill_step_size.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from typing import Any

from kvplan.bisection import most_up_to
from kvplan.dtypes import SCALARS, Packing, scalar
from kvplan.engines.base import (
    NOTHING_HELD,
    answer_length,
    encoder_length,
    generated,
    layers_with,
    request_tokens,
)
from kvplan.engines.mlx.caches import Cache, Grows, Kept, caches_of, terms_of
from kvplan.engines.mlx.models import LIMITED, batches, not_quantised, quantises, type_of, unserved
from kvplan.engines.mlx.options import ANSWERS, OPTIONS, PROMPTS, STEP, MlxOptions
from kvplan.engines.mlx.prefill import activation_bytes, scores_bytes
from kvplan.engines.mlx.rows import STEP as ROWS
from kvplan.engines.mlx.rows import Course
from kvplan.engines.options import EngineOption
from kvplan.engines.traits import not_on
from kvplan.errors import KvplanError, RefusedError
from kvplan.families import Kind
from kvplan.gpu import APPLE
from kvplan.model import Model
from kvplan.record import record, replace
from kvplan.results import (
    EngineRef,
    ModelRef,
    PerGpu,
    Pool,
    PoolGroup,
    Refusal,
    Request,
    SizeResult,
    Total,
    plain_number,
)
from kvplan.settings import Serving, Settings
from kvplan.units import ceil_div, human_bytes, round_up

_ONE_MAC = ("tensor_parallel_size", "pipeline_parallel_size", "decode_context_parallel_size")
_NO_LIMIT = 1 << 24
"""Tokens up to which a longest request is looked for of a model that states no length."""


@record(eq=False)
class Plan:
    """Everything that is fixed before a request comes. plain: the caches before they are quantised."""

    model: Model
    kept: Kept
    caches: tuple[Cache, ...]
    plain: tuple[Cache, ...]
    start: int
    step: int
    prompts: int
    at_once: int

    def course(self, tokens: int, answer: int) -> Course:
        """A request of so many tokens, of which ``answer`` are generated."""
        return Course(tokens - answer, tokens, self.step)

    def held(self, course: Course) -> int:
        """Bytes of a request's caches: quantised once it has ``start`` tokens."""
        caches = self.plain if course.tokens < self.start else self.caches
        return sum(cache.bytes(course) for cache in caches)

    def at_prompt(self, course: Course) -> int:
        """Bytes of a request at its peak while its prompt is read: after its last step or the whole one
        before it, or just before it is quantised, with the scores of attention that no kernel fuses."""
        read = max(course.prompt - 1, 0)
        ends = {read, read // self.step * self.step}
        most = max(self.held(replace(course, tokens=end)) for end in ends)
        if self.kept.bits is not None and read >= self.start:
            crossing = replace(course, tokens=min(read, round_up(self.start, self.step)))
            most = max(most, sum(cache.bytes(crossing) for cache in self.plain))
        return most + scores_bytes(self.model, course, self.kept)

    def beside(self, course: Course) -> int:
        """Bytes of activations while a prompt is read, of which the budget has one prompt's."""
        return activation_bytes(self.model, min(self.step, max(course.prompt - 1, 0)), self.kept)

    def needs(self, course: Course, requests: int) -> int:
        """Bytes of so many requests at once, ``prompts`` of which are read together."""
        held, beside = self.held(course), self.beside(course)
        more = max(0, self.at_prompt(course) + beside - held)
        return requests * held + max(0, min(requests, self.prompts) * more - beside)

    def fit(self, course: Course, pool: int) -> int:
        """The most requests whose `needs` the pool holds."""
        held, beside = self.held(course), self.beside(course)
        more = max(0, self.at_prompt(course) + beside - held)
        room, peak = pool + beside, held + more
        if not peak:
            return self.at_once
        if room < self.prompts * peak:
            found = room // peak
        else:
            found = (room - self.prompts * more) // held if held else self.at_once
        return min(found, pool // held) if held else found


class Mlx:
    """Engine ``mlx``."""

    name: str = "mlx"
    versions: tuple[str, ...] = ("0.32",)
    options: tuple[EngineOption, ...] = OPTIONS

    def size(self, model: Model, settings: Settings, version: str) -> SizeResult:
        """Bytes of the caches; with kv_cache_memory the requests that fit."""
        options = MlxOptions.of(settings)
        _check(settings, options)
        tokens = request_tokens(model, settings)
        encoder_tokens, warning = encoder_length(model, settings, tokens)
        answer = answer_length(settings, tokens)
        request = Request(tokens, encoder_tokens, settings.requests, answer)
        named, ref = ModelRef(model.id, model.source), EngineRef(self.name, version)
        refusal = unserved(model) or _unkept(model, options, tokens)
        plan = None
        try:
            plan = None if refusal else plan_of(model, settings)
        except RefusedError as error:
            refusal = Refusal(error.code, error.message, help=tuple(error.help))
        if plan is None:
            return SizeResult(named, ref, {}, request, *NOTHING_HELD, (), None, refusal, model.warnings)
        course, requests = plan.course(tokens, answer), settings.requests
        held, most = plan.held(course), plan.needs(course, requests)
        pool, refusal = _pool(plan, settings, request)
        caches = plan.plain if tokens < plan.start else plan.caches
        kept = replace(plan.kept, bits=None) if tokens < plan.start else plan.kept
        return SizeResult(
            named,
            ref,
            _shown(plan, options),
            request,
            PerGpu(
                held, most, most, plain_number(_growth(caches, course)),
                sum(cache.bytes(course) for cache in caches if cache.grows is Grows.STATE),
                prompt_bytes_per_request=max(held, plan.at_prompt(course)),
            ),
            Total(held, most),
            layers_with(model, lambda part: terms_of(model, part, kept)),
            pool,
            refusal,
            (*model.warnings, *((warning,) if warning else ()), *_words(plan, options, held, tokens)),
        )  # fmt: skip

    def served(self, settings: Settings, slots: int, length: int) -> Settings:
        """The settings as mlx_lm.server takes them: so many requests at once, and no longest one."""
        del length
        prompts = min(slots, MlxOptions.of(settings).prompt_concurrency)
        own = settings.own if prompts == PROMPTS else settings.own | {"prompt_concurrency": prompts}
        return replace(settings, max_model_len=None, max_num_seqs=slots, own=own)


def plan_of(model: Model, settings: Serving) -> Plan:
    """Raises KvplanError(bad-setting) and RefusedError(unsupported-model)."""
    options = MlxOptions.of(settings)
    bits = None if options.kv_bits is None else int(options.kv_bits)
    return _plan(
        model, Kept(element_of(model, settings), bits, int(options.kv_group_size), options.max_kv_size),
        options.quantized_kv_start if bits and quantises(model) else 0,
        settings.max_num_batched_tokens or STEP, options.prompt_concurrency,
        settings.max_num_seqs or ANSWERS,
    )  # fmt: skip


@lru_cache(maxsize=256)
def _plan(model: Model, kept: Kept, start: int, step: int, prompts: int, answers: int) -> Plan:
    one = kept.bits is not None or kept.max_size is not None or not batches(model)
    at_once = 1 if one else max(answers, prompts)
    return Plan(
        model, kept, caches_of(model, kept), caches_of(model, replace(kept, bits=None)), start, step,
        min(prompts, at_once), at_once,
    )  # fmt: skip


def element_of(model: Model, settings: Serving) -> Packing:
    """The element type of weights and cache: as asked, else the checkpoint's where it is a plain one, else
    bfloat16, in which mlx_lm.convert stores what it takes apart."""
    if settings.dtype != "auto":
        return scalar(settings.dtype)
    stated = scalar(model.dtype) if model.dtype else None
    return stated if stated is not None and stated.bytes <= 4 else SCALARS["bfloat16"]


def _check(settings: Settings, options: MlxOptions) -> None:
    """Raises KvplanError(unsupported-setting | engine-gpu)."""
    gpu = settings.gpu
    if gpu is not None and gpu.vendor != APPLE:
        raise not_on(gpu, f"MLX is known here on Macs alone: {gpu.name} is none", "--engine vllm")
    for name in _ONE_MAC:
        if getattr(settings, name) > 1:
            raise KvplanError(
                "unsupported-setting",
                f"engine mlx with {name} {getattr(settings, name)}: how it divides a model over several Macs"
                " is not known here",
                help=f"leave {name} at 1",
            )
    word = settings.kv_cache_dtype.removeprefix("torch.")
    if word not in ("auto", settings.dtype.removeprefix("torch.")):
        raise KvplanError(
            "unsupported-setting",
            f"engine mlx with kv_cache_dtype {word!r}: its cache has the model's type, or whole bits",
            help=("--kv-bits 8", "leave kv_cache_dtype at auto"),
        )
    if options.kv_bits is not None and options.max_kv_size is not None:
        raise KvplanError(
            "unsupported-setting",
            "mlx-lm cannot quantise a cache that max_kv_size bounds (RotatingKVCache.to_quantized)",
            help="give kv_bits or max_kv_size",
        )


def _unkept(model: Model, options: MlxOptions, tokens: int) -> Refusal | None:
    """A cache that mlx-lm cannot keep as it is asked to."""
    if options.max_kv_size is not None and type_of(model) not in LIMITED:
        return Refusal(
            "unsupported-setting",
            f"mlx-lm has a cache of its own for {model.model_type}, which max_kv_size does not bound",
            help=("leave max_kv_size out",),
        )
    if options.kv_bits is None or tokens < options.quantized_kv_start:
        return None
    why = not_quantised(model) or _uneven(model, int(options.kv_group_size))
    if why is None:
        return None
    later = f"--quantized-kv-start {tokens + 1}"
    return Refusal(
        "unsupported-setting", f"mlx-lm cannot quantise this cache: {why}", help=("leave kv_bits out", later)
    )


def _uneven(model: Model, group: int) -> str | None:
    """A head whose width is no whole number of groups (mlx.core.quantize stops)."""
    if not quantises(model):
        return None
    plain = caches_of(model, Kept(SCALARS["bfloat16"]))
    widths = {one.term.factors[-1].value for one in plain if one.grows is not Grows.STATE}
    odd = next((width for width in sorted(widths) if width % group), None)
    return None if odd is None else f"heads of {odd} numbers do not divide into groups of {group}"


def _growth(caches: tuple[Cache, ...], course: Course) -> Fraction:
    """Bytes of one more token, without the steps: a window that is full adds none."""
    growing = (
        cache for cache in caches if cache.grows is Grows.WHOLE or (cache.size and course.tokens < cache.size)
    )
    return Fraction(sum(cache.term.entry_bytes * cache.layers for cache in growing))


def _pool(plan: Plan, settings: Settings, request: Request) -> tuple[Pool | None, Refusal | None]:
    memory = settings.kv_cache_memory
    if memory is None:
        return None, None
    course = plan.course(request.tokens, request.answer_tokens)
    fits = plan.fit(course, memory)
    refusal = None
    if not fits:
        longest = longest_in(plan, memory, request.tokens, settings.answer_tokens)
        needs = human_bytes(plan.needs(course, 1))
        refusal = Refusal(
            "not-enough-memory",
            f"a request of {request.tokens:,} tokens needs {needs}; {human_bytes(memory)} are there",
            largest_max_model_len=longest or None,
            help=(f"--tokens {longest}",) if longest else (),
        )
    held = plan.held(course)
    block = ROWS * sum(c.term.entry_bytes * c.layers for c in plan.caches if c.grows is Grows.WHOLE) or held
    blocks = memory // block if block else 0
    return Pool(
        bytes=memory,
        bytes_per_block=block,
        num_blocks=blocks,
        groups=_groups(plan, course),
        kv_tokens=blocks * ROWS,
        max_concurrency=memory / held if held else 0.0,
        max_requests=min(fits, plan.at_once),
        requests_that_fit=fits,
        max_num_seqs=plan.at_once,
        max_running=min(fits, plan.at_once),
    ), refusal


def _groups(plan: Plan, course: Course) -> tuple[PoolGroup, ...]:
    """The caches with as many rows, a row of a state being all of it."""
    pages: dict[tuple[str, int, int], list[Cache]] = {}
    for cache in plan.caches:
        pages.setdefault((cache.grows.value, cache.rows(course), cache.layers), []).append(cache)
    found = []
    for (kind, rows, layers), caches in pages.items():
        size = 1 if kind == Grows.STATE.value else ROWS
        page = size * sum(cache.term.entry_bytes for cache in caches)
        found.append(PoolGroup(kind, layers, size, page, ceil_div(rows, size)))
    return tuple(found)


def longest_in(plan: Plan, memory: int, most: int, answer: int | None) -> int:
    """The longest request, up to ``most`` tokens, that the memory holds alone; 0 where none does."""

    def holds(tokens: int) -> bool:
        return plan.needs(plan.course(tokens, generated(tokens, answer)), 1) <= memory

    return most_up_to(most, holds, max(1, most // 2)) if holds(1) else 0


def _shown(plan: Plan, options: MlxOptions) -> dict[str, Any]:
    kept = plan.kept
    quantised = {"kv_bits": kept.bits, "kv_group_size": kept.group, "quantized_kv_start": plan.start}
    return {
        "dtype": kept.element.name,
        "kv_cache_dtype": kept.element.name if kept.bits is None else f"{kept.bits} bits",
        **(quantised if kept.bits is not None else {}),
        **({"max_kv_size": kept.max_size} if kept.max_size is not None else {}),
        "prefill_step_size": plan.step,
        "prompt_concurrency": plan.prompts,
        "decode_concurrency": plan.at_once,
        "prompt_cache_size": options.prompt_cache_size,
    }


def _words(plan: Plan, options: MlxOptions, held: int, tokens: int) -> list[str]:
    said = []
    model, kept = plan.model, plan.kept
    sliding = any(part.kind is Kind.SLIDING for run in model.runs for part in run.layer.parts)
    if sliding and not any(cache.grows is Grows.ROTATING for cache in plan.caches):
        said.append(f"mlx-lm keeps every token of {model.model_type}'s window layers")
    if kept.bits is not None and not quantises(model):
        said.append(f"mlx-lm leaves the cache of {model.model_type} as it is: kv_bits changes nothing")
    elif kept.bits is not None and tokens < plan.start:
        said.append(f"the cache is quantised from {plan.start:,} tokens on (--quantized-kv-start)")
    if kept.max_size is not None:
        said.append("max_kv_size is an option of mlx_lm.generate: mlx_lm.server has none")
    elif options.prompt_cache_bytes is None and options.prompt_cache_size and held:
        kept_caches = human_bytes(options.prompt_cache_size * held)
        said.append(
            f"mlx_lm.server keeps {options.prompt_cache_size} finished requests' caches too, {kept_caches} of"
            " such, which are not counted: --prompt-cache-bytes bounds them"
        )
    return said
