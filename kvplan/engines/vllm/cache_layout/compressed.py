"""DeepSeek-V4's caches: explicit specs, because its pages and states do not follow from the terms.

vllm-project/vllm 0.32 vllm/models/deepseek_v4/{attention,compressor}.py and
vllm/v1/attention/backends/mla/sparse_swa.py. Every page is rounded up to a multiple of
576 bytes, FlashMLA's stride.
Per layer: the index key's pages and compressor states, the window's, the compressed latent's and its
compressor's states, in the order in which the classes register them.
"""

from __future__ import annotations

from math import gcd, lcm

from kvplan.dtypes import FLOAT32
from kvplan.engines.vllm.backends.selection import NoBackendError
from kvplan.engines.vllm.backends.table import BACKENDS, Backend, row_of
from kvplan.engines.vllm.cache_layout.specs import Spec, SpecKind
from kvplan.engines.vllm.start.defaults import Device
from kvplan.errors import KvplanError
from kvplan.families import CompressedAttention, Storage
from kvplan.families.latent import RECORD_NOPE
from kvplan.named import NamedTuple
from kvplan.record import replace

COMPRESSED_BACKENDS = ("CompressorBackend", "DEEPSEEK_SPARSE_SWA", "DEEPSEEK_V4_INDEXER")
"""The backends of its caches beside the attention's own."""
STRIDE = 576
WINDOW_BLOCK = 64
V41_RECORD, V41_NVFP4, V41_ALIGNMENT, V41_WINDOW_BLOCK, V41_LEAST_ROWS = 528, 288, 512, 32, 8
# Tokens of one block of compressor states: four (or eight) states fill about one compressed page.
STATE_BLOCK = {4: 4, 128: 8}


class V41(NamedTuple):
    """Inputs of DeepSeek-V4.1's caches next to the block size."""

    device: Device
    word: str
    drafts: int
    whole_rows: bool = True


def compressed_backend(device: Device, kv: str, version: str, *, newer: bool = False) -> Backend:
    """FlashMLA's kernels; on 12.x FlashInfer's, of the same records, in the releases that have them; on AMD
    GPUs their like, of the same records and blocks (vllm/models/deepseek_v4/nvidia/model.py, amd/rocm.py).

    Raises NoBackendError.
    """
    name = "FLASHMLA_SPARSE_DSV4"
    if device.vendor == "nvidia" and device.major == 12:
        name = "FLASHINFER_MLA_SPARSE_DSV4"
    row = row_of(name + "1" * newer, version)
    packed = kv.startswith("fp8") or (newer and kv == "nvfp4_ds_mla")
    if not packed or (device.major == 12 and not (row and row.runs_on(device.capability))):
        raise NoBackendError(
            f"DeepSeek-{'V4.1' if newer else 'V4'}'s kernels do not run with {kv} on {device.name}"
        )
    if newer:
        return Backend(name + "1", multiples=(), exact=(v41_kernel_block(device),))
    return BACKENDS[name]


def record_bytes(part: CompressedAttention) -> int:
    """One latent: fp8 values with a scale per 64 and padding, and the rope part in 16 bit: 448 + 8 + 128."""
    nope = part.head_dim - part.qk_rope_head_dim
    return RECORD_NOPE.packing("fp8_ds_mla", nope).bytes_for(nope) + 2 * part.qk_rope_head_dim


def compressed_specs(
    part: CompressedAttention, store: Storage, block_size: int, ask: V41
) -> tuple[Spec, ...]:
    """The specs of one layer. Raises KvplanError(unknown-layer-type), NoBackendError."""
    if part.index_of_latent:
        return v41_specs(part, store, block_size, ask)
    record = record_bytes(part)
    window = Spec(
        SpecKind.SLIDING_MLA,
        WINDOW_BLOCK,
        record,
        ("window", record),
        alignment=STRIDE,
        window=part.sliding_window,
    )
    rate = part.compress_rate
    if rate is None or rate <= 1:
        return (window,)
    if rate not in STATE_BLOCK:
        raise KvplanError("unknown-layer-type", f"vLLM has no kernel for a compression of {rate} tokens")
    if block_size < rate:
        raise NoBackendError(f"a block of {block_size} tokens holds no state of {rate}")
    index: tuple[Spec, ...] = ()
    if part.index_head_dim:
        width = part.index_head_dim
        key = store.index_key.key_packing(width).bytes_for(width)
        index = (
            Spec(SpecKind.MLA, block_size, key, ("index", key), tokens_per_state=rate, alignment=STRIDE),
            _states(rate, width),
        )
    latent = Spec(
        SpecKind.MLA, block_size, record, ("latent", record), tokens_per_state=rate, alignment=STRIDE
    )
    return (*index, window, latent, _states(rate, part.head_dim))


def v41_kernel_block(device: Device) -> int:
    """Tokens of a block that DeepSeek-V4.1's kernels read (sparse_mla.py, amd/rocm.py, indexer.py)."""
    return 64 if device.major == 9 else 128


def v41_backends(device: Device) -> list[Backend]:
    """Those of its caches beside the attention's own."""
    index = Backend("DEEPSEEK_V41_INDEXER", multiples=(), exact=(v41_kernel_block(device),))
    return [*(BACKENDS[name] for name in COMPRESSED_BACKENDS[:2]), index]


def v41_specs(part: CompressedAttention, store: Storage, block: int, ask: V41) -> tuple[Spec, ...]:
    """DeepSeek-V4.1 (vllm/models/deepseek_v41/{attention,compressor}.py): a source's latents and index keys,
    each layer's window, and a ring of the pair that is still open. On 10.x windows are records of 512 fp8
    numbers with 16 scales, latents nvfp4's or the same, and since 0.33 a block is whole rows of both.

    Raises NoBackendError."""
    newest = ask.device.vendor == "nvidia" and ask.device.major == 10
    window_record = V41_RECORD if newest else record_bytes(part)
    record = V41_NVFP4 if ask.word == "nvfp4_ds_mla" else window_record
    alignment = V41_ALIGNMENT if newest else STRIDE
    window = Spec(
        SpecKind.SLIDING_MLA,
        V41_WINDOW_BLOCK,
        window_record,
        ("window", window_record),
        alignment=alignment,
        window=part.sliding_window,
        stride=lcm(window_record, record) if newest and ask.whole_rows else 1,
    )
    rate = part.compress_rate
    if rate is None:
        return (window,)
    width = part.index_head_dim or 0
    key = store.index_key.key_packing(width).bytes_for(width)
    kernel = gcd(v41_kernel_block(ask.device), block)
    if kernel % rate:
        raise NoBackendError(f"a kernel's block of {kernel} tokens holds no whole latent of {rate} tokens")
    found = []
    for name, size in (("latent", record), ("index", key)):
        spec = Spec(SpecKind.MLA, block, size, (name, size), tokens_per_state=rate, alignment=alignment)
        stride = 1 if kernel == block else spec.with_block_size(kernel).page_bytes
        found.append(replace(spec, stride=stride))
    if rate > 1:
        rows = max(V41_LEAST_ROWS, 1 << (ask.drafts + 1).bit_length())
        kept = FLOAT32.bytes_for(2 * part.head_dim)
        return (*found, window, Spec(SpecKind.RING, rows, kept, ("compressor", kept)))
    return (*found, window)


def _states(rate: int, width: int) -> Spec:
    """Value and gate of the tokens that no entry covers yet, fp32; two overlapping streams at a rate of 4."""
    streams = 2 if rate == 4 else 1
    state = FLOAT32.bytes_for(2 * streams * width)
    return Spec(
        SpecKind.SLIDING_MLA,
        STATE_BLOCK[rate],
        state,
        ("compressor", state),
        alignment=STRIDE,
        window=streams * rate,
    )
