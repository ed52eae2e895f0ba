"""How numbers are stored: packing pairs (n elements take m bytes), never a fraction of a byte.

``Packing`` is what a term is multiplied with. ``VectorFormat`` says how one vector (one head of one
token, or one MLA latent) becomes bytes, scales included. ``KvDtype`` names the formats of K, V, the
MLA latent and the rope key under one of the engines' words.
"""

from __future__ import annotations

from functools import lru_cache

from kvplan.errors import KvplanError, did_you_mean
from kvplan.record import KeptHash, record
from kvplan.units import Positive, ceil_div, round_up


@record()
class Packing(KeptHash):
    """``elements`` numbers take ``bytes`` bytes, scales included; a partly filled pack is a whole one."""

    name: str
    elements: Positive
    bytes: Positive

    def bytes_for(self, count: int) -> int:
        """ceil(count / elements) * bytes."""
        return ceil_div(count, self.elements) * self.bytes


FLOAT32 = Packing("float32", 1, 4)
BFLOAT16 = Packing("bfloat16", 1, 2)
FLOAT16 = Packing("float16", 1, 2)
INT64 = Packing("int64", 1, 8)

SCALARS = {
    "float32": FLOAT32,
    "bfloat16": BFLOAT16,
    "float16": FLOAT16,
    "float64": Packing("float64", 1, 8),
}
_SCALAR_ALIASES = {
    "float": "float32",
    "fp32": "float32",
    "half": "float16",
    "fp16": "float16",
    "bf16": "bfloat16",
    "double": "float64",
}


def scalar(word: str) -> Packing:
    """The packing of a plain element type by its torch name (``bfloat16``, ``torch.float16``, ``half``).

    Raises KvplanError(unknown-dtype).
    """
    name = word.removeprefix("torch.").lower()
    name = _SCALAR_ALIASES.get(name, name)
    if name not in SCALARS:
        near = did_you_mean(name, SCALARS)
        raise KvplanError(
            "unknown-dtype",
            f"unknown dtype {word!r}",
            help=(f"did you mean {near!r}?" if near else "known: " + ", ".join(SCALARS),),
        )
    return SCALARS[name]


@record()
class VectorFormat(KeptHash):
    """One vector of ``width`` numbers: ceil(width * bits / 8) bytes and ``scale_bytes`` per ``group``.

    group 0: the scales lie once in the whole vector (per token and head); the slot is then rounded
    up to a multiple of ``align``.
    """

    bits: int
    group: int = 1
    scale_bytes: int = 0
    align: int = 1

    def packing(self, name: str, width: int) -> Packing:
        if self.group:
            bits = self.group * self.bits
            if bits % 8:
                return Packing(name, self.group * 8, bits + 8 * self.scale_bytes)
            if self.align == 1:
                return Packing(name, self.group, bits // 8 + self.scale_bytes)
            groups = ceil_div(width, self.group)
            body = ceil_div(width * self.bits, 8) + groups * self.scale_bytes
            return Packing(name, width, round_up(body, self.align))
        return Packing(name, width, round_up(ceil_div(width * self.bits, 8) + self.scale_bytes, self.align))


@record()
class KvDtype(KeptHash):
    """A KV-cache format: how K, V, an MLA latent and its rope key are stored.

    ``residual`` > 0: the newest tokens stay in 16 bit until that many have gathered (KIVI).
    ``only_mla``: the format is a record of the MLA latent and means nothing for K and V.
    """

    name: str
    key: VectorFormat
    value: VectorFormat
    latent: VectorFormat
    rope: VectorFormat
    residual: int = 0
    only_mla: bool = False
    source: str = ""

    def key_packing(self, width: int) -> Packing:
        return _packing(self.key, self.name, width)

    def value_packing(self, width: int) -> Packing:
        return _packing(self.value, self.name, width)

    def latent_packing(self, width: int) -> Packing:
        return _packing(self.latent, self.name, width)

    def rope_packing(self, width: int) -> Packing:
        name = "bfloat16" if self.only_mla and self.rope.bits == 16 else self.name
        return _packing(self.rope, name, width)


@lru_cache(maxsize=4096)
def _packing(form: VectorFormat, name: str, width: int) -> Packing:
    return form.packing(name, width)


def _same(name: str, form: VectorFormat, source: str = "", residual: int = 0) -> KvDtype:
    return KvDtype(name, form, form, form, form, residual=residual, source=source)


def _kv(name: str, key: VectorFormat, value: VectorFormat, source: str) -> KvDtype:
    return KvDtype(name, key, value, key, key, source=source)


def _record(name: str, latent: VectorFormat, rope: VectorFormat, source: str) -> KvDtype:
    return KvDtype(name, latent, latent, latent, rope, only_mla=True, source=source)


_VLLM = "vllm-project/vllm vllm/v1/kv_cache_interface.py"
_TURBO = "vllm-project/vllm vllm/model_executor/layers/quantization/turboquant/config.py"
_GGML = "ggml-org/llama.cpp ggml/src/ggml-common.h (block sizes checked by static_assert)"
_OCP = "OCP Microscaling Formats (MX) v1.0: 32 values share one E8M0 scale"
_KIVI = "KIVI (ICML 2024, arXiv 2402.02750): fp16 scale and zero per group, newest tokens in fp16"
_GROUP = "group-wise int4 with fp16 scale and zero per group"

_FORMATS = (
    _same("float32", VectorFormat(32)),
    _same("bfloat16", VectorFormat(16)),
    _same("float16", VectorFormat(16)),
    _same("fp8_e4m3", VectorFormat(8), "one scale per tensor, kept outside the cache"),
    _same("fp8_e5m2", VectorFormat(8), "one scale per tensor, kept outside the cache"),
    _same("int8", VectorFormat(8), "one scale per tensor, kept outside the cache"),
    _same("int8_per_token_head", VectorFormat(8, 0, 4), _VLLM),
    _same("fp8_per_token_head", VectorFormat(8, 0, 4), _VLLM),
    _same("int4_per_token_head", VectorFormat(4, 0, 4), _VLLM),
    _same("nvfp4", VectorFormat(4, 16, 1), _VLLM + ": d/2 + d/16 bytes"),
    _same("mxfp8", VectorFormat(8, 32, 1), _OCP),
    _same("mxfp4", VectorFormat(4, 32, 1), _OCP),
    _same("fp4_mx_block16", VectorFormat(4, 16, 1), "sgl-project/sglang fp4_mx_block16"),
    _record(
        "fp8_ds_mla", VectorFormat(8, 128, 4), VectorFormat(16), _VLLM + ": 512 fp8 + 4 fp32 scales + 64 bf16"
    ),
    _record(
        "nvfp4_ds_mla", VectorFormat(4, 16, 1), VectorFormat(8), _VLLM + ": 256 fp4 + 32 scales + 64 fp8"
    ),
    _kv("turboquant_k8v4", VectorFormat(8), VectorFormat(4, 0, 4), _TURBO),
    _kv("turboquant_4bit_nc", VectorFormat(4, 0, 2), VectorFormat(4, 0, 4), _TURBO),
    _kv("turboquant_k3v4_nc", VectorFormat(3, 0, 2), VectorFormat(4, 0, 4), _TURBO),
    _kv("turboquant_3bit_nc", VectorFormat(3, 0, 2), VectorFormat(3, 0, 4), _TURBO),
    _same("q8_0", VectorFormat(8, 32, 2), _GGML),
    _same("q5_1", VectorFormat(5, 32, 4), _GGML),
    _same("q5_0", VectorFormat(5, 32, 2), _GGML),
    _same("q4_1", VectorFormat(4, 32, 4), _GGML),
    _same("q4_0", VectorFormat(4, 32, 2), _GGML),
    _same("iq4_nl", VectorFormat(4, 32, 2), _GGML),
    _same("int4_g32", VectorFormat(4, 32, 4), _GROUP),
    _same("int4_g64", VectorFormat(4, 64, 4), _GROUP),
    _same("int4_g128", VectorFormat(4, 128, 4), _GROUP),
    _same("kivi2_g32", VectorFormat(2, 32, 4), _KIVI, residual=128),
    _same("kivi2_g64", VectorFormat(2, 64, 4), _KIVI, residual=128),
    _same("kivi2_g128", VectorFormat(2, 128, 4), _KIVI, residual=128),
)
KV_DTYPES = {form.name: form for form in _FORMATS}
_KV_ALIASES = {
    "fp8": "fp8_e4m3",
    "float8_e4m3fn": "fp8_e4m3",
    "fp8_e4m3fn": "fp8_e4m3",
    "float8_e5m2": "fp8_e5m2",
    "bf16": "bfloat16",
    "half": "float16",
    "fp16": "float16",
    "f16": "float16",
    "float": "float32",
    "fp32": "float32",
    "f32": "float32",
    "turboquant_3bit": "turboquant_3bit_nc",
    "turboquant_4bit": "turboquant_4bit_nc",
    "kivi2": "kivi2_g32",
    "int4": "int4_g128",
    "nvfp4_4over6": "nvfp4",
    "fp4_e2m1": "fp4_mx_block16",  # SGLang's word before 0.5.23
}


def kv_dtype(word: str) -> KvDtype:
    """A KV format by the engines' word (``fp8`` is ``fp8_e4m3``). Raises KvplanError(unknown-dtype)."""
    name = word.removeprefix("torch.").lower()
    name = _KV_ALIASES.get(name, name)
    if name not in KV_DTYPES:
        near = did_you_mean(name, [*KV_DTYPES, *_KV_ALIASES])
        raise KvplanError(
            "unknown-dtype",
            f"unknown KV cache dtype {word!r}",
            help=(f"did you mean {near!r}?" if near else "known: " + ", ".join(KV_DTYPES),),
        )
    return KV_DTYPES[name]
