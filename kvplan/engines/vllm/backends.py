"""Which attention backend a layer gets, and which block sizes that backend takes.

vllm-project/vllm 0.32: vllm/platforms/cuda.py (_get_backend_priorities), the validate_configuration methods
in vllm/v1/attention/backends, fa_utils.py (which FlashAttention version a GPU and head size get).

Assumed installed: FlashAttention 2, 3 (Hopper) and 4 (Blackwell), FlashMLA and DeepGEMM; FlashAttention 4 on
Hopper, which serves heads beyond 256 there, is not (such layers take Triton and blocks of 16).
FlashInfer is installed with every image and wheel for CUDA, and is taken here where nothing else serves:
nvfp4, fp8 on GPUs before 8.9, sparse latents in fp8_e4m3 on Hopper and all of them on 12.x. A full install
prefers it in more places, which changes no byte of a token: for fp8 on 8.9 and 12.x in the same blocks of 16,
on a Blackwell data-centre card FLASHINFER (blocks of 16) and FLASHINFER_MLA (blocks of 32), which
``--attention-backend`` selects. AMD's selection is in `kvplan.engines.vllm.rocm`.
"""

from __future__ import annotations

from itertools import product
from math import lcm

from kvplan.engines.vllm.backend_rows import row_of
from kvplan.engines.vllm.defaults import Device
from kvplan.engines.vllm.versions import VERSIONS, Rules, rules_of
from kvplan.errors import KvplanError, did_you_mean
from kvplan.record import KeptHash, record

DEFAULT_BLOCK_SIZE = 16
QUANTIZED = ("fp8", "int8_per", "int4_per", "nvfp4", "turboquant_")
TRITON_CACHES = (
    "fp8", "fp8_e4m3", "fp8_e5m2", "int8_per_token_head", "fp8_per_token_head", "int4_per_token_head",
)  # fmt: skip
HD256_PAGE = 128
"""FlashAttention 4's kernel for heads of 256 on Blackwell reads pages of 128 tokens."""


@record()
class Backend(KeptHash):
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
        """The largest kernel block whose page fits (attention.py, _largest_kernel_block_within); without a
        budget the smallest of the sizes that are listed one by one, else of the bases."""
        if not page_budget:
            return min(self.exact or self.multiples)
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
        _only("ROCM_AITER_FA", 16, 32),
        Backend("ROCM_AITER_UNIFIED_ATTN", preferred=64),
        Backend("ROCM_AITER_MLA", (1,)),
        Backend("ROCM_AITER_TRITON_MLA", (1,)),
        Backend("ROCM_AITER_MLA_SPARSE", (16,), exact=(1,)),
        Backend("ROCM_V32_INDEXER", (16,), exact=(1,)),
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
        Backend("FLASHINFER_MLA_SPARSE_SM90", (64,)),
        _only("DEEPSEEK_V32_INDEXER", 64),
        _only("MINIMAX_M3_SPARSE", 128),
        _only("MINIMAX_M3_INDEXER", 128),
        Backend("DEEPSEEK_SPARSE_SWA", (32,), preferred=256),
        _only("DEEPSEEK_V4_INDEXER", 256),
        _only("FLASHMLA_SPARSE_DSV4", 256),
        _only("FLASHINFER_MLA_SPARSE_DSV4", 256),
        Backend("CompressorBackend", (1,)),
        Backend("INKLING_SCONV_SWA", (1,)),
        Backend("KPOOL_TAIL", (1,)),
        Backend("QWEN4_EXP_QSA_TRITON"),
        Backend("QWEN4_EXP_EXP_QSA_STATE", (1,)),
        Backend("DOTS3_NOTE_PADDED_MLA_SPARSE", (64,)),
        Backend("DOTS3_NOTE_TRITON_MLA"),
    )
}
DCP_BACKENDS = frozenset(
    "FLASH_ATTN FLASH_ATTN_DIFFKV FLASHINFER FLASH_ATTN_MLA FLASHMLA FLASHMLA_SPARSE CUTLASS_MLA "
    "FLASHINFER_MLA FLASHINFER_MLA_SPARSE TRITON_MLA ROCM_AITER_MLA ROCM_AITER_TRITON_MLA".split()
)
"""Backends that divide a request's tokens among ranks: `supports_dcp` of their classes, 0.30 to 0.33."""
FA4_HD256 = Backend("FLASH_ATTN", multiples=(), exact=(HD256_PAGE,), preferred=HD256_PAGE)


class NoBackendError(Exception):
    """vLLM finds no attention backend, or the one it finds refuses."""


@record()
class Ask:
    """What the selection looks at. kv: the cache dtype's word; model_head_dim: the model's, not the layer's
    (block sizes are asked once for the whole model); chosen: what the user named; cross: the layer reads an
    encoder's output, encoded: some layer of the model does."""

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
    windowed: bool = False
    cross: bool = False
    encoded: bool = False
    rules: Rules = rules_of(VERSIONS[-1])
    version: str = VERSIONS[-1]

    @property
    def quantized(self) -> bool:
        return self.kv.startswith(QUANTIZED)

    @property
    def fp8(self) -> bool:
        return self.kv in ("fp8", "fp8_e4m3")

    def divided(self, name: str) -> bool:
        """Whether the backend serves decode context parallelism, where that is asked for and checked."""
        return not self.dcp or not self.rules.dcp_backends or name in DCP_BACKENDS


def attention_backend(ask: Ask) -> Backend:
    """The backend of a layer with K and V. Raises NoBackendError."""
    if ask.chosen is not None:
        return _chosen(ask)
    if ask.kv.startswith("turboquant_"):
        _undivided(ask, "TURBOQUANT")
        if ask.windowed or ask.sinks or ask.v_head_dim != ask.head_dim:
            raise NoBackendError("TurboQuant takes neither windows nor sinks, and K and V of one width only")
        if ask.dtype == "float32":
            raise NoBackendError("TurboQuant runs in float16 and bfloat16, not in float32")
        return BACKENDS["TURBOQUANT"]
    if ask.kv.startswith("nvfp4"):
        return _nvfp4(ask)
    if ask.v_head_dim != ask.head_dim:
        return _diff_kv(ask)
    major = ask.device.major
    if (
        ask.mm_prefix
        and ask.rules.prefix_triton
        and major == 9
        and ask.head_dim in (256, 512)
        and not ask.sinks
        and (ask.fp8 or not ask.quantized)
    ):
        return BACKENDS["TRITON_FLASH_ATTN"]
    flash = _flash(ask)
    if flash is not None:
        return flash
    if ask.head_dim >= 32 and (not ask.quantized or ask.kv in TRITON_CACHES):
        alone = ask.divided("TRITON_ATTN") and triton_runs(ask, "Triton attention")
        if not alone and flashinfer_serves(ask):
            return BACKENDS["FLASHINFER"]
        _undivided(ask, "TRITON_ATTN")
        triton_takes(ask, "Triton attention")
        if ask.block_size is None or ask.block_size % 16 == 0:
            return BACKENDS["TRITON_ATTN"]
    if not ask.quantized and not ask.sinks and (ask.block_size or 16) % 16 == 0:
        _undivided(ask, "FLEX_ATTENTION")
        return BACKENDS["FLEX_ATTENTION"]
    raise NoBackendError(
        f"no attention backend takes {ask.kv} with heads of {ask.head_dim} on {ask.device.name}"
    )


def _undivided(ask: Ask, name: str) -> None:
    """Raises NoBackendError where the backend would be taken and cannot divide a request's tokens."""
    if not ask.divided(name):
        raise NoBackendError(
            f"no attention backend of {ask.device.name} divides a request's tokens among ranks "
            f"(decode context parallelism) for a cache in {ask.kv}"
        )


def _nvfp4(ask: Ask) -> Backend:
    """FlashInfer alone reads it; outside Blackwell data-centre cards not with heads of 64, sinks or DCP."""
    software = ask.device.major != 10 and (ask.head_dim == 64 or ask.sinks or ask.dcp)
    if software or ask.head_dim not in (64, 128, 256, 512) or ask.device.capability < (8, 0):
        raise not_served(ask, BACKENDS["FLASHINFER"])
    return BACKENDS["FLASHINFER"]


def flashinfer_serves(ask: Ask) -> bool:
    """FLASHINFER takes the layer, by its own row of the release; sinks need kernels of 9.0 and newer."""
    row = row_of("FLASHINFER", ask.version)
    if row is None or ask.sinks or ask.mm_prefix or ask.cross or ask.v_head_dim != ask.head_dim:
        return False
    fits = row.takes_width(ask.head_dim) and row.takes_kv(ask.kv) and row.runs_on(ask.device.capability)
    sizes = ask.block_size is None or BACKENDS["FLASHINFER"].accepts(ask.block_size)
    return fits and sizes and ask.dtype in row.dtypes.split(",")


def triton_runs(ask: Ask, which: str) -> bool:
    """Whether Triton's kernels of the release run with the cache on the GPU."""
    return _least_for_triton(ask, which) is None


def _least_for_triton(ask: Ask, which: str) -> tuple[int, int] | None:
    """The capability that the release wants for the cache (triton_attn.py, triton_mla.py), where the GPU has
    less: fp8 in hardware, and bfloat16 where that was asked for by its word."""
    if not (ask.rules.latent_checks if "MLA" in which else ask.rules.triton_checks):
        return None
    least = (8, 9) if ask.kv.startswith("fp8") else (8, 0) if ask.kv == "bfloat16" else (0, 0)
    return least if ask.device.capability < least else None


def triton_takes(ask: Ask, which: str) -> None:
    """Raises NoBackendError where `triton_runs` says no."""
    least = _least_for_triton(ask, which)
    if least is not None:
        had, needed = (".".join(map(str, pair)) for pair in (ask.device.capability, least))
        word = "bfloat16" if ask.kv == "bfloat16" else "FP8"
        raise NoBackendError(
            f"{word} KV cache is not supported by the {which} backend on {ask.device.name}"
            f" (compute capability {had}; {needed} is needed)"
        )


def _flash(ask: Ask) -> Backend | None:
    """FLASH_ATTN with the block sizes of the kernel that this GPU, head size and cache dtype get, or None."""
    major = ask.device.major
    widest = 512 if major == 10 else 256
    if ask.device.capability < (8, 0) or ask.dtype == "float32" or ask.head_dim % 8 or ask.head_dim > widest:
        return None
    version = flash_version(ask)
    if ask.sinks and (major < 9 or _plain_version(ask.device) not in (3, 4)):
        return None
    if ask.mm_prefix and (version != 4 or (ask.quantized and major == 9)):
        return None
    if ask.quantized and (not ask.fp8 or (major, version) not in ((9, 3), (10, 4))):
        return None
    backend = model_flash(ask)
    return backend if ask.block_size is None or backend.accepts(ask.block_size) else None


def model_flash(ask: Ask) -> Backend:
    """FLASH_ATTN as the model's own head size makes it (block sizes are asked once for the whole model)."""
    return FA4_HD256 if _hd256(ask, ask.model_head_dim, None) else BACKENDS["FLASH_ATTN"]


def layer_flash(ask: Ask) -> Backend:
    """FLASH_ATTN as this layer's head size makes it (windowed layers choose their own block size)."""
    return FA4_HD256 if _hd256(ask, ask.head_dim, None) else BACKENDS["FLASH_ATTN"]


def _plain_version(device: Device) -> int:
    return {9: 3, 10: 4}.get(device.major, 2)


def flash_version(ask: Ask) -> int:
    """Which FlashAttention a layer gets: 3 on Hopper, 4 on Blackwell, else 2."""
    version = _plain_version(ask.device)
    if version == 4 and ask.device.major == 10:
        if ask.head_dim == 256:
            return 4 if _hd256(ask, 256, ask.block_size) else 2
        if ask.head_dim > 128 and (ask.head_dim, ask.v_head_dim) != (192, 128):
            return 2
    return version


def _hd256(ask: Ask, head_dim: int, block_size: int | None) -> bool:
    """FlashAttention 4's head-256 kernel runs: Blackwell, 16-bit cache, no sinks, soft cap, prefix or DCP."""
    if head_dim != 256 or ask.device.major != 10 or not ask.rules.wide_pages:
        return False
    if ask.softcap or ask.quantized or ask.mm_prefix or ask.dcp or ask.sinks:
        return False
    return block_size is None or block_size % HD256_PAGE == 0


def _diff_kv(ask: Ask) -> Backend:
    """K and V of different width: FlashAttention 3 or 4, else Triton."""
    if ask.device.major == 10 and ask.fp8:
        raise NoBackendError("FlashAttention 4 takes no fp8 cache with K and V of different width")
    flash = ask.device.major == 9 or (ask.device.major == 10 and flash_version(ask) == 4)
    if flash and (not ask.quantized or ask.fp8):
        return BACKENDS["FLASH_ATTN_DIFFKV"]
    if ask.quantized and not ask.fp8:
        raise NoBackendError(f"the DiffKV backends take only fp8 and fp8_e4m3 quantized caches, not {ask.kv}")
    if not ask.rules.diff_triton:
        raise NoBackendError(f"K and V of different width need FlashAttention 3: {ask.device.name}")
    triton_takes(ask, "Triton attention")
    return BACKENDS["TRITON_ATTN_DIFFKV"]


def _chosen(ask: Ask) -> Backend:
    """The backend that the user named, where it fits the layer."""
    backend = named(ask)
    if backend.name == "FLASH_ATTN":
        own = _flash(ask)
        fits, backend = own is not None, own or backend
    elif backend.name == "FLEX_ATTENTION":
        fits = not ask.quantized and not ask.sinks
    elif backend.name == "TRITON_ATTN":
        fits = not ask.quantized or ask.kv in TRITON_CACHES
    elif backend.name == "FLASHINFER":
        fits = not ask.quantized or ask.kv.startswith(("nvfp4", "fp8_e")) or ask.kv == "fp8"
    else:
        fits = "MLA" not in backend.name and not backend.name.startswith(("DEEPSEEK", "MINIMAX"))
    if not fits:
        raise not_served(ask, backend)
    if backend.name == "TRITON_ATTN":
        triton_takes(ask, backend.name)
    return backend


def not_served(ask: Ask, backend: Backend) -> NoBackendError:
    return NoBackendError(
        f"{backend.name} does not serve {ask.kv} with heads of {ask.head_dim} on {ask.device.name}"
    )


def named(ask: Ask) -> Backend:
    """The backend of the asked name. Raises KvplanError(unknown-backend), NoBackendError (block size)."""
    assert ask.chosen is not None
    backend = BACKENDS.get(ask.chosen.upper()) or BACKENDS.get(ask.chosen)
    if backend is None:
        near = did_you_mean(ask.chosen, BACKENDS)
        raise KvplanError(
            "unknown-backend",
            f"unknown attention backend {ask.chosen!r}",
            help=f"did you mean {near}?" if near else "known: " + ", ".join(BACKENDS),
        )
    if ask.block_size is not None and not backend.accepts(ask.block_size):
        raise not_served(ask, backend)
    return backend


def common_block_size(backends: list[Backend]) -> int:
    """The smallest block size that all backends take (Platform._preferred_block_size_for_backends)."""
    if len(backends) == 1:
        return backends[0].preferred_size()
    if all(backend.accepts(DEFAULT_BLOCK_SIZE) for backend in backends):
        return DEFAULT_BLOCK_SIZE
    sizes = [(*backend.multiples, *backend.exact) for backend in backends]
    for candidate in sorted({lcm(*choice) for choice in product(*sizes)}):
        if all(backend.accepts(candidate) for backend in backends):
            return candidate
    raise NoBackendError("the attention backends share no block size: " + ", ".join(b.name for b in backends))
