"""Published builds of which it is known what they leave as trained, though their config is not packaged.

A build's name says one format; its maker may mix several. Each entry says what the build's page or config was
reported to hold. tests/files/test_layouts.py holds it to account: by the bytes of its files, or by the GiB
that vLLM printed when it had loaded it.
"""

from __future__ import annotations

from collections.abc import Mapping

from kvplan.record import record


@record()
class Layout:
    """of: the card's model. like: a packaged build that holds its matrices so, or "" for what builds of
    ``form`` hold. whole: modules left as trained beside those, by the ends of their paths. said: in words.
    """

    of: str
    said: str
    like: str = ""
    form: str = ""
    whole: tuple[str, ...] = ()


_NVIDIA = "nvidia/Qwen3.6-27B-NVFP4"
_MIXED = "NVFP4 in the MLPs, FP8 in attention"

LAYOUTS: Mapping[str, Layout] = {
    # Its files have 21,921,697,280 bytes (revision 482ca0f): those of Qwen3.6's build, tensor for tensor.
    "nvidia/qwen3.8-27b-nvfp4": Layout("Qwen/Qwen3.8-27B", f"{_MIXED}, NVFP4 in the head", like=_NVIDIA),
    # modelopt_mixed with the head packed to NVFP4, as SGLang's cookbook lists it beside NVIDIA's.
    "radixark/qwen3.8-27b-nvfp4": Layout("Qwen/Qwen3.8-27B", f"{_MIXED}, NVFP4 in the head", like=_NVIDIA),
    # Its files have 23,749,332,688 bytes (revision 009632f).
    "radixark/qwen3.8-27b-nvfp4-bf16-lmhead": Layout(
        "Qwen/Qwen3.8-27B", _MIXED, like=_NVIDIA, whole=("lm_head",)
    ),
    # FP8 attention, NVFP4 MLPs, the encoder and 849 MB of MTP unquantised; vLLM printed 22.13 GiB with MTP.
    "unsloth/qwen3.8-27b-nvfp4": Layout("Qwen/Qwen3.8-27B", _MIXED, like=_NVIDIA, whole=("lm_head",)),
    # Its config's `ignore` has 244 entries: linear attention's inputs in 48 layers, head, encoder, MTP.
    # vLLM printed 23.94 GiB, 24.70 with MTP.
    "inferact/qwen3.8-27b-nvfp4": Layout(
        "Qwen/Qwen3.8-27B",
        "NVFP4 but for the inputs of linear attention",
        form="modelopt-nvfp4",
        whole=("linear_attn.in_proj_qkv", "linear_attn.in_proj_z"),
    ),
    # Experts and full attention in NVFP4, linear attention as trained; vLLM printed 21.86, 23.43 with MTP.
    "redhatai/qwen3.6-35b-a3b-nvfp4": Layout(
        "Qwen/Qwen3.6-35B-A3B",
        "NVFP4 but for linear attention",
        form="nvfp4",
        whole=("linear_attn.in_proj_qkv", "linear_attn.in_proj_z", "linear_attn.out_proj"),
    ),
}
"""Key of a build's name → how it holds its weights."""
