"""Block sizes before 0.20, when the platform set them and not the layers' backends.

vllm-project/vllm 0.8.5 to 0.17.1 vllm/platforms/cuda.py (check_and_update_config), 0.10.2 to 0.19.1
vllm/model_executor/models/config.py (HybridAttentionMambaModelConfig).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvplan.families import Kind, Part

if TYPE_CHECKING:
    from kvplan.engines.vllm.cache_layout.built_model import Served

FLASHMLA, CUTLASS = 64, 128
FLASHINFER_NOPE = 128
"""The width of heads without positions that FlashInfer's kernel takes."""


def kernel_block(served: Served, block: int) -> int:
    """Tokens of a block of latents: those of the kernel that a GPU gets where no backend is asked for.

    FlashMLA's 64 on Hopper; CUTLASS_MLA's 128 on 10.x since 0.10, FLASHINFER_MLA's 64 since 0.15 where it
    takes the model's heads; 64 where the attention is sparse. Before 0.11 the user's size gives way always,
    since then unless it is a multiple.
    """
    rule, device = served.rules.latent_kernel, served.resolved.device
    lead = served.lead
    if rule == "none" or served.resolved.attention_backend is not None:
        return block
    assert lead is not None
    assert lead.kind is Kind.MLA
    if served.sparse_model:
        return FLASHMLA
    blackwell = device.major == 10 and rule != "hopper"
    if blackwell and rule == "flashinfer" and lead.qk_nope_head_dim == FLASHINFER_NOPE:
        return block if block == 32 or block % FLASHMLA == 0 else FLASHMLA
    size = CUTLASS if blackwell else FLASHMLA if device.major == 9 else 0
    if not size or (block % size == 0 and rule not in ("hopper", "exact")):
        return block
    return size


def states_step(served: Served, lead: Part) -> int:
    """A block beside states is a multiple of this: 64 of latents since 0.11, 32 for heads of 256 on 10.x,
    else 16."""
    if served.rules.latent_kernel == "exact":
        return 16
    if lead.kind is Kind.MLA:
        return 64
    wide = served.resolved.device.major == 10 and getattr(lead, "head_dim", 0) == 256
    return 32 if wide and served.resolved.attention_backend is None else 16
