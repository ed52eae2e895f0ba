"""Formats that vLLM refuses: of the weights on a GPU, of the model, its cache and its states.

vllm-project/vllm vllm/model_executor/layers/quantization/, vllm/config/{vllm,cache,model}.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kvplan.engines.base import EMULATED, has_kind
from kvplan.engines.kv_support import rows_of, unsupported
from kvplan.engines.release_rules import newest, reached
from kvplan.engines.vllm.start.defaults import NO_FLOAT16, Device
from kvplan.engines.vllm.start.resolve import Resolved, asked_word
from kvplan.engines.vllm.versions import rules_of
from kvplan.families import Kind
from kvplan.later import later
from kvplan.model import Model
from kvplan.results import Refusal
from kvplan.settings import Layout

if TYPE_CHECKING:
    from kvplan.architectures import weights as stored
    from kvplan.weights import formats
else:
    stored = later("kvplan.architectures", "weights")
    formats = later("kvplan.weights", "formats")

LEAST_CAPABILITY: dict[str, tuple[tuple[str, tuple[int, int]], ...]] = {
    **dict.fromkeys(("mxfp4", "fbgemm_fp8", "experts_int8"), (("", (8, 0)),)),
    **dict.fromkeys(("fp8", "modelopt_fp4"), (("", (8, 0)), ("0.14", (7, 5)))),
    "modelopt": (("", (8, 9)), ("0.27", (8, 0))),
    "modelopt_mixed": (("", (8, 9)), ("0.24", (7, 5))),
    "modelopt_mxfp8": (("", (10, 0)), ("0.20", (8, 0))),
    **dict.fromkeys(("awq", "torchao"), (("", (7, 5)),)),
    **dict.fromkeys(("compressed-tensors", "bitsandbytes", "quark"), (("", (7, 0)),)),
    **dict.fromkeys(("gptq", "inc"), (("", (6, 0)),)),
    "fp_quant": (("", (10, 0)),),
}
"""Method of quantisation → since which release → the oldest NVIDIA GPUs that it runs on: get_min_capability
in vllm/model_executor/layers/quantization/ of 0.8.5 to 0.33, held against the GPU in vllm/config/vllm.py."""


ON_AMD: dict[str, tuple[str, str]] = {
    **dict.fromkeys(("awq", "compressed-tensors", "fbgemm_fp8", "fp8", "gptq", "quark"), ("", "")),
    **dict.fromkeys(("mxfp4", "torchao"), ("0.10", "")),
    "bitsandbytes": ("0.12", "0.28"),
    "modelopt_fp4": ("0.20", ""),
    **dict.fromkeys(("modelopt", "modelopt_mixed", "modelopt_mxfp8"), ("0.21", "")),
    "inc": ("0.28", ""),
    **dict.fromkeys(("experts_int8", "fp_quant"), ("never", "")),
}
"""Method → the first release whose list for AMD GPUs has it, and the first that has it no more
(supported_quantization in vllm/platforms/rocm.py of 0.8.5 to 0.33; verify_quantization ends the start)."""


def _method(model: Model, settings: Layout, capability: tuple[int, int]) -> str:
    """vLLM's name of the method: ModelOpt's formats have one each (override_quantization_method)."""
    method = settings.quantization or model.quantization or ""
    method = "inc" if method == "auto-round" else method
    if method != "modelopt" or capability >= (10, 0):
        return method
    forms = _forms(model)
    if formats.MXFP8 in forms:
        return "modelopt_mxfp8"
    bits = {form.bits for form in forms}
    return "modelopt" if bits == {8} else "modelopt_mixed" if bits == {4, 8} else "modelopt_fp4"


def _forms(model: Model) -> set[formats.Format]:
    """The formats of the stored matrices that are not in the model's own element size."""
    inventory = stored.sources_of(model).inventory
    tensors = () if inventory is None else inventory.tensors()
    return {tensor.form for _, tensor in tensors if tensor.form is not None}


def emulated(model: Model, settings: Layout, device: Device) -> str | None:
    """That no kernel of AMD's GPUs multiplies such numbers, so that every step takes them apart to 16 bits
    (model_executor/kernels/linear/nvfp4/emulation.py; fused_moe/oracle/nvfp4.py, EMULATION)."""
    if device.assumed or not (settings.quantization or model.quantization):
        return None
    if not any(form.name.startswith("nvfp4") for form in _forms(model)):
        return None
    why = "each step takes the weights apart to 16 bits; nobody has published how long that takes"
    return f"NVFP4 {EMULATED} on {device.name}: {why}"


HALF = ("float16", "bfloat16")
RUNS_IN: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(
        """fp8 fbgemm_fp8 experts_int8 modelopt modelopt_fp4 modelopt_mixed awq gptq inc quark
        moe_wna16""".split(),
        HALF,
    ),
    **dict.fromkeys(("mxfp4", "fp_quant"), ("bfloat16",)),
}
"""Method → the model's element types (get_supported_act_dtypes, the same in 0.20 to 0.33); others are not
bounded."""


def quantisation_refusal(model: Model, settings: Layout, resolved: Resolved, version: str) -> Refusal | None:
    """The method that the weights are stored in, or quantised by while loading: newer kernels, 16 bit."""
    device = resolved.device
    method = _method(model, settings, device.capability)
    steps = LEAST_CAPABILITY.get(method, ())
    least = newest(steps, version) if steps else None
    if least is not None and device.vendor == "nvidia" and device.capability < least:
        had, needed = (".".join(map(str, pair)) for pair in (device.capability, least))
        return Refusal(
            "quantization",
            f"vLLM's {method} kernels need compute capability {needed} or newer: {device.name} has {had}",
            help=(f"choose a GPU of compute capability {needed} or newer", *_newer(steps, version, device)),
        )
    other = _not_on_amd(method, device, version) or _cut_while_stored(model, settings, resolved)
    unordered = _ordered(model, version) if method in ("gptq", "moe_wna16") else None
    if other is not None or unordered is not None:
        return other or unordered
    dtypes = RUNS_IN.get(method)
    if dtypes is None or resolved.dtype.name in dtypes:
        return None
    return Refusal(
        "quantization",
        f"vLLM's {method} runs in {' or '.join(dtypes)}, not in {resolved.dtype.name}",
        help=(f"--dtype {dtypes[-1]}",),
    )


def _not_on_amd(method: str, device: Device, version: str) -> Refusal | None:
    """A method that the release takes on NVIDIA GPUs only."""
    since, until = ON_AMD.get(method, ("", ""))
    if method == "bitsandbytes" and device.target.startswith("gfx9"):
        since = "0.17"  # before it, not with wavefronts of 64
    if device.vendor != "amd" or device.assumed:
        return None
    early = since == "never" or not reached(version, since)
    if not early and not (until and reached(version, until)):
        return None
    later = (f"use engine vllm@{since}",) if early and since != "never" else ()
    return Refusal(
        "quantization",
        f"vLLM {version} runs no {method} checkpoints on AMD GPUs",
        help=(*later, "choose a build in fp8 or quark", "choose an NVIDIA GPU"),
    )


def _cut_while_stored(model: Model, settings: Layout, resolved: Resolved) -> Refusal | None:
    """Numbers that bitsandbytes packed before they were stored: their scales do not divide over ranks
    (vllm/model_executor/model_loader/bitsandbytes_loader.py, _verify_model_compatibility)."""
    if resolved.tp == 1 or model.quantization != "bitsandbytes":
        return None
    return Refusal(
        "quantization",
        f"vLLM cuts no bitsandbytes checkpoint over tensor-parallel ranks: {model.id} was packed whole",
        help=(
            f"--tp 1 --pp {resolved.tp}",
            "the 16-bit model, packed as it loads: --quantization bitsandbytes",
        ),
    )


def _ordered(model: Model, version: str) -> Refusal | None:
    """desc_act with groups, of the checkpoint or of one of its dynamic rules; with a whole row in one group
    the order is none."""
    if not rules_of(version).no_activation_order:
        return None
    stated = (model.config or {}).get("quantization_config")
    if not isinstance(stated, Mapping):
        return None
    rules = stated.get("dynamic")
    own = [rule for pattern, rule in (rules.items() if isinstance(rules, Mapping) else ())
           if not str(pattern).startswith("-:") and isinstance(rule, Mapping)]  # fmt: skip
    for entry in ({}, *own):
        both = {**stated, **entry}
        if both.get("desc_act") is True and both.get("group_size") != -1:
            return Refusal(
                "quantization",
                f"vLLM {version} runs no GPTQ with activation order (desc_act) and groups:"
                f" {model.id} has groups of {both.get('group_size')}",
                help=("a build without desc_act", "use engine vllm@0.29"),
            )
    return None


def _newer(steps: tuple[tuple[str, tuple[int, int]], ...], version: str, device: Device) -> tuple[str, ...]:
    """The first later release whose kernels run there."""
    later = (since for since, needed in steps if not reached(version, since) and device.capability >= needed)
    return tuple(f"use engine vllm@{since}" for since in later)[:1]


KEEP_SCALES = frozenset({"fp8", "modelopt", "modelopt_fp4", "modelopt_mixed", "quark", "compressed-tensors"})
"""Methods whose checkpoints have scales of an fp8 cache in e4m3 (BaseKVCacheMethod and its classes)."""


def _other_fp8(model: Model, kv: str, version: str) -> Refusal | None:
    """No fp8_e5m2 beside such scales (vllm/model_executor/layers/attention/attention.py); since 0.24
    compressed-tensors has them only where its config declares a scheme of the cache."""
    method = model.quantization
    if kv != "fp8_e5m2" or method not in KEEP_SCALES:
        return None
    undeclared = method == "compressed-tensors" and not model.kv_cache_scheme
    if undeclared and rules_of(version).undeclared_e5m2:
        return None
    return Refusal(
        "kv-cache-dtype",
        f"vLLM {version} keeps no fp8_e5m2 cache of {method} checkpoints",
        help=("--kv-cache-dtype fp8",),
    )


STATE_DTYPES = ("auto", "float32", "float16")
"""vllm/config/cache.py, MambaDType; bfloat16 since 0.22."""


def _attends_alone(model: Model) -> bool:
    """Whether some layer attends and keeps no state: of the others layer_types says "hybrid"
    (quantization/turboquant/config.py, _get_full_attention_layer_indices)."""
    kinds = ({part.kind for part in run.layer.parts} for run in model.runs)
    return any(found - {Kind.NONE} and Kind.STATE not in found for found in kinds)


def dtype_refusal(model: Model, settings: Layout, resolved: Resolved, version: str) -> Refusal | None:
    """Element types that the model's cache, its states or the model itself cannot have."""
    return (
        _asked_cache(model, settings, resolved, version)
        or _other_fp8(model, resolved.kv, version)
        or _unkept_cache(model, resolved, version)
        or _states_refusal(model, settings, version)
        or _unstable(model, resolved)
    )


def _asked_cache(model: Model, settings: Layout, resolved: Resolved, version: str) -> Refusal | None:
    """Words for the cache that the release takes, and not beside this model."""
    asked, own, rules = asked_word(settings), resolved.dtype.name, rules_of(version)
    compressed = has_kind(model, Kind.COMPRESSED) and not rules.latent_words
    turboquant = resolved.hybrid and asked.startswith("turboquant_")
    unread = not (rules.float_words or resolved.state_only or has_kind(model, Kind.INDEXER))
    wrong = (
        (
            compressed and asked in ("auto", "bfloat16"),
            f"before 0.30 vLLM's DeepSeek-V4 has to be asked for an fp8 cache, got {asked}",
            ("--kv-cache-dtype fp8",),
        ),
        (
            asked in HALF and unread,
            f"before 0.15 no attention backend of vLLM takes a cache asked for as {asked}",
            ("--kv-cache-dtype auto",),
        ),
        (
            asked in HALF and rules.one_float and asked != own,
            f"vLLM {version} keeps no {asked} cache of a model that runs in {own}",
            ("--kv-cache-dtype auto",),
        ),
        (
            turboquant and not rules.hybrid_turboquant,
            f"vLLM {version} does not quantise a cache beside states by TurboQuant: 0.21 is the first",
            ("--kv-cache-dtype fp8", "use engine vllm@0.21"),
        ),
        (
            turboquant and not _attends_alone(model),
            "TurboQuant beside states wants layers of attention alone, and the config of"
            f" {model.model_type} names none",
            ("--kv-cache-dtype fp8",),
        ),
    )
    return next((Refusal("kv-cache-dtype", why, help=ways) for is_so, why, ways in wrong if is_so), None)


def _unkept_cache(model: Model, resolved: Resolved, version: str) -> Refusal | None:
    """Formats of the cache that no backend of the release keeps on the GPU."""
    device = resolved.device
    none = unsupported("vllm", "vLLM", version, resolved.kv, device.name, device.vendor, device.capability)
    # DeepSeek-V4's records are what its class keeps, not what was asked for.
    own = resolved.kv == "fp8_ds_mla" and has_kind(model, Kind.COMPRESSED)
    # Where no GPU is named, and where no layer keeps K and V, the release alone decides.
    anywhere = device.assumed or resolved.state_only
    if (
        none is None
        or own
        or (anywhere and any(row.in_release(version) for row in rows_of("vllm", resolved.kv)))
    ):
        return None
    return Refusal("kv-cache-dtype", none.message, help=none.help)


def _states_refusal(model: Model, settings: Layout, version: str) -> Refusal | None:
    words = (*STATE_DTYPES, "bfloat16") if rules_of(version).bfloat16_states else STATE_DTYPES
    for word in (settings.mamba_cache_dtype, settings.mamba_ssm_cache_dtype):
        if word not in words:
            return Refusal("mamba-cache-dtype", f"vLLM {version} keeps no states in {word}")
    kda = any(part.family == "kda" for run in model.runs for part in run.layer.parts)
    if kda and settings.mamba_ssm_cache_dtype == "float16":
        return Refusal("mamba-cache-dtype", "KDA's recurrent state is float32 or bfloat16")
    return None


def _unstable(model: Model, resolved: Resolved) -> Refusal | None:
    if resolved.dtype.name != "float16" or model.model_type not in NO_FLOAT16:
        return None
    unstable = f"{model.model_type} is numerically unstable in float16"
    return Refusal("dtype", unstable, help=("--dtype bfloat16",))
