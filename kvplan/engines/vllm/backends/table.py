"""The attention backends of vLLM's releases and the block sizes that each takes.

vllm-project/vllm 0.33 vllm/v1/attention/backends (get_supported_kernel_block_sizes and what they prefer);
what else each takes by release is data (`kvplan.engines.vllm.backends.table`).

What each attention backend of vLLM takes, by release: ``data/backends.tsv``.

The file is written by scripts/make_vllm_backends.py from the backends' own classes in the wheels of
vllm-project/vllm 0.11 to 0.33 (vllm/v1/attention/backends).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType

from kvplan.engines.release_rules import through
from kvplan.named import NamedTuple
from kvplan.record import KeptHash, record

DEFAULT_BLOCK_SIZE = 16
QUANTIZED = ("fp8", "int8_per", "int4_per", "nvfp4", "turboquant_")
TRITON_CACHES = (
    "fp8", "fp8_e4m3", "fp8_e5m2", "int8_per_token_head", "fp8_per_token_head", "int4_per_token_head",
)  # fmt: skip
GROUPED, GROUPED_HEADS = "QWEN4_EXP_EXP_QSA_STATE", "QWEN4_EXP_QSA_TRITON"
"""Backends of index keys of groups of tokens, and of K and V beside them."""
POOLED, TAIL = "GLM5_NEXT_INDEXER", "KPOOL_TAIL"
"""Backends of pooled index keys, and of the ring of the open pool."""
FLASHINFER_PAGES = (16, 32, 64)
GROUPED_PAGES = (*FLASHINFER_PAGES, 128, 256, 512, 1024)
"""FlashInfer's pages where query heads share K and V on data-centre Blackwell (flashinfer.py,
get_supported_kernel_block_sizes)."""
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
        Backend("TREE_ATTN"),
        _only("HPC_ATTN", 64),
        _only("TOKENSPEED_MLA", 32, 64),
        Backend("ROCM_ATTN"),
        _only("ROCM_AITER_FA", 16, 32),
        Backend("ROCM_AITER_UNIFIED_ATTN", preferred=64),
        Backend("ROCM_AITER_MLA", (1,)),
        Backend("ROCM_AITER_TRITON_MLA", (1,)),
        Backend("ROCM_AITER_MLA_SPARSE", (16,), exact=(1,)),
        Backend("ROCM_V32_INDEXER", (16,), exact=(1,)),
        _only("FLASHINFER", *FLASHINFER_PAGES),
        _only("TRITON_FLASHINFER", 64),
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
        Backend(TAIL, (1,)),
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
UNSTRIDED = frozenset(
    "TURBOQUANT ROCM_ATTN ROCM_AITER_FA ROCM_AITER_UNIFIED_ATTN ROCM_AITER_MLA ROCM_AITER_TRITON_MLA "
    "ROCM_AITER_MLA_SPARSE TOKENSPEED_MLA FLASHMLA_SPARSE FLASHINFER_MLA_SPARSE FLASHINFER_MLA_SPARSE_SM120 "
    "FLASH_ATTN_MLA_SPARSE".split()
)
"""Backends without an order of strides that has layers in it (indexes_kv_by_block_stride of 0.24 to 0.28): no
page of theirs is padded then."""
GROUPED_FLASHINFER = Backend("FLASHINFER", multiples=(), exact=GROUPED_PAGES)
FA4_HD256 = Backend("FLASH_ATTN", multiples=(), exact=(HD256_PAGE,), preferred=HD256_PAGE)


FILE = Path(__file__).parents[1] / "data" / "backends.tsv"
HEADER = (
    "backend", "since", "until", "kind", "capabilities", "heads", "blocks", "kv", "dtypes", "sinks", "prefix",
)  # fmt: skip


class BackendRow(NamedTuple):
    """One backend in a run of releases (empty: the oldest or newest that was read)."""

    name: str
    since: str
    until: str
    kind: str
    """plain, mla or sparse"""
    capabilities: str
    """NVIDIA's, or any"""
    heads: str
    """widths, ``>=32``, ``<=256`` or any"""
    blocks: str
    """kernel block sizes, ``x16`` for any multiple, ``preferred=64`` where it prefers another than the
    usual"""
    kv: str
    """words of --kv-cache-dtype. ``?``: its code asks for more than these."""
    dtypes: str
    sinks: str
    prefix: str

    def takes_width(self, width: int) -> bool:
        """Whether heads (or latents) of a width are served; so is any where its code could not be asked."""
        if self.heads in ("any", "?"):
            return True
        if self.heads[:2] in (">=", "<="):
            bound = int(self.heads[2:])
            return width >= bound if self.heads[0] == ">" else width <= bound and width % 8 == 0
        return str(width) in self.heads.split(",")

    def takes_kv(self, word: str) -> bool:
        """Whether it keeps a cache of this word."""
        return self.kv == "any" or word in self.kv.split(",")

    def runs_on(self, capability: tuple[int, int]) -> bool:
        """Whether it runs on NVIDIA GPUs of a compute capability."""
        if self.capabilities in ("any", "?"):
            return True
        return f"{capability[0]}.{capability[1]}" in self.capabilities.split(",")

    def block_sizes(self) -> tuple[tuple[int, ...], tuple[int, ...], int | None]:
        """(bases of multiples, exact sizes, the size it prefers where that is not the usual)."""
        words = [] if self.blocks == "?" else self.blocks.split(",")
        preferred = next((int(word[10:]) for word in words if word.startswith("preferred=")), None)
        multiples = tuple(int(word[1:]) for word in words if word.startswith("x"))
        exact = tuple(int(word) for word in words if word.isdigit())
        return multiples, exact, preferred


def read_rows(text: str) -> list[BackendRow]:
    """The rows below the header."""
    header, *lines = text.splitlines()
    assert tuple(header.split("\t")) == HEADER
    return [BackendRow(*line.split("\t")) for line in lines]


def rows_text(rows: Iterable[BackendRow]) -> str:
    """The file's text."""
    return "\n".join("\t".join(row) for row in (HEADER, *rows)) + "\n"


@cache
def backend_rows() -> Mapping[str, tuple[BackendRow, ...]]:
    """Every backend's rows, oldest first."""
    found: dict[str, list[BackendRow]] = {}
    for row in read_rows(FILE.read_text(encoding="utf-8")):
        found.setdefault(row.name, []).append(row)
    return MappingProxyType({name: tuple(rows) for name, rows in found.items()})


@cache
def row_of(name: str, version: str) -> BackendRow | None:
    """The backend as a release has it; None where that release has none of the name."""
    return next((row for row in backend_rows().get(name, ()) if through(version, row.since, row.until)), None)
