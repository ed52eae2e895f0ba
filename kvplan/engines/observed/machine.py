"""The GPU in what people put beside a log: nvidia-smi -L, and the reports of vLLM's and SGLang's own scripts.

vllm-project/vllm vllm/collect_env.py and sgl-project/sglang python/sglang/check_env.py: ``GPU 0: NVIDIA H100
80GB HBM3``, ``GPU 0,1,2,3: …``. A second name is kept too: where it is another, none is believed.
"""

from __future__ import annotations

from kvplan.engines.observed.rules import Rule, rule

_LISTED = {
    "gpu_listed": ("GPU 0:", "GPU 0,1"),
    "gpu_beside": ("GPU 1:", "GPU 1,2"),
    "gpu_third": ("GPU 2:", "GPU 2,3"),
}


def machine_rules() -> tuple[Rule, ...]:
    """Rules of one dialect (a rule belongs to one): the names are settings, and tell no engine."""
    found = []
    for name, (one, several) in _LISTED.items():
        for anchor, shape in ((one, one), (several, f"{several}[[,{{:name}}]]:")):
            text = f"{shape} {{{name}:rest}}"
            found.append(rule(text, kind="settings", anchor=anchor, text="machine", weight=0))
    return tuple(found)
