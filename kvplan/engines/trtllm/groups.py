"""Which ranks share which weights under TensorRT-LLM: attention data parallelism and expert parallelism.

NVIDIA/TensorRT-LLM 1.2, tensorrt_llm/_torch: with enable_attention_dp every rank has all of the attention
(modules/attention.py: tp_size 1), of the head (models/modeling_utils.py, DecoderModelForCausalLM), of the
embedding (embed_tokens without a mapping), of perceptrons and shared experts (modeling_deepseekv3.py,
_compute_mlp_tp_size and _compute_shared_expert_tp_size); routed experts stay divided: moe_ep_size ranks have
whole experts, the others divide their width (mapping.py).
"""

from __future__ import annotations

from kvplan.engines.trtllm.options import TrtllmOptions
from kvplan.errors import KvplanError, RefusedError
from kvplan.model import Model
from kvplan.settings import Serving
from kvplan.weights.parts import Part
from kvplan.weights.ranks import Parallel

CLASSES = frozenset(
    """
    DeepseekV3ForCausalLM DeepseekV32ForCausalLM Glm4MoeForCausalLM ExaoneMoEForCausalLM Qwen3MoeForCausalLM
    """.split()
)
"""Classes whose every part but the routed experts is whole under attention data parallelism."""
_TYPES = frozenset(("deepseek_v3", "deepseek_v32", "glm4_moe", "exaone_moe", "qwen3_moe"))
_WHOLE = (Part.ATTENTION, Part.DENSE, Part.SHARED, Part.EMBEDDING, Part.HEAD)


def parallel_of(model: Model, settings: Serving, options: TrtllmOptions) -> Parallel:
    """How the weights are divided. Raises KvplanError(no-weights | bad-setting)."""
    tp = settings.tensor_parallel_size
    groups: tuple[tuple[Part, int], ...] = ()
    if options.enable_attention_dp and tp > 1:
        described = model.architecture in CLASSES or (
            model.architecture is None and model.model_type in _TYPES
        )
        if not described:
            raise RefusedError(
                "no-weights",
                f"how --enable-attention-dp divides the weights of {model.id} is not known: TensorRT-LLM's"
                f" {model.architecture or model.model_type} is not described",
                help="give the weights of one GPU yourself: --weights 15GiB",
            )
        groups = tuple((part, 1) for part in _WHOLE)
    given = options.moe_expert_parallel_size
    ep = given if given is not None else tp if settings.enable_expert_parallel else 1
    if tp % ep:
        raise KvplanError(
            "bad-setting", f"moe_expert_parallel_size {ep} does not divide tensor_parallel_size {tp}"
        )
    gpu = settings.gpu
    return Parallel(
        tensor_parallel_size=tp,
        pipeline_parallel_size=settings.pipeline_parallel_size,
        compute_capability=gpu.compute_capability if gpu is not None else None,
        groups=groups,
        expert_parallel_size=ep,
    )
