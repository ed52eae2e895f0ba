"""Memory of the experts' kernels while vLLM profiles a forward pass.

rows = max_num_batched_tokens · data-parallel ranks: with several of them every rank gathers the tokens of all
before the experts and gives the sums back after them (vllm/model_executor/layers/fused_moe/prepare_finalize/,
all2all_backend allgather_reducescatter; ``naive`` before 0.11, whose sum over the ranks is one more copy).
Read in 0.8.5 … 0.33:

* Kernels ran in chunks of VLLM_FUSED_MOE_CHUNK_SIZE rows: 32,768 before 0.12, 16,384 before 0.18, whole
  since; from 0.12 to 0.17 data and expert parallelism together reserved a whole chunk (modular_kernel.py,
  _allocate_buffers).
* Triton, CUTLASS and DeepGEMM keep both products of every chosen expert (workspace_shapes), the first of one
  width where experts have no gate (adjust_N_for_activation); FlashInfer's TRT-LLM kernels, first on
  data-centre Blackwell for quantised experts since 0.15 (oracle/fp8.py, nvfp4.py, mxfp4.py), the first in 8
  bits and the second.
* Humming stands before Marlin on GPUs of 9.0 since 0.32 (quantization/utils/humming/priority.py): for AWQ,
  GPTQ, NVFP4 and MXFP4 but gpt-oss's, whose first kernels are Triton's (oracle/int_wna16.py, nvfp4.py,
  mxfp4.py). Without expert parallelism it reads the rows where they lie, so that the buffer beside the
  products is as wide as an expert, or has one row a token (experts/fused_humming_moe.py,
  HummingIndexedExperts, get_buffer_metas, _workspace_shapes); with it rows are gathered as elsewhere.
* Marlin by the method's own call, not by the modular kernel, has the second product as wide as an expert
  (fused_marlin_moe.py, intermediate_cache2): AWQ until 0.21 (awq_marlin.py), GPTQ until 0.19, integers of
  compressed-tensors until 0.22 (compressed_tensors_moe_wna16_marlin.py).
* ``--moe-backend cutlass`` with NVFP4 has three copies of the chosen experts' rows beside its workspaces:
  the gathered input, the gathered and the weighted products (experts/cutlass_moe.py, run_cutlass_moe_fp4; the
  workspaces of CutlassExpertsFp4, whose N is both halves of the first product).
"""

from __future__ import annotations

from kvplan.architectures.config.activation_shape import Shape
from kvplan.engines.vllm.options import AUTO
from kvplan.record import record
from kvplan.units import ceil_div

_BEFORE_CHUNKS = ((0, 12), 32_768), ((0, 18), 16_384)
_NAIVE_UNTIL = (0, 11)
_TRTLLM_SINCE = (0, 15)
_TRTLLM = frozenset("fp8 modelopt modelopt_fp4 modelopt_mixed nvfp4 mxfp4 gpt_oss_mxfp4".split())
CUTLASS = "cutlass"
COMPRESSED = "compressed-tensors"
_HUMMING, _HUMMING_SINCE, _HUMMING_ON = "humming", (0, 32), (9, 0)
_MARLINS = frozenset(
    "auto-round awq awq_marlin auto_awq gptq gptq_marlin auto_gptq modelopt_fp4 nvfp4 mxfp4".split()
)
"""Methods whose experts Marlin would run on Hopper, and Humming does."""
_DIRECT_UNTIL = {"awq": (0, 22), "awq_marlin": (0, 22), "gptq": (0, 20), "gptq_marlin": (0, 20)}
_NEVER, _INTEGERS_DIRECT_UNTIL = (0, 0), (0, 23)
_EIGHT_BITS = _TRTLLM | {"fbgemm_fp8", "quark"}


@record()
class ExpertRun:
    """How the kernels of routed experts run in the profile run."""

    chunk: int = 0
    """rows of a kernel at once, 0: all"""
    reserved: bool = False
    """a whole chunk is set aside"""
    copies_milli: int = 0
    """hidden states of all rows beside the workspaces, where ranks exchange them"""
    small: bool = False
    """the first product lies in 8 bits"""
    gathered: bool = False
    """rows are copied beside the workspaces, by CUTLASS for NVFP4"""
    indexed: bool = False
    """rows are read where they lie, by Humming"""
    direct: bool = False
    """Marlin is called by itself"""


def expert_run(
    quantisation: str | None,
    release: tuple[int, ...],
    capability: tuple[int, int] | None,
    *,
    dp: int,
    expert_parallel: bool,
    backend: str = AUTO,
    nvfp4: bool = False,
    integers: bool = False,
) -> ExpertRun:
    """How the release runs experts on such a GPU. dp: the data-parallel ranks. backend: --moe-backend. nvfp4,
    integers: they are stored so."""
    chunk = next((rows for until, rows in _BEFORE_CHUNKS if release < until), 0)
    several = dp > 1
    copies = 0
    if several:
        copies = 3_000 if release < _NAIVE_UNTIL else 2_000
        copies += 500 if quantisation in _EIGHT_BITS else 0
    blackwell = capability is not None and capability[0] == 10
    return ExpertRun(
        chunk,
        reserved=several and expert_parallel and (0, 12) <= release < (0, 18),
        copies_milli=copies,
        small=blackwell
        and release >= _TRTLLM_SINCE
        and quantisation in _TRTLLM
        and backend in (AUTO, "flashinfer_trtllm"),
        gathered=backend == CUTLASS and nvfp4,
        indexed=capability == _HUMMING_ON
        and release >= _HUMMING_SINCE
        and not expert_parallel
        and (backend == _HUMMING or (backend == AUTO and quantisation in _MARLINS)),
        direct=release < _DIRECT_UNTIL.get(quantisation or "", _NEVER)
        or (integers and quantisation == COMPRESSED and release < _INTEGERS_DIRECT_UNTIL),
    )


def expert_bytes(shape: Shape, run: ExpertRun, *, tokens: int, ways: int, dp: int) -> int:
    """rows at once · experts of a token · both products + all rows · hidden · copies, bytes. ways: ranks that
    divide an expert's width."""
    if not shape.experts_per_token:
        return 0
    rows = tokens * dp
    at_once = min(rows, run.chunk) if run.chunk else rows
    if run.reserved:
        at_once = max(at_once, run.chunk)
    width, hidden = ceil_div(shape.expert_width, ways), shape.expert_hidden or shape.hidden_size
    first = width if shape.ungated else 2 * width
    if run.gathered:
        pair = (max(2 * first, hidden) + first + 3 * hidden) * shape.element_bytes
    elif run.indexed:
        per_token = ceil_div(hidden, shape.experts_per_token)
        pair = (max(first, hidden) + max(width, per_token)) * shape.element_bytes
    elif run.small:
        pair = width + hidden * shape.element_bytes
    else:
        second = width if run.direct else max(width, hidden)
        pair = (max(first, hidden) + second) * shape.element_bytes
    exchanged = rows * hidden * shape.element_bytes * run.copies_milli // 1000
    return at_once * shape.experts_per_token * pair + exchanged
