"""Settings with which SGLang 0.5.23 does not start.

sgl-project/sglang 0.5.23 configs/model_config.py (_derive_context_length), arg_groups/mamba_hook.py,
arg_groups/model_hook.py (handle_mamba_radix_cache), arg_groups/model_overrides/{minicpm,iquest_q1,
ernie45_vl}.py.
"""

from __future__ import annotations

from kvplan.engines.base import has_kind, too_many_stages
from kvplan.engines.options import Options
from kvplan.engines.sglang.arguments import Arguments
from kvplan.engines.sglang.models import class_of, has_extra_buffer, uses_state_radix
from kvplan.families import Kind
from kvplan.model import Model
from kvplan.results import Refusal
from kvplan.settings import Settings

TRACK_INTERVAL = 256
"""--mamba-track-interval: a multiple of the page size."""
_NO_ATTENTION_GROUPS = frozenset(
    """MiniCPMForCausalLM MiniCPMSALAForCausalLM IQuestQ1ForCausalLM
    Ernie4_5_VLMoeForConditionalGeneration""".split()
)


def own_context(model: Model) -> int | None:
    """The longest context that the config states, by SGLang's keys; None for a model without a config."""
    found = model.facts.get("sglang_model_len", model.max_model_len)
    return found if isinstance(found, int) and found > 0 else None


def refusal_of_settings(
    model: Model, settings: Settings, options: Options, arguments: Arguments
) -> Refusal | None:
    """The first reason that speaks against the settings; None where there is none."""
    name, longest = model.architecture or model.model_type, own_context(model)
    if settings.max_model_len is not None and longest is not None and settings.max_model_len > longest:
        return Refusal(
            "max-model-len",
            f"--context-length {settings.max_model_len:,} is longer than the {longest:,} of the config",
            largest_max_model_len=longest,
            help=(f"--max-model-len {longest}", "set SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1"),
        )
    if arguments.attn_dp > 1 and class_of(model) in _NO_ATTENTION_GROUPS:
        return Refusal(
            "unsupported-setting",
            f"SGLang does not divide the attention of {name} into data-parallel groups",
            help=("leave out --enable-dp-attention",),
        )
    if has_kind(model, Kind.COMPRESSED) and options.flag("disable_hybrid_swa_memory"):
        return Refusal(
            "unsupported-setting",
            f"SGLang does not start {name} with --disable-hybrid-swa-memory",
            help=("leave out --disable-hybrid-swa-memory",),
        )
    return _strategy_refusal(model, settings, arguments) or too_many_stages(model, settings)


def _strategy_refusal(model: Model, settings: Settings, arguments: Arguments) -> Refusal | None:
    """validate_mamba_extra_buffer and validate_mamba_no_buffer: of hybrids with reuse of prompts."""
    if not arguments.radix:
        return None
    strategy, name = arguments.strategy, model.architecture or model.model_type
    extra = strategy in ("extra_buffer", "extra_buffer_lazy")
    if not uses_state_radix(model):
        if extra and not has_kind(model, Kind.STATE):
            why = f"--mamba-radix-cache-strategy {strategy} needs states, and {name} has none"
            return Refusal("unsupported-setting", why, help=("leave out --mamba-radix-cache-strategy",))
        return None
    page = settings.block_size
    if extra:
        if not has_extra_buffer(model):
            return _no_strategy(f"SGLang has no {strategy} for {name}")
        if page is not None and TRACK_INTERVAL % page:
            return _no_strategy(f"{TRACK_INTERVAL}, the interval of state tracking, is no multiple of {page}")
        return None
    if strategy != "no_buffer":
        return None
    if page not in (None, 1):
        return _no_strategy(f"the states of {name} are kept without a buffer, which takes pages of 1 only")
    if arguments.overlap:
        return _no_strategy("no_buffer does not go with overlapped scheduling")
    if arguments.backend == "trtllm_mha" and settings.attention_backend is not None:
        return _no_strategy("no_buffer does not go with the attention backend trtllm_mha")
    return None


def _no_strategy(why: str) -> Refusal:
    ways = (
        "--disable-overlap-schedule",
        "leave out --mamba-radix-cache-strategy and --page-size",
        "--disable-radix-cache",
    )
    return Refusal("unsupported-setting", why, help=ways)
