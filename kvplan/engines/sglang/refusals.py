"""Settings with which SGLang 0.5.23 does not start.

sgl-project/sglang 0.5.23 configs/model_config.py (_derive_context_length), arg_groups/mamba_hook.py,
arg_groups/model_hook.py (handle_mamba_radix_cache), arg_groups/model_overrides/{minicpm,iquest_q1,
ernie45_vl}.py.
"""

from __future__ import annotations

from collections.abc import Callable

from kvplan.engines.base import has_kind, part_terms, undividable
from kvplan.engines.release_rules import reached
from kvplan.engines.sglang.cache_layout.cells import store_of
from kvplan.engines.sglang.classes import row_of
from kvplan.engines.sglang.memory.groups import parallel_of
from kvplan.engines.sglang.options import SglangOptions
from kvplan.engines.sglang.start.arguments import Arguments
from kvplan.engines.sglang.start.backends import NGRAM, overridden_page
from kvplan.engines.sglang.start.config_facts import facts_of
from kvplan.engines.sglang.start.devices import keeps_experts_together
from kvplan.engines.sglang.start.models import has_extra_buffer, known_of, uses_state_radix
from kvplan.engines.sglang.versions import VERSIONS, Rules, rules_of
from kvplan.engines.undivided import block_refusal, undivided_refusal
from kvplan.families import Kind
from kvplan.model import Model
from kvplan.record import replace
from kvplan.results import Refusal
from kvplan.settings import Serving
from kvplan.weights.ranks import Parallel
from kvplan.weights.shares import Cut, Side

_FUSED = ("q_proj", "k_proj", "v_proj", "qkv_proj")
TRACK_INTERVAL = 256
"""--mamba-track-interval: a multiple of the page size."""
_NOT_ON_ROCM: dict[str, str] = {"modelopt": "", "bitsandbytes": "", "gptq": "0.5.20"}
"""Beginning of a method → the first release whose list for AMD GPUs has it not (configs/model_config.py,
_verify_quantization, rocm_supported_quantization, of 0.4.6 to 0.5.23)."""


_ANY_LENGTH = "--any-length: SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1, where the model bears it"


def own_context(model: Model, version: str = VERSIONS[-1]) -> int | None:
    """The longest context that the config states, by SGLang's keys; None for a model without a config."""
    facts = facts_of(model)
    if facts.stretched and not rules_of(version).rope_by_layer:
        return facts.stretched
    return facts.length or None


def refusal_of_settings(
    model: Model, settings: Serving, options: SglangOptions, arguments: Arguments, version: str = VERSIONS[-1]
) -> Refusal | None:
    """The first reason that speaks against the settings; None where there is none."""
    return (
        _length_refusal(model, settings, options, version)
        or _groups_refusal(model, settings, arguments)
        or _lookup_refusal(model, settings, arguments)
        or _draft_refusal(settings, version)
        or _pool_refusal(model, options)
        or _format_refusal(model, settings, arguments, version)
        or _backend_refusal(model, settings, arguments)
        or _experts_refusal(model, arguments)
        or _overlap_refusal(arguments)
        or _states_refusal(model, arguments)
        or undivided_refusal(model, settings, arguments.tp, _divided(model, settings, options, arguments))
        or divided_refusal(model, settings, options, arguments)
        or _strategy_refusal(model, settings, options, arguments)
        or undividable(model, settings)
    )


def _overlap_refusal(arguments: Arguments) -> Refusal | None:
    """arg_groups/validation_hook.py, check_two_batch_overlap."""
    if not arguments.two_batches or arguments.moe_a2a_backend != "none" or arguments.attn_dp > 1:
        return None
    return _unsupported(
        "two-batch overlap wants attention groups, or experts that are exchanged",
        "--attn-dp-size 2",
        "--moe-a2a-backend deepep",
        "leave out --enable-two-batch-overlap",
    )


def _named(model: Model) -> str:
    return model.architecture or model.model_type


def _unsupported(message: str, *help: str) -> Refusal:  # noqa: A002 - as a Refusal calls it
    return Refusal("unsupported-setting", message, help=help)


def _length_refusal(model: Model, settings: Serving, options: SglangOptions, version: str) -> Refusal | None:
    """A context longer than the config's (configs/model_config.py), unless the engine is told to bear it."""
    longest = None if options.any_length else options.config_length or own_context(model, version)
    if settings.max_model_len is None or longest is None or settings.max_model_len <= longest:
        return None
    return Refusal(
        "max-model-len",
        f"--context-length {settings.max_model_len:,} is longer than the {longest:,} of the config",
        largest_max_model_len=longest,
        help=(f"--max-model-len {longest}", _ANY_LENGTH),
    )


def _groups_refusal(model: Model, settings: Serving, arguments: Arguments) -> Refusal | None:
    """Settings that exclude attention in data-parallel groups."""
    if arguments.attn_dp == 1:
        return None
    if known_of(model).no_attention_groups:
        return _unsupported(
            f"SGLang does not divide the attention of {_named(model)} into data-parallel groups",
            "leave out --enable-dp-attention",
        )
    if settings.speculative_method in (NGRAM, "draft_model"):
        return _unsupported(
            f"SGLang does not speculate by {settings.speculative_method} with data-parallel attention",
            "leave out --enable-dp-attention", "--speculative mtp:1",
        )  # fmt: skip
    return None


def _lookup_refusal(model: Model, settings: Serving, arguments: Arguments) -> Refusal | None:
    """Drafts that are looked up in the prompt branch, which pages of several tokens cannot hold."""
    if settings.speculative_method != NGRAM or arguments.page_size == 1 or arguments.backend == "flashinfer":
        return None
    return _unsupported(
        f"SGLang looks up ten branches of drafts, which takes pages of 1 or the backend flashinfer:"
        f" {_named(model)} has pages of {arguments.page_size} and {arguments.backend}",
        "--page-size 1", "--attention-backend flashinfer",
    )  # fmt: skip


def _draft_refusal(settings: Serving, version: str) -> Refusal | None:
    """A context longer than the draft model's."""
    draft = settings.speculative_model
    longest = None if draft is None else own_context(draft, version)
    if settings.max_model_len is None or not longest or settings.max_model_len <= longest:
        return None
    return Refusal(
        "max-model-len",
        f"--context-length {settings.max_model_len:,} is longer than the {longest:,} of the draft",
        largest_max_model_len=longest,
        help=(f"--max-model-len {longest}",),
    )


def _pool_refusal(model: Model, options: SglangOptions) -> Refusal | None:
    """Compressed attention lives in the window pool."""
    if not has_kind(model, Kind.COMPRESSED) or not options.disable_hybrid_swa_memory:
        return None
    return _unsupported(
        f"SGLang does not start {_named(model)} with --disable-hybrid-swa-memory",
        "leave out --disable-hybrid-swa-memory",
    )


def _format_refusal(model: Model, settings: Serving, arguments: Arguments, version: str) -> Refusal | None:
    """Formats of weights that AMD GPUs do not run, or that ranks do not divide; formats of the cache that
    sinks do not go with."""
    method, asked = model.quantization or "", settings.kv_cache_dtype
    since = next((since for start, since in _NOT_ON_ROCM.items() if method.startswith(start)), None)
    if not arguments.device.nvidia and since is not None and reached(version, since):
        return Refusal(
            "unsupported-model",
            f"SGLang does not run {method} checkpoints on AMD GPUs",
            help=("choose a checkpoint in fp8, mxfp4, awq or quark", "choose an NVIDIA GPU"),
        )
    if method == "bitsandbytes" and arguments.tp > 1:  # model_loader/loader.py, BitsAndBytesModelLoader
        return Refusal(
            "unsupported-model",
            f"SGLang cuts no bitsandbytes checkpoint over tensor-parallel ranks: {model.id} was packed whole",
            help=(f"--tp 1 --pp {arguments.tp}", "a build in fp8 or awq"),
        )
    if has_kind(model, Kind.INDEXER) and facts_of(model).sinks and asked not in ("auto", "bfloat16"):
        return Refusal(
            "kv-cache-dtype",
            f"SGLang keeps the cache of sparse attention with learnable sinks in bfloat16, not in {asked}",
            help=("--kv-cache-dtype bfloat16",),
        )
    return None


def _backend_refusal(model: Model, settings: Serving, arguments: Arguments) -> Refusal | None:
    if settings.attention_backend is not None or not _must_be_named(model, arguments.rules):
        return None
    return _unsupported(
        f"this SGLang does not start {_named(model)} unless its attention backend is named",
        "--attention-backend fa3", "--attention-backend triton",
    )  # fmt: skip


def _must_be_named(model: Model, rules: Rules) -> bool:
    """Exaone 4's own class until 0.5.21, Llama 4 from 0.4.10 to 0.5.5: an assertion meets None."""
    if known_of(model).override == "exaone4":
        return rules.exaone_class and not rules.exaone_backend
    return rules.llama4_named and known_of(model).override == "llama4"


def _experts_refusal(model: Model, arguments: Arguments) -> Refusal | None:
    """The kernel of the experts divides them by all ranks or by none (`.expert_kernels`)."""
    divided = 1 < arguments.ep < arguments.tp and arguments.rules.divided_experts
    if not divided or not keeps_experts_together(model, arguments.device, arguments.moe_a2a_backend):
        return None
    return Refusal(
        "tensor-parallel",
        f"the kernel of {model.id}'s experts takes an --ep-size of 1 or of all {arguments.tp} ranks",
        help=(f"--ep-size {arguments.tp}", "--ep-size 1"),
    )


def divided_refusal(
    model: Model, settings: Serving, options: SglangOptions, arguments: Arguments, *, assumed: bool = False
) -> Refusal | None:
    """A rank would have a part of a block of FP8 weights, or of a group of AWQ's.

    sgl-project/sglang 0.4.7 to 0.5.23 layers/quantization/fp8.py (validate_block_quant_shapes, of fused
    matrices too; Fp8MoEMethod, create_weights), awq/schemes/awq_linear.py,
    compressed_tensors/schemes/compressed_tensors_{wNa16,w8a8_fp8_moe}.py.
    """
    if not arguments.device.nvidia:
        return None
    # skip_block_quant_check of models/mimo_v2.py: MiMo-V2-Flash starts over four ranks with keys 192 wide
    # (sgl-project/sglang#18039).
    unheld = model.model_type.startswith("mimo_v2")

    def stops(cut: Cut, method: str) -> bool:
        if cut.is_expert:  # also model_runner_components/moe_ep_setup.py, check_quantized_moe_compatibility
            return cut.in_blocks and method in ("fp8", "compressed-tensors")
        if arguments.attn_dp > 1:  # attention among fewer ranks than there are is not checked
            return False
        if unheld and cut.side is Side.OUTPUTS and cut.name.endswith(_FUSED):
            return False
        inputs = method in ("awq", "compressed-tensors") and cut.in_groups and cut.side is Side.INPUTS
        return inputs or (cut.in_blocks and method == "fp8")

    whole_experts = f"--ep-size {arguments.tp}" if arguments.ep < arguments.tp else ""
    divided = _divided(model, settings, options, arguments)
    return block_refusal(model, settings, arguments.tp, divided, stops, whole_experts, assumed=assumed)


def _divided(
    model: Model, settings: Serving, options: SglangOptions, arguments: Arguments
) -> Callable[[int], Parallel]:
    """How the weights lie over so many tensor-parallel ranks."""

    def over(tp: int) -> Parallel:
        ranks = parallel_of(model, arguments, settings, options)
        return replace(ranks, tensor_parallel_size=tp, expert_parallel_size=min(arguments.ep, tp))

    return over


def _states_refusal(model: Model, arguments: Arguments) -> Refusal | None:
    """Heads of a state are divided evenly, or not at all (configs/mamba_utils.py, divide)."""
    ranks = arguments.state_tp
    for run in model.runs:
        for part in run.layer.parts:
            if part.kind is not Kind.STATE or ranks == 1:
                continue
            terms = part_terms(part, store_of(arguments, part))
            own = [term for term in terms if not term.name.startswith("conv")] or terms
            uneven = [
                factor.value
                for term in own
                for factor in term.factors
                if factor.sharded and factor.value % ranks
            ]
            if uneven:
                return Refusal(
                    "unsupported-setting",
                    f"SGLang does not divide the {uneven[0]:,} state heads of {model.id} over {ranks} ranks",
                    help=("choose a --tp that divides them",),
                )
    return None


def _strategy_refusal(
    model: Model, settings: Serving, options: SglangOptions, arguments: Arguments
) -> Refusal | None:
    """validate_mamba_extra_buffer and validate_mamba_no_buffer: of hybrids with reuse of prompts."""
    if arguments.rules.drafts_or_states and arguments.draft_tokens and arguments.radix:
        return _drafts_beside_states(model, options, arguments)
    if options.disable_radix_cache or not arguments.rules.extra_buffer:
        return None  # before 0.5.23 the settings give way: pages of one, no overlap
    strategy, name = arguments.strategy, model.architecture or model.model_type
    extra = strategy in ("extra_buffer", "extra_buffer_lazy")
    if not uses_state_radix(model):
        why = f"--mamba-radix-cache-strategy {strategy} needs states that SGLang reuses: {name} has none"
        ways = ("leave out --mamba-radix-cache-strategy",)
        return Refusal("unsupported-setting", why, help=ways) if extra else None
    page = overridden_page(model, settings, arguments.device, arguments.backend)
    if extra:
        return _no_strategy(
            (not has_extra_buffer(model), f"SGLang has no {strategy} for {name}"),
            (
                TRACK_INTERVAL % (page or 1) > 0,
                f"{TRACK_INTERVAL}, the interval of state tracking, is no multiple of {page}",
            ),
            (
                strategy == "extra_buffer_lazy" and not arguments.overlap,
                "extra_buffer_lazy needs overlapped scheduling",
            ),
        )
    if strategy != "no_buffer":
        return None
    chosen = settings.attention_backend is not None or row_of(name).override == "nemotron_h"
    return _no_strategy(
        (
            page not in (None, 1),
            f"the states of {name} are kept without a buffer, which takes pages of 1 only",
        ),
        (arguments.overlap, "no_buffer does not go with overlapped scheduling"),
        (
            arguments.backend == "trtllm_mha" and chosen,  # a default that is found later is not looked at
            "no_buffer does not go with the attention backend trtllm_mha",
        ),
    )


def _drafts_beside_states(model: Model, options: SglangOptions, arguments: Arguments) -> Refusal | None:
    """server_args.py of 0.5.10 to 0.5.13 (_handle_mamba_radix_cache): no buffer unless it is asked for, which
    is for NVIDIA alone."""
    buffered = options.mamba_radix_cache_strategy == "extra_buffer" and arguments.device.nvidia
    if buffered or not uses_state_radix(model):
        return None
    asked = ("--mamba-radix-cache-strategy extra_buffer",) if arguments.device.nvidia else ()
    return Refusal(
        "unsupported-setting",
        "before 0.5.14 speculation goes with the reuse of states only where they are kept in extra buffers"
        " (--mamba-scheduler-strategy extra_buffer)",
        help=(*asked, "--disable-radix-cache"),
    )


def _no_strategy(*rows: tuple[bool, str]) -> Refusal | None:
    """rows: what must not be, and the sentence that says so; the first that is."""
    ways = (
        "--disable-overlap-schedule",
        "leave out --mamba-radix-cache-strategy and --page-size",
        "--disable-radix-cache",
    )
    why = next((sentence for holds, sentence in rows if holds), None)
    return None if why is None else Refusal("unsupported-setting", why, help=ways)
