"""An option whose name is nearly that of one stops the server's own parser, and kvplan."""

from __future__ import annotations

import pytest

from kvplan.api.launching import import_launches
from kvplan.errors import KvplanError

DROPPED = """
    swap-space num-scheduler-steps max-seq-len-to-capture enable-reasoning guided-decoding-backend task
    disable-frontend-multiprocessing preemption-mode scheduler-delay-factor use-v2-block-manager device
    speculative-model num-speculative-tokens cuda-graph-sizes worker-use-ray
    lora-extra-vocab-size long-lora-scaling-factors num-lookahead-slots disable-mm-preprocessor-cache
""".split()


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("vllm serve x/y --tensor-paralel-size 2", "--tensor-parallel-size"),
        ("vllm serve x/y --gpu-memory-utilisation=0.5", "--gpu-memory-utilization"),
        ("vllm serve x/y --kv-cache-type fp8", "--kv-cache-dtype"),
        ("python -m sglang.launch_server --model x/y --mem-fraction-statik 0.8", "--mem-fraction-static"),
        ("llama-server -m x.gguf -ngl 99 --ctx-sise 4096", "--ctx-size"),
    ],
)
def test_a_misspelled_option_is_an_error(words: str, meant: str) -> None:
    with pytest.raises(KvplanError) as caught:
        import_launches(words)
    assert caught.value.code == "unknown-flag"
    assert caught.value.help == (f"did you mean {meant}?",)


@pytest.mark.parametrize("name", DROPPED)
def test_what_a_release_has_dropped_is_named_only(name: str) -> None:
    (launch,) = import_launches(f"vllm serve x/y --{name} 3")
    assert launch.unread == (f"--{name} 3",)
