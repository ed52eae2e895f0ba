"""Which backend an MLA layer gets, dense or with a token indexer: see `backends.selection`."""

from __future__ import annotations

from kvplan.engines.vllm.backends.selection import (
    Ask,
    NoBackendError,
    first_flashinfer,
    named,
    not_served,
    triton_takes,
)
from kvplan.engines.vllm.backends.table import BACKENDS, Backend, row_of
from kvplan.families import Part

MLA_HEADS = (320, 512, 576)
"""Widths of latent and rope key that the CUDA kernels are built for."""
NOPE_WIDTHS = (64, 128, 192)
"""Widths of heads without positions that FLASHINFER_MLA takes (mla/flashinfer_mla.py)."""


def latent_backend(ask: Ask, *, sparse: bool) -> Backend:
    """The backend of an MLA layer, with or without a token indexer. Raises NoBackendError."""
    names = _sparse_latent(ask) if sparse else _dense_latent(ask)
    if ask.chosen is not None:
        backend = named(ask)
        taken = _BY_NAME.get(backend.name)
        if backend.name not in names and not (taken is not None and taken(ask, sparse)):
            raise not_served(ask, backend)
        names = [backend.name]
    for name in names:
        backend = BACKENDS[name]
        if not ask.divided(name):
            continue
        if ask.block_size is None or backend.accepts(ask.block_size):
            if name == "TRITON_MLA":
                triton_takes(ask, "Triton MLA")
                if ask.quantized and ask.rules.latent_fp8 == "hopper":
                    continue
            if name == "FLASHMLA_SPARSE" and ask.dcp and not ask.quantized:
                raise NoBackendError(
                    "FlashMLA's sparse kernels divide a request's tokens among ranks (decode context"
                    " parallelism) in an fp8 cache only"
                )
            return backend
    what = "sparse MLA" if sparse else "MLA"
    raise NoBackendError(
        f"no {what} backend takes {ask.kv} with latents of {ask.head_dim} on {ask.device.name}"
    )


def note_backend(part: Part, ask: Ask) -> Backend:
    """dots3's own kernels: windows as MLA over Triton, the rest sparse over rows of a window's width, where
    sparse attention runs at all (vllm/models/dots3_note/nvidia/). Raises NoBackendError."""
    if ask.quantized:
        raise NoBackendError(f"dots3's sparse attention keeps its cache in 16 bit, not in {ask.kv}")
    if part.window is not None:
        return BACKENDS["DOTS3_NOTE_TRITON_MLA"]
    if stored_latent(ask, latent_backend(ask, sparse=True)) == "fp8_ds_mla":
        raise NoBackendError(f"dots3's sparse attention reads no records, which {ask.device.name} keeps")
    return BACKENDS["DOTS3_NOTE_PADDED_MLA_SPARSE"]


def _flashinfer(ask: Ask, sparse: bool) -> bool:
    return ask.device.major == 10 and not sparse and (ask.fp8 or not ask.quantized)


def _tokenspeed(ask: Ask, sparse: bool) -> bool:
    """The kernels of the package tokenspeed-mla, made for DeepSeek-R1's widths (mla/tokenspeed_mla.py,
    supports_combination): heads of 128 without positions, and 64 with; since 0.21, only where it is named."""
    row = row_of("TOKENSPEED_MLA", ask.version)
    fits = row is not None and row.runs_on(ask.device.capability) and _row_serves(ask, "TOKENSPEED_MLA")
    return fits and not sparse and ask.head_dim == 576 and ask.nope_width == 128


_BY_NAME = {"FLASHINFER_MLA": _flashinfer, "TOKENSPEED_MLA": _tokenspeed}
"""Backends that are not among a GPU's own choices, and who may name them."""


def _dense_latent(ask: Ask) -> list[str]:
    if (ask.quantized and not ask.fp8) or ask.dtype == "float32":
        return []
    major, known = ask.device.major, ask.head_dim in MLA_HEADS
    names = []
    if first_flashinfer(ask) and ask.nope_width in NOPE_WIDTHS and _row_serves(ask, "FLASHINFER_MLA"):
        names.append("FLASHINFER_MLA")
    if major == 10 and known:
        names.append("CUTLASS_MLA")
    if major == 9 and known:
        names += [] if ask.quantized else ["FLASH_ATTN_MLA"]
        names.append("FLASHMLA")
    return [*names, "TRITON_MLA"]


_FLASHMLA_SPARSE = ("auto", "bfloat16", "fp8", "fp8_ds_mla")


def _sparse_latent(ask: Ask) -> list[str]:
    major = ask.device.major
    names: list[str] = []
    if ask.dtype == "float32":
        return names
    # FlashMLA's sparse kernels take bfloat16 queries only.
    flashmla = ask.dtype == "bfloat16" and _flashmla_takes_width(ask)
    if major == 9:
        if ask.rules.sparse_flash and not ask.quantized and not ask.dcp:
            names.append("FLASH_ATTN_MLA_SPARSE")
        if flashmla and ask.kv in _FLASHMLA_SPARSE:
            names.append("FLASHMLA_SPARSE")
        if _row_serves(ask, "FLASHINFER_MLA_SPARSE_SM90"):
            names.append("FLASHINFER_MLA_SPARSE_SM90")
    if major == 12 and _row_serves(ask, "FLASHINFER_MLA_SPARSE_SM120"):
        names.append("FLASHINFER_MLA_SPARSE_SM120")
    if major == 10:
        if ask.fp8 or not ask.quantized:
            names.append("FLASHINFER_MLA_SPARSE")
        if flashmla and ask.kv in (*_FLASHMLA_SPARSE, "nvfp4_ds_mla"):
            names.append("FLASHMLA_SPARSE")
        if not ask.quantized and ask.num_heads > 16:
            names.reverse()
    return names


def _flashmla_takes_width(ask: Ask) -> bool:
    """Latents without a rope key (512 wide) on Hopper only, and not in plain fp8 (flashmla_sparse.py,
    supports_combination)."""
    return ask.head_dim != 512 or (ask.device.major == 9 and not ask.fp8)


def _row_serves(ask: Ask, name: str) -> bool:
    """A backend of FlashInfer's, by its own row of the release."""
    row = row_of(name, ask.version)
    return (
        row is not None
        and row.takes_width(ask.head_dim)
        and row.takes_kv(ask.kv)
        and ask.dtype in row.dtypes.split(",")
    )


def stored_latent(ask: Ask, backend: Backend) -> str:
    """FlashMLA's sparse kernels keep every quantized latent as a DeepSeek record."""
    if backend.name == "FLASHMLA_SPARSE" and ask.quantized and ask.kv != "nvfp4_ds_mla":
        return "fp8_ds_mla"
    if backend.name == "FLASHINFER_MLA_SPARSE_SM120" and ask.kv in ("auto", "fp8", "fp8_e4m3"):
        return "fp8_ds_mla"
    return ask.kv
