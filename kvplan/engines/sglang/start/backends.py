"""Which attention backend a model gets on a GPU, and the pages that it needs.

sgl-project/sglang 0.5.23 arg_groups/model_override_base.py (get_default_attn_backend),
arg_groups/overrides.py (_mla_backend_page_constraints, _attention_backend_fa3_fp8_fallback,
_fa4_page_constraint, _page_size_default), arg_groups/model_hook.py, arg_groups/model_overrides/*.py.
"""

from __future__ import annotations

from collections.abc import Mapping

from kvplan.dtypes import KvDtype
from kvplan.engines.base import has_kind
from kvplan.engines.sglang.classes import ModelClass, row_of
from kvplan.engines.sglang.options import SglangOptions
from kvplan.engines.sglang.start.config_facts import facts_of
from kvplan.engines.sglang.start.devices import Device
from kvplan.engines.sglang.start.dtypes import is_sparse_latent
from kvplan.engines.sglang.start.models import class_of, has_fa3, is_deepseek, is_multimodal, known_of
from kvplan.engines.sglang.versions import VERSIONS, Rules, later_classes, rules_of
from kvplan.errors import KvplanError
from kvplan.families import Kind
from kvplan.model import Model
from kvplan.settings import Serving

NGRAM = "ngram"
"""Drafts are looked up in the tokens that are there: no layers."""
FROM_GIB = 60
"""Qwen3-VL on Hopper has defaults of its own from this memory on (model_overrides/qwen3_vl.py)."""
_HOPPER_VL = frozenset(("qwen3_vl", "qwen3_vl_moe"))
_EXAONE = ("exaone4", "exaone_moe")


def backend_of(
    model: Model,
    settings: Serving,
    device: Device,
    kv: KvDtype,
    *,
    strategy: str,
    options: SglangOptions,
    version: str = VERSIONS[-1],
) -> str:
    """As given, else the model's own override, else the default by architecture and GPU.

    strategy: of the states, as given. Raises KvplanError(unsupported-setting) for a backend that the class
    or the GPU does not take.
    """
    if has_kind(model, Kind.COMPRESSED):
        return "dsv4"
    found = settings.attention_backend.lower() if settings.attention_backend is not None else None
    if found is None:
        older = not rules_of(version).hopper_fa3
        found = _older(model, settings, device, version) if older else None
        if known_of(model).override == "nemotron_h" and not rules_of(version).nemotron_backends:
            found = found or ("flashinfer" if device.sm100 else None)
        else:
            found = found or named_backend(model, settings, device, kv, strategy, options)
        found = found or _default(model, settings, device, kv)
        if found == "dsa" and rules_of(version).nsa:
            return "nsa"
    if class_of(model) not in later_classes(version):  # such a class is refused for itself
        _check(model, device, kv, found, rules_of(version))
    return "triton" if found == "fa3" and kv.name == "fp8_e5m2" else found


def _older(model: Model, settings: Serving, device: Device, version: str) -> str | None:
    """The default before 0.5.8; None where it is today's."""
    rules, row = rules_of(version), row_of(class_of(model))
    if is_sparse_latent(model) or (_named(model, "gpt_oss", "llama4") and rules.gpt_oss_trtllm):
        return None
    if has_kind(model, Kind.STATE):
        if not rules.states_by_ratio:
            return "hybrid_linear_attn"
        if device.sm100 and (not rules.hybrid_backends or row.sm100_backend != "triton"):
            return _older_hybrid(row, rules)
    if not device.nvidia:
        return None
    if has_kind(model, Kind.MLA):
        return _older_latent(row, device, rules)
    if device.hopper and has_fa3(class_of(model), version) and _is_plain_chain(settings):
        return "fa3"
    if row.override == "olmo2" and rules.olmo_backends:
        return None
    return "trtllm_mha" if device.sm100 and rules.sm100_trtllm and _is_linear(settings) else "flashinfer"


def _older_hybrid(row: ModelClass, rules: Rules) -> str:
    """Classes with states on SM100."""
    if not rules.sm100_trtllm:
        return "flashinfer"
    if row.older_sm100_backend:
        return row.older_sm100_backend
    return "flashinfer" if row.override == "nemotron_h" and rules.hybrid_backends else "trtllm_mha"


def _older_latent(row: ModelClass, device: Device, rules: Rules) -> str:
    """Classes with latent attention on NVIDIA GPUs."""
    if device.hopper:
        return "fa3"
    if device.sm100 and rules.deepseek_trtllm and row.older_sm100_backend:
        return row.older_sm100_backend
    return "flashinfer" if device.sm100 and rules.latent_flashinfer else "triton"


def decode_backend_of(model: Model, settings: Serving, device: Device, backend: str) -> str:
    """The backend of decoding, where it is not that of prefill."""
    if settings.attention_backend is None:
        if is_large_hopper_vl(model, device):
            return "flashinfer"
        if settings.decode_context_parallel_size > 1:
            return known_of(model).context_parallel_decode or backend
    return backend


def is_large_hopper_vl(model: Model, device: Device) -> bool:
    """large_hopper_qwen3_vl_model_type."""
    enough = device.memory_mib is not None and device.memory_mib >= FROM_GIB * 1024
    return (
        enough
        and device.hopper
        and is_multimodal(model)
        and str(model.facts.get("top_model_type")) in _HOPPER_VL
    )


def named_backend(
    model: Model, settings: Serving, device: Device, kv: KvDtype, strategy: str, options: SglangOptions
) -> str | None:
    """As given, else what the class's own override says (arg_groups/model_overrides); None: nothing."""
    if settings.attention_backend is not None:
        return settings.attention_backend.lower()
    if is_sparse_latent(model):
        return "dsa"
    if has_kind(model, Kind.INDEXER):
        if device.sm100:
            return "trtllm_mha" if kv.name == "fp8_e4m3" else "fa4"
        return "fa3" if device.hopper else None
    if device.sm100:
        return _own_sm100(model, settings, strategy, options)
    return None if is_large_hopper_vl(model, device) else _own_elsewhere(model, settings, device)


_OVERRIDES: Mapping[tuple[str, ...], tuple[str | None, str | None, str | None, str | None]] = {
    ("gemma4", "diffusion_gemma"): ("triton", "triton", "triton", "triton"),
    ("inkling",): ("fa4", "triton", "triton", "triton"),
    ("beam",): ("trtllm_mha", "trtllm_mha", None, None),
    ("iquest_q1",): ("fa3", "fa3", "fa3", "fa3"),
    ("step3p5", "step3p7"): ("fa3", "fa4", None, None),
    ("gpt_oss", "llama4"): ("fa3", "triton", "triton", "aiter"),
}
"""Starts of names → the override on Hopper, on Blackwell but SM100, on older NVIDIA GPUs, on AMD's."""


def _own_elsewhere(model: Model, settings: Serving, device: Device) -> str | None:
    """The overrides on other GPUs than SM100."""
    generation = 0 if device.hopper else 1 if device.blackwell else 2 if device.nvidia else 3
    for stems, backends in _OVERRIDES.items():
        if _named(model, *stems):
            return backends[generation]
    if _named(model, "kimi_k3") and settings.decode_context_parallel_size > 1:
        return "trtllm_mla"
    if known_of(model).override == "olmo2" or _windowed_exaone(model):
        return "fa3" if device.nvidia and device.capability >= (8, 0) else "triton"
    drafts = settings.speculative_method is not None
    return "triton" if drafts and device.blackwell and _named(model, "nemotron_h") else None


def _windowed_exaone(model: Model) -> bool:
    return known_of(model).override in _EXAONE and facts_of(model).windowed


def _own_sm100(model: Model, settings: Serving, strategy: str, options: SglangOptions) -> str | None:
    """The overrides on SM100 and SM103."""
    name, known = class_of(model), known_of(model)
    if is_deepseek(model) or _named(model, "kimi_k3"):
        return "trtllm_mla"
    if _named(model, "iquest_q1"):
        return "fa3"
    if known.sm100_backend == "triton" or _named(model, "falcon_h1", "diffusion_gemma"):
        return "triton"
    if has_kind(model, Kind.STATE) and (
        known.sm100_backend == "flashinfer" or (not name and _named(model, "lfm2", "granitemoehybrid"))
    ):
        return "flashinfer"
    if _named(model, "mimo_v2", "inkling", "step3p5", "step3p7"):
        return "fa4"
    if known.override == "qwen3_5" or (not name and _named(model, "qwen3_next", "qwen3_5", "qwen4_exp")):
        return _hybrid_qwen_sm100(settings, strategy, options)
    starts = ("gpt_oss", "llama4", "gemma4", "beam", "nemotron_h")
    named = _named(model, *starts) or known.override == "olmo2" or _windowed_exaone(model)
    return "trtllm_mha" if named else None


def _hybrid_qwen_sm100(settings: Serving, strategy: str, options: SglangOptions) -> str:
    """arg_groups/model_overrides/qwen3_5.py."""
    kept = strategy in ("extra_buffer", "extra_buffer_lazy") or options.disable_radix_cache
    kept = kept or settings.speculative_method is not None
    return "trtllm_mha" if kept and _is_linear(settings) else "triton"


def _default(model: Model, settings: Serving, device: Device, kv: KvDtype) -> str:
    """get_default_attn_backend, for chains of drafts (top-k 1)."""
    if kv.name == "mxfp8":
        return "fa4"
    if known_of(model).default_backend:
        return known_of(model).default_backend
    if has_kind(model, Kind.MLA):
        if not device.nvidia:
            heads = max(1, model.num_attention_heads // settings.tensor_parallel_size)
            return "aiter" if heads in (16, 128) else "triton"
        return "fa3" if device.hopper else "flashinfer" if device.sm100 else "triton"
    if device.hopper and _is_plain_chain(settings):
        return "fa3"
    if device.sm100 and _is_linear(settings):
        return "fa4" if _unequal(model) else "trtllm_mha"
    if not device.nvidia:
        return "aiter"
    return "triton" if has_sinks(model) else "flashinfer"


def _is_plain_chain(settings: Serving) -> bool:
    """is_no_spec_infer_or_topk_one: no drafts, or a chain of them with pages of one token; breadth of drafts
    that are looked up is decided later."""
    return settings.speculative_method in (None, NGRAM) or settings.block_size in (None, 1)


def _is_linear(settings: Serving) -> bool:
    """No drafts, or a plain chain that is not looked up, whose breadth is not one."""
    return _is_plain_chain(settings) and settings.speculative_method != NGRAM


def has_sinks(model: Model) -> bool:
    """ModelConfig._detect_attention_sinks: FlashInfer has no attention with sinks."""
    return known_of(model).sinks or facts_of(model).sinks


def _check(model: Model, device: Device, kv: KvDtype, backend: str, rules: Rules) -> None:
    name, known = class_of(model), known_of(model)
    if known.override == "olmo2" and not rules.olmo_backends:
        return
    if known.override == "exaone4" and not rules.exaone_class:
        return
    every = known.override in _EXAONE and not _windowed_exaone(model)
    if known.backends and backend not in known.backends and not every:
        raise _refused(name, backend, known.backends)
    if backend == known.refused_backend:
        raise _refused(name, backend, ("fa3",))
    if backend in ("trtllm_mla", "cutedsl_mla"):
        if device.major not in (10, 11, 12):
            raise _refused(device.name, backend, ("fa3",))
        if kv.name not in ("fp8_e4m3", "bfloat16", "float16"):
            raise KvplanError(
                "unsupported-dtype",
                f"SGLang's backend {backend} keeps its cache in bfloat16 or fp8_e4m3, not in {kv.name}",
                help="use fp8_e4m3",
            )
    if backend == "trtllm_mha" and device.major not in (9, 10, 12):
        raise _refused(device.name, backend, ("flashinfer",))


def _refused(who: str, backend: str, ways: tuple[str, ...]) -> KvplanError:
    return KvplanError(
        "unsupported-setting",
        f"SGLang does not run {who} with the attention backend {backend}",
        help=tuple(f"--attention-backend {way}" for way in ways),
    )


def _unequal(model: Model) -> bool:
    return any(part.value_width != part.key_width for run in model.runs for part in run.layer.parts)


def _named(model: Model, *stems: str) -> bool:
    """By the start of the model type, or of the class's name without underscores."""
    own = (model.model_type.replace("-", "_"), class_of(model).lower())
    return any(own[0].startswith(stem) or own[1].startswith(stem.replace("_", "")) for stem in stems)


def overridden_page(model: Model, settings: Serving, device: Device, backend: str) -> int | None:
    """--page-size as the states' strategy sees it: Qwen3.5's hybrids set it on SM100 (qwen3_5.py)."""
    if device.sm100 and settings.attention_backend is None and known_of(model).override == "qwen3_5":
        return 64 if backend == "trtllm_mha" else 1
    return settings.block_size


def page_size_of(model: Model, settings: Serving, device: Device, backend: str, decode: str) -> int:
    """--page-size (here block_size), made what the model or the backend needs; 1 by default."""
    asked = settings.block_size
    if has_kind(model, Kind.COMPRESSED):
        return 256
    if is_sparse_latent(model):
        return 64 if device.nvidia else asked or 1
    asked = overridden_page(model, settings, device, backend)
    if has_kind(model, Kind.INDEXER):
        asked = asked or (128 if device.major in (9, 10) else 1)
    either = (backend, decode)
    if "flashmla" in either:
        asked = 64
    if ("trtllm_mla" in either or "cutedsl_mla" in either) and asked not in (32, 64):
        asked = 64
    if "trtllm_mha" in either and asked not in (16, 32, 64, 128):
        asked = 64
    if "hpc_ops" in either:
        asked = 64
    if "fa4" in either and device.sm100 and not has_kind(model, Kind.MLA):
        return known_of(model).fa4_page
    return asked or 1
