"""CONTRIBUTING.md, "Add a model in four minutes": its commands, as they stand, in a scratch copy."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
GUIDE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
PART = GUIDE.partition("## Add a model in four minutes")[2].partition("\n## ")[0]
COMMANDS = [
    line.strip()
    for block in re.findall(r"```console\n(.*?)```", PART, flags=re.DOTALL)
    for line in block.strip().splitlines()
]
WINDOWED, FULL = "sliding_attention", "full_attention"
CONFIG = {
    "model_type": "zephyria",
    "architectures": ["ZephyriaForCausalLM"],
    "num_hidden_layers": 6,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "head_dim": 64,
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "vocab_size": 32_000,
    "max_position_embeddings": 32_768,
    "torch_dtype": "bfloat16",
    "sliding_window": 1024,
    "layer_types": [WINDOWED, WINDOWED, FULL] * 2,
}
ONE_REQUEST = 2 * 4 * 64 * 2 * (4 * 1024 + 2 * 8192)
"""K and V of 4 heads of 64 in 16 bit: four layers keep 1,024 tokens, two all 8,192."""


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    """A copy of the repository's own folders, and the new model's config."""
    for name in ("kvplan", "model_cards", "gpu_specs", "scripts"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    folder = tmp_path / "path" / "to"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    return tmp_path


def run(command: str, where: Path, code: int = 0) -> str:
    """One line of the guide, with this Python and the copy's modules: what it prints, or its error."""
    words = command.replace("SLUG", "zephyria-1b").split()
    head = [sys.executable] if words[0] == "python" else [sys.executable, "-m", "kvplan"]
    environment = {**os.environ, "PYTHONPATH": str(where), "KVPLAN_CONFIG": ""}
    done = subprocess.run(
        [*head, *words[1:]], cwd=where, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == code, (command, done.stdout, done.stderr)
    return done.stdout or done.stderr


def test_the_guide_works_as_written(scratch: Path) -> None:
    assert [command.split()[:3] for command in COMMANDS[2:4]] == [
        ["kvplan", "cards", "new"],
        ["python", "-m", "scripts.make_cards"],
    ]
    said = [run(command, scratch) for command in COMMANDS]
    assert f"{ONE_REQUEST:,}" in said[0]
    assert "layer_types" in said[0], "what was assumed is said"
    card = (scratch / "model_cards" / "zephyria-1b.yaml").read_text(encoding="utf-8")
    assert "verified: false" in card
    assert "\nexpect:\n" in card
    assert "weights" in said[2], "how weights are added is said"
    assert "Nothing to mend" in said[-2]
    assert f"{ONE_REQUEST:,}" in said[-1], "found by its name"


def test_a_lineage_is_the_file_that_the_guide_shows(scratch: Path) -> None:
    """Also where the config names a class of a public type: the type's own lineage counts."""
    part = GUIDE.partition("## Add a lineage")[2].partition("\n## ")[0]
    (source,) = re.findall(r"```python\n(.*?)```", part, flags=re.DOTALL)
    folder = scratch / "kvplan" / "architectures" / "lineages"
    (folder / "zephyr.py").write_text(source, encoding="utf-8")
    (model_type,) = re.findall(r'lineage\("(\w+)"', source)
    config = {key: value for key, value in CONFIG.items() if key != "layer_types"}
    for name in ("ZephyrNextForCausalLM", "Qwen3ForCausalLM"):
        made = {**config, "model_type": model_type, "architectures": [name], "num_hidden_layers": 8}
        (scratch / "path" / "to" / "config.json").write_text(json.dumps(made), encoding="utf-8")
        said = run("kvplan explain path/to/config.json --engine generic -t 8k", scratch)
        assert "6 × sliding_window   layers 0-2, 4-6" in said
        assert "2 × full_attention   layers 3, 7" in said


def test_a_gpu_is_a_copy_with_another_name(scratch: Path) -> None:
    part = GUIDE.partition("## Add a GPU")[2].partition("\n## ")[0]
    spec = (scratch / "gpu_specs" / "l4-24gb.yaml").read_text(encoding="utf-8")
    ours = spec.replace("l4-24gb", "l44-24gb").replace("NVIDIA L4", "NVIDIA L44")
    ours = re.sub(r"^default_for: .*$", "default_for: []", ours, flags=re.MULTILINE)
    (scratch / "gpu_specs" / "l44-24gb.yaml").write_text(ours, encoding="utf-8")
    commands = re.findall(r"`((?:python|kvplan) [^`]*)`", " ".join(part.split()))
    assert len(commands) == 2
    renew, show = (command.replace("gpus SLUG", "gpus l44") for command in commands)
    unknown = run(show, scratch, 2)
    assert renew in unknown
    assert "did you mean" not in unknown
    taken = ours.replace("default_for: []", "aliases: [h100]")
    (scratch / "gpu_specs" / "l44-24gb.yaml").write_text(taken, encoding="utf-8")
    clash = run(renew, scratch, 2)
    assert clash.startswith("error[duplicate-gpu-key]: `h100` means both")
    assert "help:" in clash
    (scratch / "gpu_specs" / "l44-24gb.yaml").write_text(ours, encoding="utf-8")
    run(renew, scratch)
    assert run(show, scratch).startswith("NVIDIA L44   l44-24gb")


def test_an_engine_is_one_file_and_a_line(scratch: Path) -> None:
    """It answers size and explain; the rest refuses it."""
    engines = scratch / "kvplan" / "engines"
    source = (engines / "generic.py").read_text(encoding="utf-8")
    ours = source.replace("class Generic", "class Toy").replace('name: str = "generic"', 'name: str = "toy"')
    (engines / "toy.py").write_text(ours, encoding="utf-8")
    table = engines / "__init__.py"
    line = '"tgi": "tgi.engine:Tgi",'
    listed = table.read_text(encoding="utf-8").replace(line, f'{line}\n        "toy": "toy:Toy",')
    table.write_text(listed, encoding="utf-8")
    assert "toy" in run("kvplan size path/to/config.json --engine toy -t 8k", scratch)
    plan = scratch / "plan.yaml"
    plan.write_text(
        "kvplan: plan/v1\nname: a\nmodel: qwen3-8b\nengine: toy\ngpu: h100\ngpus: 1\n", encoding="utf-8"
    )
    environment = {**os.environ, "PYTHONPATH": str(scratch), "KVPLAN_CONFIG": ""}
    for words in ("check plan.yaml", "export plan.yaml"):
        done = subprocess.run(
            [sys.executable, "-m", "kvplan", *words.split()],
            cwd=scratch, env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 2, (words, done.stdout, done.stderr)
        assert "toy" in done.stdout + done.stderr


def test_an_index_that_is_behind_names_the_command(scratch: Path) -> None:
    new, renew, lint, found = COMMANDS[2:]
    run(new, scratch)
    assert renew in " ".join(run(lint, scratch, 1).split())
    unknown = run(found, scratch, 2)
    assert renew in unknown
    assert "did you mean" not in unknown
    card = (scratch / "model_cards" / "zephyria-1b.yaml").read_text(encoding="utf-8")
    (scratch / "model_cards" / "zephyria-2b.yaml").write_text(card, encoding="utf-8")
    assert run(renew, scratch, 2).startswith("error[duplicate-model-name]")


@pytest.mark.parametrize("word", ["retention", "mamba3", "hyper_attention"])
def test_unknown_words_in_layer_types_are_still_refused(tmp_path: Path, word: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**CONFIG, "layer_types": [word, *[FULL] * 5]}), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "kvplan", "size", str(path), "-e", "generic"],
        capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT), "KVPLAN_CONFIG": ""},
    )  # fmt: skip
    assert done.returncode == 2
    assert word in done.stderr
    assert "help:" in done.stderr
