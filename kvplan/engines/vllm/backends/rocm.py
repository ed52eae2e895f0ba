"""Which attention backend a layer gets on an AMD GPU.

vllm-project/vllm, vllm/platforms/rocm.py: get_attn_backend_cls (0.8 to 0.17), _get_backend_priorities and
validate_configuration (0.18 and later). AITER is taken to be installed, as in the project's images, and
VLLM_ROCM_USE_AITER to be unset, which is the default: with it ROCM_AITER_MLA serves latents, in the same
blocks. What each backend takes is data (`kvplan.engines.vllm.backends.table`).
"""

from __future__ import annotations

from kvplan.engines.vllm.backends.selection import Ask, NoBackendError, not_served
from kvplan.engines.vllm.backends.table import BACKENDS, Backend, row_of
from kvplan.record import replace

AITER_TARGETS = ("gfx942", "gfx950")
"""CDNA 3 and newer (_aiter_ops.py, is_aiter_found_and_supported)."""
LATENT = ("TRITON_MLA", "ROCM_AITER_MLA", "ROCM_AITER_TRITON_MLA")


def rocm_backend(ask: Ask) -> Backend:
    """The backend of a layer with K and V. Raises NoBackendError."""
    names = ask.rules.rocm_order
    if ask.device.target not in AITER_TARGETS:
        names = tuple(name for name in names if "AITER" not in name)
    if ask.v_head_dim != ask.head_dim:
        names = ("TRITON_ATTN_DIFFKV",)
    apart = ask.encoded and ask.rules.rocm_encoders_apart
    if ask.cross or apart or (ask.connected and ask.rules.rocm_connectors):
        names = tuple(name for name in names if name != "ROCM_ATTN")
    found = _first(ask, names, "attention")
    # Cross attention has a class of its own, made of the backend's.
    return replace(found, preferred=None) if ask.cross else found


def rocm_latent(ask: Ask, *, sparse: bool) -> Backend:
    """The backend of an MLA layer, with or without a token indexer. Raises NoBackendError."""
    if not sparse:
        return _first(ask, LATENT[:1], "MLA", LATENT)
    if not ask.rules.rocm_sparse:
        raise NoBackendError("sparse attention is not supported on AMD GPUs before 0.12")
    if not ask.rules.rocm_sparse_blocks and ask.block_size != 1:
        raise NoBackendError("sparse MLA on AMD GPUs takes blocks of 1 token before 0.18: --block-size 1")
    if ask.rules.rocm_sparse_own:
        ask = replace(ask, chosen=None)
    if ask.rules.rocm_sparse_e5m2 and ask.kv == "fp8_e5m2":
        ask = replace(ask, kv="fp8")
    return _first(ask, ("ROCM_AITER_MLA_SPARSE",), "sparse MLA")


def _first(ask: Ask, names: tuple[str, ...], what: str, choices: tuple[str, ...] = ()) -> Backend:
    if ask.chosen is not None:
        chosen = ask.chosen.upper()
        if ask.kv.startswith("turboquant_") and ask.rules.rocm_packed_free and not _serves(ask, chosen):
            return _first(replace(ask, chosen=None), names, what, choices)
        row = row_of(chosen, ask.version)
        other = row is not None and (row.kind == "plain") != (what == "attention")
        other = other or ("AITER_FA" in chosen and ask.device.target not in AITER_TARGETS)
        if other or (choices and chosen not in choices) or not _serves(ask, chosen):
            raise not_served(ask, BACKENDS.get(chosen) or Backend(chosen))
        return _of_release(chosen, ask)
    for name in names:
        if _serves(ask, name):
            return _of_release(name, ask)
    raise NoBackendError(
        f"no {what} backend takes {ask.kv} with heads of {ask.head_dim} on {ask.device.name}"
    )


def _serves(ask: Ask, name: str) -> bool:
    """validate_configuration, as far as it concerns a decoder layer of a model."""
    row = row_of(name, ask.version)
    if row is None:
        return name in ("TRITON_ATTN", "TRITON_MLA") and not ask.rules.rocm_names_read
    if not ask.divided(name) or (ask.sinks and row.sinks != "yes"):
        return False
    if name == "TURBOQUANT" and (ask.windowed or ask.v_head_dim != ask.head_dim):
        return False
    if ask.mm_prefix and row.prefix != "yes":
        return False
    fits = row.takes_width(ask.head_dim) and row.takes_kv(ask.kv) and ask.dtype in row.dtypes.split(",")
    return fits and (ask.block_size is None or _of_release(name, ask).accepts(ask.block_size))


def _of_release(name: str, ask: Ask) -> Backend:
    """The block sizes that the release's backend takes."""
    row = row_of(name, ask.version)
    multiples, exact, preferred = row.block_sizes() if row is not None else ((), (), None)
    if not multiples and not exact:
        return BACKENDS.get(name) or Backend(name)
    if name.startswith("TRITON"):
        return BACKENDS[name]
    if not ask.rules.rocm_prefers:
        preferred = None
    return Backend(name, multiples, exact, preferred)
