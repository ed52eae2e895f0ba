"""Memory of the experts' kernels while vLLM profiles a forward pass, 0.8.5 to 0.33.

Files named below are in vllm-project/vllm vllm/model_executor/layers/fused_moe/.
"""

from __future__ import annotations

from kvplan.architectures.config.activation_shape import Shape
from kvplan.engines.vllm.options import AUTO
from kvplan.engines.vllm.versions import rules_of
from kvplan.record import record
from kvplan.units import ceil_div

_TRTLLM = frozenset("fp8 modelopt modelopt_fp4 modelopt_mixed nvfp4 mxfp4 gpt_oss_mxfp4".split())
CUTLASS = "cutlass"
COMPRESSED = "compressed-tensors"
_HUMMING, _HUMMING_ON = "humming", (9, 0)
_MARLINS = frozenset(
    "auto-round awq awq_marlin auto_awq gptq gptq_marlin auto_gptq modelopt_fp4 nvfp4 mxfp4".split()
)
"""Methods whose experts Marlin would run on Hopper, and Humming does since 0.32
(quantization/utils/humming/priority.py). Not gpt-oss's MXFP4, whose first kernels are Triton's
(oracle/int_wna16.py, nvfp4.py, mxfp4.py)."""
_EIGHT_BITS = _TRTLLM | {"fbgemm_fp8", "quark"}


@record()
class ExpertRun:
    """How the kernels of routed experts run in the profile run."""

    chunk: int = 0
    """rows of a kernel at once, 0: all (VLLM_FUSED_MOE_CHUNK_SIZE: 32,768 before 0.12, 16,384 before 0.18)"""
    reserved: bool = False
    """a whole chunk is set aside: 0.12 to 0.17, data and expert parallelism together (modular_kernel.py,
    _allocate_buffers)"""
    copies_milli: int = 0
    """hidden states of all rows beside the workspaces: each of several data-parallel ranks gathers the tokens
    of all and gives the sums back (prepare_finalize/, all2all_backend allgather_reducescatter; ``naive``
    before 0.11, whose sum is one more copy)"""
    small: bool = False
    """the first product lies in 8 bits: FlashInfer's TRT-LLM kernels, first on data-centre Blackwell for
    quantised experts since 0.15 (oracle/fp8.py, nvfp4.py, mxfp4.py)"""
    gathered: bool = False
    """three copies of the chosen experts' rows lie beside the workspaces: the gathered input, the gathered
    and the weighted products (experts/cutlass_moe.py, run_cutlass_moe_fp4; CutlassExpertsFp4, whose N is both
    halves of the first product)"""
    indexed: bool = False
    """Humming reads rows where they lie: the buffer beside the products is as wide as an expert, or has one
    row a token (experts/fused_humming_moe.py, HummingIndexedExperts, get_buffer_metas, _workspace_shapes)"""
    direct: bool = False
    """Marlin is called by itself, its second product as wide as an expert (fused_marlin_moe.py,
    intermediate_cache2): AWQ until 0.21, GPTQ until 0.19, integers of compressed-tensors until 0.22"""


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
    rules, several = rules_of(release), dp > 1
    copies = 0
    if several:
        copies = 3_000 if rules.naive_exchange else 2_000
        copies += 500 if quantisation in _EIGHT_BITS else 0
    blackwell = capability is not None and capability[0] == 10
    return ExpertRun(
        rules.expert_chunk,
        reserved=several and expert_parallel and rules.expert_chunk_reserved,
        copies_milli=copies,
        small=blackwell
        and rules.trtllm_experts
        and quantisation in _TRTLLM
        and backend in (AUTO, "flashinfer_trtllm"),
        gathered=backend == CUTLASS and nvfp4,
        indexed=capability == _HUMMING_ON
        and rules.humming_experts
        and not expert_parallel
        and (backend == _HUMMING or (backend == AUTO and quantisation in _MARLINS)),
        direct=quantisation in rules.direct_marlin
        or (integers and quantisation == COMPRESSED and rules.direct_marlin_integers),
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
    first = width if shape.ungated else 2 * width  # adjust_N_for_activation
    if run.gathered:
        pair = (max(2 * first, hidden) + first + 3 * hidden) * shape.element_bytes
    elif run.indexed:
        per_token = ceil_div(hidden, shape.experts_per_token)
        pair = (max(first, hidden) + max(width, per_token)) * shape.element_bytes
    elif run.small:
        pair = width + hidden * shape.element_bytes
    else:  # Triton, CUTLASS and DeepGEMM (workspace_shapes)
        second = width if run.direct else max(width, hidden)
        pair = (max(first, hidden) + second) * shape.element_bytes
    exchanged = rows * hidden * shape.element_bytes * run.copies_milli // 1000
    return at_once * shape.experts_per_token * pair + exchanged
