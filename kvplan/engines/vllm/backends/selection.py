"""Which attention backend a layer gets, and which block sizes that backend takes; AMD's: `.rocm`.

vllm-project/vllm 0.32: vllm/platforms/cuda.py (_get_backend_priorities), the validate_configuration methods
in vllm/v1/attention/backends, fa_utils.py (which FlashAttention version a GPU and head size get). Assumed
installed: FlashAttention 2, 3 (Hopper) and 4 (Blackwell), FlashMLA and DeepGEMM.
"""

from __future__ import annotations

from itertools import product
from math import lcm

from kvplan.engines.vllm.backends.table import (
    BACKENDS,
    DCP_BACKENDS,
    DEFAULT_BLOCK_SIZE,
    FA4_HD256,
    GROUPED_FLASHINFER,
    HD256_PAGE,
    QUANTIZED,
    TRITON_CACHES,
    Backend,
    row_of,
)
from kvplan.engines.vllm.start.defaults import Device
from kvplan.engines.vllm.versions import VERSIONS, Rules, rules_of
from kvplan.errors import KvplanError, did_you_mean
from kvplan.record import record


class NoBackendError(Exception):
    """vLLM finds no attention backend, or the one it finds refuses."""


@record()
class Ask:
    """Inputs of the selection."""

    device: Device
    kv: str
    """the cache dtype's word"""
    dtype: str
    head_dim: int
    v_head_dim: int
    model_head_dim: int
    """the model's, not the layer's (block sizes are asked once for the whole model)"""
    sinks: bool = False
    mm_prefix: bool = False
    softcap: bool = False
    dcp: bool = False
    block_size: int | None = None
    chosen: str | None = None
    """what the user named"""
    num_heads: int = 0
    windowed: bool = False
    cross: bool = False
    """the layer reads an encoder's output, encoded: some layer of the model does"""
    encoded: bool = False
    flashinfer: bool = True
    """it is installed, as in every image and wheel for CUDA (``flashinfer=absent``: not)"""
    nope_width: int = 0
    """of MLA's heads without positions"""
    grouped: bool = False
    """several query heads of the model share K and V on a rank"""
    connected: bool = False
    """a KV connector moves the cache"""
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
    own = ask.v_head_dim != ask.head_dim and not (ask.chosen or "").upper().endswith("_DIFFKV")
    if ask.chosen is not None and not own:  # MiMo-V2's class heeds the two that take both widths
        return _chosen(ask)
    if ask.kv.startswith("turboquant_"):
        return _turboquant(ask)
    if ask.kv.startswith("nvfp4"):
        return _nvfp4(ask)
    if ask.v_head_dim != ask.head_dim:
        return _diff_kv(ask)
    found = _on_blackwell(ask) or _images_on_hopper(ask) or _flash(ask) or _triton(ask) or _flex(ask)
    if found is None:
        raise NoBackendError(
            f"no attention backend takes {ask.kv} with heads of {ask.head_dim} on {ask.device.name}"
        )
    return found


def _turboquant(ask: Ask) -> Backend:
    _undivided(ask, "TURBOQUANT")
    if ask.windowed or ask.sinks or ask.v_head_dim != ask.head_dim:
        raise NoBackendError("TurboQuant takes neither windows nor sinks, and K and V of one width only")
    if ask.dtype == "float32":
        raise NoBackendError("TurboQuant runs in float16 and bfloat16, not in float32")
    return BACKENDS["TURBOQUANT"]


def _on_blackwell(ask: Ask) -> Backend | None:
    """FlashInfer, where it is tried before the others."""
    if not first_flashinfer(ask):
        return None
    if ask.mm_prefix and ask.rules.prefix_triton and _image_masks(ask):
        return BACKENDS["TRITON_FLASHINFER"]
    return plain_flashinfer(ask) if flashinfer_serves(ask) else None


def _images_on_hopper(ask: Ask) -> Backend | None:
    if not (ask.mm_prefix and ask.rules.prefix_triton and ask.device.major == 9):
        return None
    fits = ask.head_dim in (256, 512) and not ask.sinks and (ask.fp8 or not ask.quantized)
    return BACKENDS["TRITON_FLASH_ATTN"] if fits else None


def _triton(ask: Ask) -> Backend | None:
    """TRITON_ATTN, or FLASHINFER where Triton does not run. Raises NoBackendError where neither does."""
    if ask.head_dim < 32 or (ask.quantized and ask.kv not in TRITON_CACHES):
        return None
    alone = ask.divided("TRITON_ATTN") and triton_runs(ask, "Triton attention")
    if not alone and flashinfer_serves(ask):
        return BACKENDS["FLASHINFER"]
    # A full install prefers FlashInfer for fp8 on 8.9 and 12.x, in the same blocks of 16.
    _undivided(ask, "TRITON_ATTN")
    triton_takes(ask, "Triton attention")
    return BACKENDS["TRITON_ATTN"] if ask.block_size is None or ask.block_size % 16 == 0 else None


def _flex(ask: Ask) -> Backend | None:
    flex = flex_attention(ask)
    if ask.quantized or ask.sinks or not (ask.block_size is None or flex.accepts(ask.block_size)):
        return None
    _undivided(ask, "FLEX_ATTENTION")
    return flex


def _undivided(ask: Ask, name: str) -> None:
    """Raises NoBackendError where the backend would be taken and cannot divide a request's tokens."""
    if not ask.divided(name):
        raise NoBackendError(
            f"no attention backend of {ask.device.name} divides a request's tokens among ranks "
            f"(decode context parallelism) for a cache in {ask.kv}"
        )


def _nvfp4(ask: Ask) -> Backend:
    """FlashInfer alone reads it; outside Blackwell data-centre cards not with heads of 64, sinks or DCP."""
    if not ask.flashinfer:
        raise not_served(ask, BACKENDS["FLASHINFER"])
    software = ask.device.major != 10 and (ask.head_dim == 64 or ask.sinks or ask.dcp)
    if software or ask.head_dim not in (64, 128, 256, 512) or ask.device.capability < (8, 0):
        raise not_served(ask, BACKENDS["FLASHINFER"])
    return plain_flashinfer(ask)


def first_flashinfer(ask: Ask) -> bool:
    """Whether FlashInfer is tried before the others: data-centre Blackwell, FLASHINFER (blocks of 16) and
    FLASHINFER_MLA (of 32). Elsewhere it is taken where nothing else serves: nvfp4, fp8 on GPUs before 8.9,
    sparse latents in fp8_e4m3 on Hopper and all of them on 12.x."""
    return ask.flashinfer and ask.device.major == 10 and ask.rules.flashinfer_first


def flex_attention(ask: Ask) -> Backend:
    """FLEX_ATTENTION, whose blocks were of any size until 0.20."""
    row = row_of("FLEX_ATTENTION", ask.version)
    multiples = row.block_sizes()[0] if row is not None else ()
    return Backend("FLEX_ATTENTION", multiples=multiples) if multiples else BACKENDS["FLEX_ATTENTION"]


def plain_flashinfer(ask: Ask) -> Backend:
    """FLASHINFER with the pages of the model's heads on the GPU."""
    wide = ask.grouped and ask.device.major == 10 and ask.rules.grouped_pages
    return GROUPED_FLASHINFER if wide else BACKENDS["FLASHINFER"]


def _image_masks(ask: Ask) -> bool:
    """TRITON_FLASHINFER takes the layer (triton_flashinfer.py): what both of its backends take, two widths,
    blocks of 64."""
    fits = ask.head_dim in (256, 512) and not ask.sinks and not ask.cross and ask.dtype != "float32"
    words = ("auto", "float16", "bfloat16", "fp8", "fp8_e4m3", "fp8_e5m2")
    return fits and ask.kv in words and (ask.block_size or 64) % 64 == 0 and not ask.dcp


def flashinfer_serves(ask: Ask) -> bool:
    """FLASHINFER takes the layer, by its own row of the release."""
    row = row_of("FLASHINFER", ask.version)
    if row is None or not ask.flashinfer or (ask.sinks and not flashinfer_sinks(ask)):
        return False
    if ask.mm_prefix or ask.cross or ask.v_head_dim != ask.head_dim:
        return False
    fits = row.takes_width(ask.head_dim) and row.takes_kv(ask.kv) and row.runs_on(ask.device.capability)
    sizes = ask.block_size is None or BACKENDS["FLASHINFER"].accepts(ask.block_size)
    return fits and sizes and ask.dtype in row.dtypes.split(",")


def flashinfer_sinks(ask: Ask) -> bool:
    """TRT-LLM's or XQA's kernels run (flashinfer.py, supports_sink; utils/flashinfer.py)."""
    return ask.device.major in ask.rules.flashinfer_own_kernels


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
    widest = 512 if major == 10 else 256  # Hopper serves wider heads only with FlashAttention 4 installed
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
    elif backend.name == "FLASHINFER":
        if ask.kv.startswith("nvfp4"):
            return _nvfp4(ask)
        fits, backend = flashinfer_serves(ask), plain_flashinfer(ask)
    elif backend.name == "FLEX_ATTENTION":
        fits, backend = not ask.quantized and not ask.sinks, flex_attention(ask)
    else:
        fits = _by_row(ask, backend.name)
    if not fits:
        raise not_served(ask, backend)
    if backend.name == "TRITON_ATTN":
        triton_takes(ask, backend.name)
    return backend


def _by_row(ask: Ask, name: str) -> bool:
    """A K and V backend's own check in the release (validate_configuration)."""
    row = row_of(name, ask.version)
    if "AITER" in name:
        return False
    if row is None:
        return "MLA" not in name and not name.startswith(("DEEPSEEK", "MINIMAX"))
    if row.kind != "plain" or (ask.sinks and row.sinks == "no") or (ask.mm_prefix and row.prefix == "no"):
        return False
    fits = row.takes_width(ask.head_dim) and row.takes_kv(ask.kv) and ask.dtype in row.dtypes.split(",")
    return fits and row.runs_on(ask.device.capability)


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
