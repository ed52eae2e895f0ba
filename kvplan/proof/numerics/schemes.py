"""How each KV format stores keys, values and an MLA latent, as the engines' kernels write and read them.

A scheme takes [heads, tokens, width] in float32 and gives back what
attention reads. Sources: vllm-project/vllm 0.32 (v1/attention/ops: triton_reshape_and_cache_flash.py,
int4_per_token_head.py, triton_turboquant_store.py; layers/quantization/utils/nvfp4_emulation_utils.py),
sgl-project/sglang 0.5.23 (kvfp4_tensor.py), ggml-org/llama.cpp (ggml-quants.c; rotation: pull request 21038),
OCP Microscaling Formats v1.0, KIVI (arXiv 2402.02750).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from kvplan.dtypes import KV_DTYPES, KvDtype
from kvplan.proof.numerics import numbers
from kvplan.proof.tensor import Tensor
from kvplan.record import record

Stored = Callable[[Tensor, bool], Tensor]
"""Numbers [heads, tokens, width] and whether scales are calibrated, to the numbers that are read."""


@record()
class Scheme:
    """The treatment of keys, values and a latent. scales: whether calibration makes a difference."""

    key: Stored
    value: Stored
    latent: Stored
    rope: Stored
    scales: bool = False


def scheme_of(form: KvDtype) -> Scheme:
    """The scheme of a KV format."""
    return _SCHEMES[form.name]


def _cast(name: str, values: Tensor, calibrated: bool) -> Tensor:
    return numbers.rounded_to(values, name)


def _float8(name: str, largest: float, values: Tensor, calibrated: bool) -> Tensor:
    scale = numbers.one_scale(values, largest, calibrated=calibrated)
    return numbers.rounded_to(values / scale, name) * scale


def _int8(values: Tensor, calibrated: bool) -> Tensor:
    scale = numbers.one_scale(values, 127.0, calibrated=True)
    return (values / scale).round().clamp(-128, 127) * scale


def _int8_by_vector(values: Tensor, calibrated: bool) -> Tensor:
    scale = numbers.vector_scale(values, 127.0)
    return numbers.half_away(values / scale).clamp(-128, 127) * scale


def _float8_by_vector(tile: int, values: Tensor, calibrated: bool) -> Tensor:
    """tile: numbers under a scale; 0: a head's."""
    parts = numbers.grouped(values, tile or values.shape[-1])
    scale = numbers.vector_scale(parts, numbers.E4M3_LARGEST)
    return numbers.joined(numbers.rounded_to(parts / scale, "float8_e4m3fn") * scale, values.shape[-1])


def _int4_by_vector(values: Tensor, calibrated: bool) -> Tensor:
    """Signs, Hadamard, whole steps from the least number; the zero lies in the scale's four lowest bits."""
    import torch

    signs = _signs(values.shape[-1]).to(values.device)
    turned = numbers.hadamard(values * signs).bfloat16().float()
    low, high = turned.amin(-1, keepdim=True), turned.amax(-1, keepdim=True)
    scale = ((high - low) / 15.0).clamp(min=numbers.SMALLEST_SCALE)
    zero = numbers.half_away(-low / scale).clamp(0, 15)
    steps = numbers.half_away(turned / scale + zero).clamp(0, 15)
    kept = (scale.view(torch.int32) & -16 | zero.to(torch.int32)).view(torch.float32)
    return numbers.hadamard((steps - zero) * kept) * signs


def _signs(width: int) -> Tensor:
    import torch

    return torch.randint(0, 2, (width,), generator=torch.Generator().manual_seed(width)) * 2.0 - 1


def _nvfp4(values: Tensor, calibrated: bool) -> Tensor:
    """Sixteen e2m1 under an e4m3 scale, all of them under one of the tensor."""
    whole = numbers.one_scale(values, numbers.E4M3_LARGEST * numbers.E2M1_LARGEST, calibrated=calibrated)
    parts = numbers.grouped(values, 16)
    largest = parts.abs().amax(-1, keepdim=True)
    scale = numbers.rounded_to(largest / numbers.E2M1_LARGEST / whole, "float8_e4m3fn") * whole
    safe = scale.where(scale > 0, scale.new_tensor(1.0))
    return numbers.joined(numbers.e2m1(parts / safe) * scale, values.shape[-1])


def _mxfp8(values: Tensor, calibrated: bool) -> Tensor:
    parts = numbers.grouped(values, 32)
    scale = numbers.power_of_two_scale(parts, 8)
    return numbers.joined(numbers.rounded_to(parts / scale, "float8_e4m3fn") * scale, values.shape[-1])


def _mxfp4(values: Tensor, calibrated: bool) -> Tensor:
    parts = numbers.grouped(values, 32)
    scale = numbers.power_of_two_scale(parts, 2)
    return numbers.joined(numbers.e2m1(parts / scale) * scale, values.shape[-1])


def _mxfp4_of_16(values: Tensor, calibrated: bool) -> Tensor:
    """SGLang's: the power of two is rounded up, so that nothing is cut off."""
    import torch

    parts = numbers.grouped(values, 16)
    largest = (parts.abs().amax(-1, keepdim=True) / numbers.E2M1_LARGEST).clamp(min=1e-10)
    scale = torch.exp2(torch.ceil(torch.log2(largest)))
    return numbers.joined(numbers.e2m1(parts / scale) * scale, values.shape[-1])


def _turbo_key(bits: int, values: Tensor, calibrated: bool) -> Tensor:
    """The unit vector, rotated, each coordinate at the nearest level; read at length one times the norm."""
    norm = values.norm(dim=-1, keepdim=True)
    levels = numbers.lloyd_max(values.shape[-1], bits).to(values.device)
    places = numbers.nearest(numbers.hadamard(values / (norm + 1e-8)), levels)
    found = levels[places]
    found = found / (found.norm(dim=-1, keepdim=True) + 1e-8)
    return numbers.hadamard(found) * norm.half().float()


def _steps(bits: int, size: int, values: Tensor, calibrated: bool) -> Tensor:
    """Whole steps between the least and the largest of ``size`` numbers (0: of the vector)."""
    parts = numbers.grouped(values, size or values.shape[-1])
    return numbers.joined(numbers.between(parts, bits), values.shape[-1])


def _kivi_key(size: int, newest: int, values: Tensor, calibrated: bool) -> Tensor:
    """Each channel over ``size`` tokens; what is younger than the last whole ``newest`` stays in 16 bit."""
    import torch

    old = max(0, values.shape[-2] - newest) // size * size
    channels = values[..., :old, :].transpose(-1, -2)
    kept = _steps(2, size, channels, calibrated).transpose(-1, -2) if old else channels.transpose(-1, -2)
    return torch.cat([kept, values[..., old:, :].half().float()], dim=-2)


def _kivi_value(size: int, newest: int, values: Tensor, calibrated: bool) -> Tensor:
    import torch

    old = max(0, values.shape[-2] - newest)
    kept = _steps(2, size, values[..., :old, :], calibrated) if old else values[..., :0, :]
    return torch.cat([kept, values[..., old:, :].half().float()], dim=-2)


def _rotated(block: Stored, values: Tensor, calibrated: bool) -> Tensor:
    """llama.cpp turns heads whose width is a multiple of 64 before it stores them in a quantised type."""
    if values.shape[-1] % 64:
        return block(values, calibrated)
    return numbers.hadamard(block(numbers.hadamard(values), calibrated))


def _q8_0(values: Tensor, calibrated: bool) -> Tensor:
    parts = numbers.grouped(values, 32)
    scale = parts.abs().amax(-1, keepdim=True) / 127.0
    steps = numbers.half_away(parts / scale.where(scale > 0, scale.new_tensor(1.0)))
    return numbers.joined(steps * scale.half().float(), values.shape[-1])


def _q_signed(bits: int, values: Tensor, calibrated: bool) -> Tensor:
    """q4_0, q5_0: the number of largest magnitude is the lowest step."""
    half = 2 ** (bits - 1)
    parts = numbers.grouped(values, 32)
    most = parts.gather(-1, parts.abs().argmax(-1, keepdim=True))
    scale = most / -half
    steps = (
        (parts / scale.where(scale != 0, scale.new_tensor(1.0)) + half + 0.5).floor().clamp(0, 2 * half - 1)
    )
    return numbers.joined((steps - half) * scale.half().float(), values.shape[-1])


def _iq4_nl(values: Tensor, calibrated: bool) -> Tensor:
    """Levels of a table; the scale that fits best, weighted with the squares (ggml-cuda/cpy-utils.cuh)."""
    parts = numbers.grouped(values, 32)
    levels = numbers.iq4_levels(values.device)
    most = parts.gather(-1, parts.abs().argmax(-1, keepdim=True))
    scale = most / levels[0]
    found = levels[numbers.nearest(parts / scale.where(scale != 0, scale.new_tensor(1.0)), levels)]
    weight = parts * parts
    square = (weight * found * found).sum(-1, keepdim=True)
    best = (weight * found * parts).sum(-1, keepdim=True) / square.clamp(min=1e-30)
    scale = best.where(square > 0, scale)
    return numbers.joined(found * scale.half().float(), values.shape[-1])


def _same(stored: Stored, *, scales: bool = False) -> Scheme:
    return Scheme(stored, stored, stored, stored, scales)


def _ggml(block: Stored) -> Scheme:
    """A latent is not turned."""
    turned = partial(_rotated, block)
    return Scheme(turned, turned, block, block)


def _turbo(key: Stored, bits: int) -> Scheme:
    return Scheme(key, partial(_steps, bits, 0), key, key)


_e4m3 = partial(_float8, "float8_e4m3fn", numbers.E4M3_LARGEST)
_bfloat16 = partial(_cast, "bfloat16")
_SCHEMES: dict[str, Scheme] = {
    "float32": _same(partial(_cast, "float32")),
    "bfloat16": _same(_bfloat16),
    "float16": _same(partial(_cast, "float16")),
    "fp8_e4m3": _same(_e4m3, scales=True),
    "fp8_e5m2": _same(partial(_float8, "float8_e5m2", numbers.E5M2_LARGEST), scales=True),
    "int8": _same(_int8),
    "int8_per_token_head": _same(_int8_by_vector),
    "fp8_per_token_head": _same(partial(_float8_by_vector, 0)),
    "int4_per_token_head": _same(_int4_by_vector),
    "nvfp4": _same(_nvfp4, scales=True),
    "mxfp8": _same(_mxfp8),
    "mxfp4": _same(_mxfp4),
    "fp4_mx_block16": _same(_mxfp4_of_16),
    "fp8_ds_mla": Scheme(_e4m3, _e4m3, partial(_float8_by_vector, 128), _bfloat16),
    "nvfp4_ds_mla": Scheme(_nvfp4, _nvfp4, _nvfp4, _e4m3, scales=True),
    "turboquant_k8v4": _turbo(partial(_cast, "float8_e4m3fn"), 4),
    "turboquant_4bit_nc": _turbo(partial(_turbo_key, 4), 4),
    "turboquant_k3v4_nc": _turbo(partial(_turbo_key, 3), 4),
    "turboquant_3bit_nc": _turbo(partial(_turbo_key, 3), 3),
    "q8_0": _ggml(_q8_0),
    "q5_1": _ggml(partial(_steps, 5, 32)),
    "q5_0": _ggml(partial(_q_signed, 5)),
    "q4_1": _ggml(partial(_steps, 4, 32)),
    "q4_0": _ggml(partial(_q_signed, 4)),
    "iq4_nl": _ggml(_iq4_nl),
    **{f"int4_g{size}": _same(partial(_steps, 4, size)) for size in (32, 64, 128)},
    **{
        f"kivi2_g{size}": Scheme(
            partial(_kivi_key, size, KV_DTYPES[f"kivi2_g{size}"].residual),
            partial(_kivi_value, size, KV_DTYPES[f"kivi2_g{size}"].residual),
            partial(_kivi_value, size, KV_DTYPES[f"kivi2_g{size}"].residual),
            partial(_kivi_value, size, KV_DTYPES[f"kivi2_g{size}"].residual),
        )
        for size in (32, 64, 128)
    },
}
