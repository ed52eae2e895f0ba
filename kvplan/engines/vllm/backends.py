"""Which attention backend a layer gets, and which block sizes that backend takes.

vllm-project/vllm 0.32: vllm/platforms/cuda.py (_get_backend_priorities), the validate_configuration methods
in vllm/v1/attention/backends, fa_utils.py (which FlashAttention version a GPU and head size get).

Assumed installed: the FlashAttention 2, 3 and 4 builds that come with the wheel, FlashMLA and DeepGEMM.
FlashInfer is taken only where nothing else serves (nvfp4): on a Blackwell data-centre card a full install
prefers FLASHINFER (blocks of 16) and FLASHINFER_MLA (blocks of 32), which ``--attention-backend`` selects.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvplan.engines.vllm.defaults import Device
from kvplan.errors import KvplanError, did_you_mean

DEFAULT_BLOCK_SIZE = 16
QUANTIZED = ("fp8", "int8_per", "int4_per", "nvfp4", "turboquant_")
HD256_PAGE = 128
"""FlashAttention 4's kernel for heads of 256 on Blackwell reads pages of 128 tokens."""


@dataclass(frozen=True, slots=True)
class Backend:
    """multiples: block sizes are multiples of one of these; exact: the kernel takes these sizes only."""

    name: str
    multiples: tuple[int, ...] = (16,)
    exact: tuple[int, ...] = ()
    preferred: int | None = None

    @property
    def smallest(self) -> int:
        return min((*self.multiples, *self.exact))

    def accepts(self, block_size: int) -> bool:
        """Blocks are split into kernel blocks, so a multiple of an exact size is fine too."""
        return any(block_size % size == 0 for size in (*self.multiples, *self.exact))

    def preferred_size(self) -> int:
        if self.preferred is not None:
            return self.preferred
        return DEFAULT_BLOCK_SIZE if self.accepts(DEFAULT_BLOCK_SIZE) else self.smallest

    def window_block_size(self, token_bytes: int, page_budget: int) -> int:
        """The largest kernel block whose page fits (attention.py, _largest_kernel_block_within)."""
        longest = page_budget // token_bytes
        sizes = [*self.exact, *(max(base, longest // base * base) for base in self.multiples)]
        fitting = [size for size in sizes if size * token_bytes <= page_budget]
        return max(fitting) if fitting else min(sizes)


def _only(name: str, *exact: int) -> Backend:
    return Backend(name, multiples=(), exact=exact)


BACKENDS: dict[str, Backend] = {
    backend.name: backend
    for backend in (
        Backend("FLASH_ATTN"),
        Backend("FLASH_ATTN_DIFFKV"),
        Backend("TRITON_ATTN"),
        Backend("TRITON_ATTN_DIFFKV"),
        Backend("TRITON_FLASH_ATTN"),
        Backend("FLEX_ATTENTION"),
        Backend("ROCM_ATTN"),
        _only("FLASHINFER", 16, 32, 64),
        _only("TURBOQUANT", 16, 32, 64, 128),
        Backend("FLASH_ATTN_MLA"),
        Backend("TRITON_MLA"),
        _only("FLASHMLA", 64),
        _only("CUTLASS_MLA", 128),
        _only("FLASHINFER_MLA", 32, 64),
        Backend("FLASH_ATTN_MLA_SPARSE", (64,)),
        Backend("FLASHMLA_SPARSE", (64,)),
        Backend("FLASHINFER_MLA_SPARSE", (32,)),
        Backend("FLASHINFER_MLA_SPARSE_SM120", (64,)),
        _only("DEEPSEEK_V32_INDEXER", 64),
        Backend("DEEPSEEK_SPARSE_SWA", (32,), preferred=256),
        _only("DEEPSEEK_V4_INDEXER", 256),
        _only("FLASHMLA_SPARSE_DSV4", 256),
        Backend("CompressorBackend", (1,)),
    )
}
FA4_HD256 = Backend("FLASH_ATTN", multiples=(), exact=(HD256_PAGE,), preferred=HD256_PAGE)
FA4_FP8_512 = Backend("FLASH_ATTN", multiples=(), exact=(64,), preferred=64)
"""Heads of 512 with an fp8 cache on Hopper: FlashAttention 4 reads tiles of 64 tokens."""
MLA_HEADS = (320, 512, 576)


class NoBackend(Exception):
    """vLLM finds no attention backend, or the one it finds refuses."""


@dataclass(frozen=True, slots=True)
class Ask:
    """What the selection looks at. kv: the cache dtype's word; model_head_dim: the model's, not the layer's."""

    device: Device
    kv: str
    dtype: str
    head_dim: int
    v_head_dim: int
    model_head_dim: int
    sinks: bool = False
    mm_prefix: bool = False
    softcap: bool = False
    dcp: bool = False
    block_size: int | None = None
    chosen: str | None = None
    num_heads: int = 0

    @property
    def quantized(self) -> bool:
        return self.kv.startswith(QUANTIZED)

    @property
    def fp8(self) -> bool:
        return self.kv in ("fp8", "fp8_e4m3")


def attention_backend(ask: Ask) -> Backend:
    """The backend of a layer with K and V. Raises NoBackend."""
    if ask.chosen is not None:
        return _named(ask.chosen)
    if ask.device.vendor == "amd":
        return BACKENDS["ROCM_ATTN"]
    if ask.kv.startswith("turboquant_"):
        return BACKENDS["TURBOQUANT"]
    if ask.kv.startswith("nvfp4"):
        return BACKENDS["FLASHINFER"]
    if ask.v_head_dim != ask.head_dim:
        return _diff_kv(ask)
    major = ask.device.major
    if ask.mm_prefix and major == 9 and ask.head_dim in (256, 512) and not ask.quantized and not ask.sinks:
        return BACKENDS["TRITON_FLASH_ATTN"]
    flash = _flash(ask)
    if flash is not None:
        return flash
    if ask.head_dim >= 32 and (not ask.quantized or ask.kv.startswith(("fp8", "int8_per", "int4_per"))):
        _triton_takes_fp8(ask, "Triton attention")
        if ask.block_size is None or ask.block_size % 16 == 0:
            return BACKENDS["TRITON_ATTN"]
    if not ask.quantized and not ask.sinks and (ask.block_size or 16) % 16 == 0:
        return BACKENDS["FLEX_ATTENTION"]
    raise NoBackend(f"no attention backend takes {ask.kv} with heads of {ask.head_dim} on {ask.device.name}")


def _triton_takes_fp8(ask: Ask, which: str) -> None:
    if ask.kv.startswith("fp8") and ask.device.capability < (8, 9) and ask.kv != "fp8_e5m2":
        raise NoBackend(
            f"FP8 KV cache is not supported by the {which} backend on {ask.device.name} "
            f"(compute capability {ask.device.capability[0]}.{ask.device.capability[1]}; 8.9 is needed)"
        )


def _flash(ask: Ask) -> Backend | None:
    """FLASH_ATTN with the block sizes of the kernel that this GPU, head size and cache dtype get, or None."""
    major = ask.device.major
    if ask.device.capability < (8, 0) or ask.dtype == "float32" or ask.head_dim % 8:
        return None
    if ask.head_dim > 512 or (ask.head_dim > 256 and major not in (9, 10)):
        return None
    version = flash_version(ask)
    if ask.sinks and (major < 9 or _plain_version(ask.device) not in (3, 4)):
        return None
    if ask.mm_prefix and (version != 4 or (ask.quantized and major == 9)):
        return None
    if ask.quantized:
        on_hopper = major == 9 and (version == 3 or (version == 4 and ask.head_dim == 512))
        if not ask.fp8 or not (on_hopper or (major == 10 and version == 4)):
            return None
    backend = model_flash(ask)
    return backend if ask.block_size is None or backend.accepts(ask.block_size) else None


def model_flash(ask: Ask) -> Backend:
    """FLASH_ATTN as the model's own head size makes it (block sizes are asked once for the whole model)."""
    if ask.device.major == 9 and ask.fp8 and ask.model_head_dim == 512:
        return FA4_FP8_512
    if _hd256(ask, ask.model_head_dim, None):
        return FA4_HD256
    return BACKENDS["FLASH_ATTN"]


def layer_flash(ask: Ask) -> Backend:
    """FLASH_ATTN as this layer's head size makes it (windowed layers choose their own block size)."""
    if ask.device.major == 9 and ask.fp8 and ask.head_dim == 512:
        return FA4_FP8_512
    return FA4_HD256 if _hd256(ask, ask.head_dim, None) else BACKENDS["FLASH_ATTN"]


def _plain_version(device: Device) -> int:
    return {9: 3, 10: 4}.get(device.major, 2)


def flash_version(ask: Ask) -> int:
    """Which FlashAttention a layer gets: 3 on Hopper (4 beyond heads of 256), 4 on Blackwell, else 2."""
    version = _plain_version(ask.device)
    if version == 3 and (ask.head_dim > 256 or (ask.sinks and ask.head_dim != ask.v_head_dim)):
        return 4
    if version == 4 and ask.device.major == 10:
        if ask.head_dim == 256:
            return 4 if _hd256(ask, 256, ask.block_size) else 2
        if ask.head_dim > 128 and (ask.head_dim, ask.v_head_dim) != (192, 128):
            return 2
    return version


def _hd256(ask: Ask, head_dim: int, block_size: int | None) -> bool:
    """FlashAttention 4's head-256 kernel runs: Blackwell, 16-bit cache, no sinks, soft cap, prefix or DCP."""
    if head_dim != 256 or ask.device.major != 10:
        return False
    if ask.softcap or ask.quantized or ask.mm_prefix or ask.dcp or ask.sinks:
        return False
    return block_size is None or block_size % HD256_PAGE == 0


def _diff_kv(ask: Ask) -> Backend:
    """K and V of different width: FlashAttention 3 or 4, else Triton."""
    if ask.device.major == 9 or (ask.device.major == 10 and flash_version(ask) == 4):
        if not ask.quantized or ask.fp8:
            return BACKENDS["FLASH_ATTN_DIFFKV"]
    if ask.quantized and not ask.fp8:
        raise NoBackend(f"the DiffKV backends take only fp8 and fp8_e4m3 quantized caches, not {ask.kv}")
    _triton_takes_fp8(ask, "Triton attention")
    return BACKENDS["TRITON_ATTN_DIFFKV"]


def latent_backend(ask: Ask, *, sparse: bool) -> Backend:
    """The backend of an MLA layer, with or without a token indexer. Raises NoBackend."""
    if ask.chosen is not None:
        return _named(ask.chosen)
    for name in _sparse_latent(ask) if sparse else _dense_latent(ask):
        backend = BACKENDS[name]
        if ask.block_size is None or backend.accepts(ask.block_size):
            if name == "TRITON_MLA":
                _triton_takes_fp8(ask, "Triton MLA")
            return backend
    what = "sparse MLA" if sparse else "MLA"
    raise NoBackend(f"no {what} backend takes {ask.kv} with latents of {ask.head_dim} on {ask.device.name}")


def _dense_latent(ask: Ask) -> list[str]:
    if ask.quantized and not ask.fp8:
        return []
    major, known = ask.device.major, ask.head_dim in MLA_HEADS
    names = []
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
    if major == 9:
        if not ask.quantized and not ask.dcp:
            names.append("FLASH_ATTN_MLA_SPARSE")
        if ask.kv in _FLASHMLA_SPARSE:
            names.append("FLASHMLA_SPARSE")
    if major == 10:
        if ask.fp8 or not ask.quantized:
            names.append("FLASHINFER_MLA_SPARSE")
        if ask.kv in (*_FLASHMLA_SPARSE, "nvfp4_ds_mla"):
            names.append("FLASHMLA_SPARSE")
        if not ask.quantized and ask.num_heads > 16:
            names.reverse()
    return names


def stored_latent(ask: Ask, backend: Backend) -> str:
    """FlashMLA's sparse kernels keep every quantized latent as a DeepSeek record."""
    if backend.name == "FLASHMLA_SPARSE" and ask.quantized and ask.kv != "nvfp4_ds_mla":
        return "fp8_ds_mla"
    if backend.name == "FLASHINFER_MLA_SPARSE_SM120" and ask.kv in ("auto", "fp8", "fp8_e4m3"):
        return "fp8_ds_mla"
    return ask.kv


def _named(name: str) -> Backend:
    backend = BACKENDS.get(name.upper()) or BACKENDS.get(name)
    if backend is None:
        near = did_you_mean(name, BACKENDS)
        raise KvplanError(
            "unknown-backend",
            f"unknown attention backend {name!r}",
            help=f"did you mean {near}?" if near else "known: " + ", ".join(BACKENDS),
        )
    return backend


def common_block_size(backends: list[Backend]) -> int:
    """The smallest block size that all backends take (Platform._preferred_block_size_for_backends)."""
    from itertools import product
    from math import lcm

    if len(backends) == 1:
        return backends[0].preferred_size()
    if all(backend.accepts(DEFAULT_BLOCK_SIZE) for backend in backends):
        return DEFAULT_BLOCK_SIZE
    sizes = [(*backend.multiples, *backend.exact) for backend in backends]
    for candidate in sorted({lcm(*choice) for choice in product(*sizes)}):
        if all(backend.accepts(candidate) for backend in backends):
            return candidate
    raise NoBackend("the attention backends share no block size: " + ", ".join(b.name for b in backends))
