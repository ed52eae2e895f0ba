"""Which ranks share which weights: attention data parallelism and expert parallelism.

sgl-project/sglang 0.5.23, python/sglang/srt: runtime_context.py (attn_tp_size = tp_size / attn_dp_size,
moe_tp_size = tp_size / ep_size), layers/linear.py (parallel_group), layers/vocab_parallel_embedding.py, and
the classes in models/.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from kvplan.engines.sglang.classes import row_of, rows
from kvplan.engines.sglang.options import SglangOptions
from kvplan.engines.sglang.start.arguments import Arguments
from kvplan.engines.sglang.start.models import SERVED
from kvplan.errors import RefusedError
from kvplan.model import Model
from kvplan.settings import Serving
from kvplan.weights.parts import Part
from kvplan.weights.ranks import Parallel


@cache
def _by_type() -> Mapping[str, str]:
    """Model type → class, for a config that names none."""
    return {kind: name for name, row in rows().items() for kind in row.get("types", ())}


def parallel_of(model: Model, arguments: Arguments, settings: Serving, options: SglangOptions) -> Parallel:
    """How the weights are divided. Raises RefusedError(no-weights) for a class that is not described."""
    tp, attention = arguments.tp, arguments.attn_tp
    apart = arguments.attn_dp > 1
    backend = arguments.moe_a2a_backend
    name = model.architecture or _by_type().get(model.model_type, "")
    known = row_of(name).groups
    if known is None and apart:
        raise _refused(model, name, "attention data parallelism")
    if known is None and backend != "none":
        raise _refused(model, name, f"the all-to-all backend {backend}")
    # Other parts are divided among all ranks, shared experts too (fused with the routed ones or not).
    groups: dict[Part, int] = {}
    if known is not None:
        if apart:
            groups[Part.ATTENTION] = attention
            groups[Part.EMBEDDING] = 1 if known.embedding_whole else attention  # enable_tp
            if known.head_alone and options.enable_dp_lm_head:
                groups[Part.HEAD] = attention
        if known.dense_alone and options.moe_dense_tp_size == 1:
            groups[Part.DENSE] = 1  # is_dense_ffn_fully_dp()
        if backend in known.shared_alone:
            groups[Part.SHARED] = 1
    gpu = settings.gpu
    return Parallel(
        tensor_parallel_size=tp,
        pipeline_parallel_size=arguments.pp,
        compute_capability=gpu.compute_capability if gpu is not None else None,
        groups=tuple(sorted(groups.items())),
        expert_parallel_size=arguments.ep,
        redundant_experts=options.ep_num_redundant_experts or 0,
        group_indices=False,  # srt/layers/quantization/gptq.py, process_weights_after_loading
    )


def _refused(model: Model, name: str, what: str) -> RefusedError:
    why = f"SGLang's {name} is not described here"
    if name not in SERVED:
        why = f"SGLang 0.5.23 has no class of its own for {name or model.model_type}"
    return RefusedError(
        "no-weights",
        f"how {what} divides the weights of {model.id} is not known: {why}",
        help="give the weights of one GPU yourself: --weights 15GiB",
    )
