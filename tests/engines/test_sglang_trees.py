"""Trees of drafts and two-batch overlap: figures of SGLang 0.5.23's own planner and arguments."""

from __future__ import annotations

from typing import Any

import pytest

import kvplan
from kvplan.api import load_gpu, make_settings
from kvplan.architectures.config.read import read_config
from kvplan.engines.sglang.engine import Sglang
from kvplan.model import Model
from tests.recorded import model_of

ENGINE = "sglang@0.5.23"


def _head(target: Model) -> Model:
    """An EAGLE-3 head: one layer of the target's widths."""
    config = {
        **dict(target.config or {}),
        "num_hidden_layers": 1,
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "draft_vocab_size": 32000,
    }
    return read_config(config, id="eagle3-head", source="test")


@pytest.mark.parametrize(
    ("name", "gpu", "memory", "tp", "steps", "topk", "verified", "tokens"),
    [
        ("meta-llama__Llama-3.1-8B-Instruct", "h100", 53687091200, 1, 5, 8, 64, 397187),
        ("Qwen__Qwen3-8B", "h100", 40000000000, 1, 3, 4, 16, 263935),
        ("deepseek-ai__DeepSeek-R1", "h200", 40000000000, 8, 3, 4, 8, 560035),
    ],
)
def test_a_tree_of_drafts(
    name: str, gpu: str, memory: int, tp: int, steps: int, topk: int, verified: int, tokens: int
) -> None:
    """As many tokens as beside a chain, and 48 requests where nobody says how many."""
    model = model_of(name)
    own = bool(model.draft_layers)
    options: dict[str, Any] = {
        "gpu": load_gpu(gpu),
        "kv_cache_memory": memory,
        "tensor_parallel_size": tp,
        "speculative_method": "mtp" if own else "eagle3",
        "num_speculative_tokens": steps,
    }
    if not own:
        options["speculative_model"] = _head(model)
    tree = {"speculative_eagle_topk": topk, "speculative_num_draft_tokens": verified}
    found = Sglang().size(model, make_settings(tokens=1, **options, **tree), "0.5.23").settings
    chain = Sglang().size(model, make_settings(tokens=1, **options), "0.5.23").settings
    assert (found["max_total_num_tokens"], found["max_running_requests"]) == (tokens, 48)
    assert chain["max_total_num_tokens"] == tokens
    assert found["speculative_num_draft_tokens"] == verified
    assert chain["speculative_num_draft_tokens"] == steps + 1


def test_a_tree_says_what_it_verifies() -> None:
    with pytest.raises(kvplan.KvplanError, match="verifies"):
        kvplan.size(
            "deepseek-v3", engine=ENGINE, speculative_config="mtp:3", settings={"speculative_eagle_topk": 4}
        )


LARGE = {"chunked_prefill_size": 16384, "cuda_graph_max_bs": 64}


@pytest.mark.parametrize(
    ("name", "gpu", "tp", "settings", "fraction"),
    [
        ("google__gemma-2-9b-it", "l4", 2, {"kv_cache_dtype": "fp8_e4m3"}, 0.696),
        ("internlm__internlm2_5-7b-chat", "h20", 2, {"max_num_seqs": 300}, 0.861),
        ("deepseek-ai__DeepSeek-V2", "rtx-pro-6000", 8, LARGE, 0.732),
    ],
)
def test_two_halves_of_a_batch_have_no_graphs_of_prompts(
    name: str, gpu: str, tp: int, settings: dict[str, Any], fraction: float
) -> None:
    """arg_groups/cuda_graph_hook.py: what is kept for them becomes cache; without groups it is refused."""
    asked = make_settings(
        tokens=1, gpu=load_gpu(gpu), tensor_parallel_size=tp, enable_two_batch_overlap=True, **settings
    )
    result = Sglang().size(model_of(name), asked, "0.5.23")
    assert result.settings["mem_fraction_static"] == fraction
    assert result.refusal is not None
    assert "--attn-dp-size 2" in result.refusal.help
