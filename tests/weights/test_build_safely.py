"""What a config may say to transformers: sizes, and nothing that chooses code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kvplan.api import load_model
from kvplan.architectures.registry import Lineage
from kvplan.errors import KvplanError
from tests.weights.checkpoints import TINY_LLAMA

STUB = '''
"""Records everything that asks for a kernel."""
import os


def _note(*what):
    with open(os.environ["KERNELS_ASKED"], "a") as log:
        log.write(repr(what) + "\\n")


class _Any:
    def __init__(self, *args, **kwargs):
        pass

    def __call__(self, *args, **kwargs):
        return args[0] if args else self

    def __getattr__(self, name):
        return _Any()


def get_kernel(*args, **kwargs):
    _note("get_kernel", args, sorted(kwargs))
    raise FileNotFoundError("a stub")


def use_kernel_forward_from_hub(name):
    return lambda found: found


def use_kernelized_func(*names):
    return lambda found: found


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return _Any
'''
ASKS = """
import json, sys
from kvplan.errors import KvplanError
from kvplan.files.meta_model import tensors_on_meta
for config in json.load(sys.stdin):
    try:
        print(len(tensors_on_meta(config).tensors))
    except KvplanError as error:
        print(error.code)
"""
KERNEL = "kernels-community/flash-attn2"
EVIL: list[dict[str, Any]] = [
    {**TINY_LLAMA, key: value}
    for key in ("_attn_implementation", "attn_implementation", "_attn_implementation_internal")
    for value in (KERNEL, "evil/kernel", {"": KERNEL})
]
EVIL += [
    {**TINY_LLAMA, "use_kernels": True, "kernel_config": {"a": KERNEL}},
    {**TINY_LLAMA, "_experts_implementation": KERNEL, "experts_implementation": KERNEL},
    {
        **TINY_LLAMA,
        "auto_map": {"AutoModelForCausalLM": "evil/code--model.Evil"},
        "_name_or_path": "evil/code",
    },
    {"model_type": "llava", "text_config": {**TINY_LLAMA, "_attn_implementation": KERNEL}},
    {"model_type": "mamba", "num_hidden_layers": 1, "hidden_size": 64, "attn_implementation": KERNEL},
]
BESIDE: list[dict[str, Any]] = [
    {"model_type": "llava", "vision_config": {"model_type": "timm_wrapper", "architecture": "resnet18"}},
    {"model_type": "llava", "vision_config": {"model_type": "not_one_of_the_library"}},
    {"model_type": "detr", "use_timm_backbone": True, "backbone": "resnet50"},
]


def _run(code: str, text: str, extra: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], input=text, capture_output=True, text=True, check=True,
        env={**os.environ, **extra}, timeout=300,
    )  # fmt: skip


def test_no_kernel_is_asked_for_and_nothing_of_another_library_is_built(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="the extra gpu is not installed")
    pytest.importorskip("transformers", reason="the extra hf is not installed")
    from transformers.utils.import_utils import KERNELS_MIN_VERSION

    package = tmp_path / "kernels"
    package.mkdir()
    (package / "__init__.py").write_text(STUB)
    meta = tmp_path / f"kernels-{KERNELS_MIN_VERSION}.dist-info"
    meta.mkdir()
    (meta / "METADATA").write_text(f"Metadata-Version: 2.1\nName: kernels\nVersion: {KERNELS_MIN_VERSION}\n")
    (meta / "RECORD").write_text("kernels/__init__.py,,\n")
    log = tmp_path / "asked"
    path = os.pathsep.join((str(tmp_path), str(Path(__file__).parents[2])))
    more = {"PYTHONPATH": path, "KERNELS_ASKED": str(log)}
    # The stub is heard: the library itself does ask for what such a config names.
    direct = (
        "import transformers\n"
        f"config = transformers.LlamaConfig(hidden_size=64, num_hidden_layers=1, num_attention_heads=4)\n"
        f"config._attn_implementation = {KERNEL!r}\n"
        "try:\n    transformers.LlamaForCausalLM._from_config(config)\nexcept Exception: pass\n"
    )
    _run(direct, "", more)
    assert KERNEL in log.read_text()
    log.unlink()
    answers = _run(ASKS, json.dumps([*EVIL, *BESIDE]), more).stdout.split()
    assert not log.exists()
    assert all(answer.isdigit() for answer in answers[: len(EVIL)]), answers
    assert answers[len(EVIL) :] == ["no-weights"] * len(BESIDE)


@pytest.mark.parametrize(
    "change",
    [
        {"num_hidden_layers": 10**6},
        {"vocab_size": 2**40},
        {"rope_parameters": {"a": {"b": {"c": {"d": {"e": {"f": {"g": 1}}}}}}}},
        {"model_type": "qwen3", "layer_types": ["full_attention"] * 5000},
    ],
)
def test_sizes_are_bounded_before_anything_is_built(change: dict[str, Any]) -> None:
    pytest.importorskip("torch", reason="the extra gpu is not installed")
    pytest.importorskip("transformers", reason="the extra hf is not installed")
    from kvplan.files.meta_model import tensors_on_meta

    with pytest.raises(KvplanError) as caught:
        tensors_on_meta({**TINY_LLAMA, **change})
    assert caught.value.code == "bad-config"


def test_nothing_is_built_unless_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A question about a model without tensor rules leaves alone what happens to be installed."""
    from kvplan.architectures import inventory
    from kvplan.architectures.weights import sources_of
    from kvplan.files import meta_model

    def refuse(raw: object) -> None:
        raise AssertionError("a model was built")

    monkeypatch.setattr(meta_model, "tensors_on_meta", refuse)
    model = load_model({**TINY_LLAMA, "model_type": "helium"})
    monkeypatch.setattr(inventory, "lineage_of", lambda name: Lineage())
    found = sources_of(model)
    assert found.checkpoint is None
    assert found.inventory is None
    assert found.problem is not None
    assert "--weights" in " ".join(found.problem.help)
