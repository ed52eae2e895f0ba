"""CONTRIBUTING.md, "Add a lineage": one line in one file, or one file, in a scratch copy of the package."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import kvplan

ROOT = Path(__file__).resolve().parents[2]
LINEAGES = Path("kvplan/architectures/lineages")
CLASSES = Path("kvplan/engines/data/classes.tsv")
HIDDEN, WIDTH, HEADS, KV, HEAD_DIM, LAYERS, VOCABULARY = 1024, 4096, 16, 4, 64, 8, 32_000
CONFIG: dict[str, Any] = {
    "model_type": "zephyria_next",
    "architectures": ["ZephyriaNextForCausalLM"],
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV,
    "head_dim": HEAD_DIM,
    "hidden_size": HIDDEN,
    "intermediate_size": WIDTH,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 32_768,
    "sliding_window": 1024,
    "num_nextn_predict_layers": 1,
    "torch_dtype": "bfloat16",
}
FILE = '''"""Zephyria: three windowed layers, one full, a norm for query and key.

Source: a test.
"""

from __future__ import annotations

from kvplan.architectures.blocks.decoder import ATTENTION
from kvplan.architectures.blocks.plain import Plain
from kvplan.architectures.blocks.recipe import FULL, SLIDING, Recipe, every
from kvplan.architectures.config.custom_types import CustomType
from kvplan.architectures.prediction import Prediction
from kvplan.architectures.registry import lineage

lineage(
    "zephyria_next",
    reads=CustomType("a test"),
    layers=Recipe(ATTENTION, every(4, SLIDING, FULL)),
    block=Plain(qk_norm="head"),
    prediction=Prediction(),
)
'''
LAYER = (
    2 * HIDDEN * HEADS * HEAD_DIM
    + 2 * HIDDEN * KV * HEAD_DIM
    + 3 * HIDDEN * WIDTH
    + 2 * HIDDEN
    + 2 * HEAD_DIM
)
PREDICTION = LAYER + 2 * HIDDEN * HIDDEN + 3 * HIDDEN
"""The layer, the projection of embedding and hidden state, and three norms."""
KEPT = 2 * 2 * KV * HEAD_DIM
"""Bytes of K and V of one token and layer in 16 bit."""
ASK = """
import json, sys
from kvplan.architectures.config.read import read_config
from kvplan.architectures.inventory import inventory_of
raw = json.load(open(sys.argv[1]))
model, tensors = read_config(raw, id="m", source="m"), inventory_of(raw)
draft = sum(one.elements for block in tensors.draft for one in block.tensors)
said = [repr(model.runs), repr(model.draft_layers), model.warnings, tensors.parameters, draft, repr(tensors)]
print(json.dumps(said))
"""


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    """A copy of the package and its data, and the new model's config."""
    for name in ("kvplan", "model_cards", "gpu_specs"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def ask(where: Path, config: dict[str, Any], *command: str) -> str:
    """What the copy says of a config: a script's arguments, or a command of kvplan."""
    path = where / "config.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, *(part.replace("CONFIG", str(path)) for part in command)],
        cwd=where, env={**os.environ, "PYTHONPATH": str(where), "KVPLAN_CONFIG": ""},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, (done.stdout, done.stderr)
    return done.stdout


def test_a_type_like_a_known_one_is_one_line(scratch: Path) -> None:
    """Layers, tensors and prediction layers are those of the known one, whose defaults count as well."""
    published = dict(kvplan.load_model("qwen3-next-80b-a3b").config or {})
    known = json.loads(ask(scratch, published, "-c", ASK, "CONFIG"))
    assert known[4] > 0, "it has prediction layers"
    with (scratch / LINEAGES / "qwen_delta.py").open("a", encoding="utf-8") as file:
        file.write('lineage("qwen9_next", like="qwen3_next")\n')
    assert json.loads(ask(scratch, {**published, "model_type": "qwen9_next"}, "-c", ASK, "CONFIG")) == known


def test_a_type_with_a_difference_of_its_own_is_one_file(scratch: Path) -> None:
    """Cache, weights and prediction layers by hand; an engine serves it once its data names the class."""
    (scratch / LINEAGES / "zephyria.py").write_text(FILE, encoding="utf-8")
    _, _, warnings, parameters, draft, _ = json.loads(ask(scratch, CONFIG, "-c", ASK, "CONFIG"))
    assert warnings == []
    assert parameters == LAYERS * LAYER + 2 * VOCABULARY * HIDDEN + HIDDEN
    assert draft == PREDICTION
    size = ("-m", "kvplan", "size", "CONFIG", "-t", "8192", "--json")
    generic = json.loads(ask(scratch, CONFIG, *size, "-e", "generic"))
    assert generic["per_gpu"]["kv_bytes_per_request"] == KEPT * (6 * 1024 + 2 * 8192)
    with (scratch / CLASSES).open("a", encoding="utf-8") as data:
        data.write("vllm\tgenerates\tZephyriaNextForCausalLM\t\t\n")
    served = json.loads(ask(scratch, CONFIG, *size, "--gpu", "h100"))
    assert served["refusal"] is None
    assert served["budget"]["kv_pool_bytes"] > 0
