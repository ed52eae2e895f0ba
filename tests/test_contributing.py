"""CONTRIBUTING.md, "Add a model in four minutes": its commands, as they stand, in a scratch copy."""

from __future__ import annotations

import inspect
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kvplan import families
from kvplan.engines.vllm.memory.profile_run import Coefficients
from kvplan.engines.vllm.options import VllmOptions
from kvplan.engines.vllm.start.versions import VERSIONS, rules_of
from kvplan.families import SlidingWindow
from scripts import fit_budget
from tests.budget.test_coefficients import REPORTS

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


def replaced(scratch: Path, of: Any, *pairs: tuple[str, str]) -> None:
    """The copy of the file that something stands in, with texts replaced that occur once."""
    name = inspect.getsourcefile(inspect.unwrap(of))
    assert name is not None
    path = scratch / Path(name).relative_to(ROOT)
    text = path.read_text(encoding="utf-8")
    for old, new in pairs:
        assert text.count(old) == 1, (path, old)
        text = text.replace(old, new)
    path.write_text(text, encoding="utf-8")


FAMILY = """

@record()
class KeyAttention(Family):
    \"""Keys alone.\"""

    num_kv_heads: int
    head_dim: int

    family: ClassVar[str] = "key_attention"
    kind: ClassVar[Kind] = Kind.FULL
    formula: ClassVar[str] = "num_kv_heads · head_dim · element"
    source: ClassVar[str] = "nobody's"

    def terms(self, store: Storage) -> tuple[Term, ...]:
        return kv_terms(store, self.num_kv_heads, self.head_dim, self.head_dim)[:1]
"""
LINEAGE = """
from kvplan.architectures.registry import lineage
from kvplan.families import KeyAttention
from kvplan.model import Layer


def _layers(view):
    part = KeyAttention(view.integer("num_key_value_heads"), view.integer("head_dim"))
    return [Layer((part,)) for _ in range(view.num_layers())]


lineage("zephyr_keys", layers=_layers)
"""


def test_a_release_is_its_number_and_a_row(scratch: Path) -> None:
    newest, ours = VERSIONS[-1], f"0.{int(VERSIONS[-1].partition('.')[2]) + 1}"
    count = newest.partition(".")[2]
    asked = f"kvplan size qwen3-8b --gpu h100 -t 8k -e vllm@{ours}"
    assert "is newer than the newest" in run(asked, scratch)
    row = f'    ("{ours}", {{"default_utilization_percent": 81}}),\n'
    end = "    ),\n)\n\n\n@lru_cache"
    replaced(
        scratch,
        rules_of,
        (f"range(8, {int(count) + 1})", f"range(8, {int(count) + 2})"),
        (end, end.replace("\n)", f"\n{row})", 1)),
    )
    said = run(asked, scratch)
    assert "newer than" not in said
    assert "(util 0.81)" in said
    assert "(util 0.92)" in run(asked.replace(ours, newest), scratch)


def test_a_coefficient_is_a_field_and_a_row(scratch: Path) -> None:
    """Born with its zero, every command answers and the fit writes its first row."""
    asked = "kvplan size qwen3-8b --gpu h100 -t 8k"
    before = run(asked, scratch)
    field = "    graphs_wide: bool"
    replaced(scratch, Coefficients, (field, f"    zephyr: int = 0\n{field}"))
    assert run(asked, scratch) == before
    replaced(scratch, fit_budget, ('"outside the utilisation"', '"outside the utilisation", zephyr=9'))
    run(f"python -m scripts.fit_budget {' '.join(map(str, REPORTS))} --write", scratch)
    path = next((scratch / "kvplan").rglob("budget.json"))
    assert '"zephyr": 9' in path.read_text(encoding="utf-8")
    assert run(asked, scratch) == before


def test_an_option_is_one_field(scratch: Path) -> None:
    field = "    enable_sleep_mode: bool"
    ours = '    zephyr_pages: int | None = option("count", "Pages of a zephyr.")'
    replaced(scratch, VllmOptions, (field, f"{ours}\n{field}"))
    assert "--zephyr-pages" in run("kvplan size --help vllm", scratch)
    asked = "kvplan size qwen3-8b --gpu h100 -t 8k --zephyr-pages"
    run(f"{asked} 3", scratch)
    assert "zephyr" in run(f"{asked} x", scratch, 2)
    (scratch / "docs").mkdir()
    run("python -m scripts.make_api", scratch)
    assert "`zephyr_pages`" in (scratch / "docs" / "api.md").read_text(encoding="utf-8")


def test_a_family_is_a_class_and_a_name(scratch: Path) -> None:
    """A type's lineage then reads it, and size and explain answer; an engine refuses it by its name."""
    home = inspect.getsourcefile(SlidingWindow)
    assert home is not None
    path = scratch / Path(home).relative_to(ROOT)
    path.write_text(path.read_text(encoding="utf-8") + FAMILY, encoding="utf-8")
    replaced(
        scratch,
        families,
        ("    in_window,\n", "    KeyAttention,\n    in_window,\n"),
        ("    NgramEmbedding,\n]\nFAMILIES", "    NgramEmbedding,\n    KeyAttention,\n]\nFAMILIES"),
    )
    (scratch / "kvplan" / "architectures" / "lineages" / "zephyr.py").write_text(LINEAGE, encoding="utf-8")
    config = {**CONFIG, "model_type": "zephyr_keys", "architectures": ["LlamaForCausalLM"]}
    (scratch / "path" / "to" / "config.json").write_text(json.dumps(config), encoding="utf-8")
    asked = "path/to/config.json -t 8k --engine"
    assert f"{6 * 4 * 64 * 2 * 8192:,}" in run(f"kvplan explain {asked} generic", scratch)
    assert "key_attention" in run(f"kvplan size {asked} vllm", scratch, 2)


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
