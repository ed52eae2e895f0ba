"""The recorded defaults of transformers: the file's form, known facts, and that it can be made again."""

from __future__ import annotations

import importlib.util
import json
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kvplan.architectures.config import class_names

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "kvplan" / "architectures" / "data" / "transformers_defaults.json"
SCRIPT = ROOT / "scripts" / "make_transformers_defaults.py"

MODEL_KEYS = {
    *("class", "defaults", "derived", "aliases", "legacy", "sub_configs", "text", "per_layer"),
    *("builds", "error", "model_type"),
}
#: Types that 5.24.0 names as a part but does not list itself.
UNMAPPED = {"donut_swin", "rf_detr_vit"}
PART_KEYS = {"type", "class", "auto", "optional", "init", "derived"}


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    """The whole file."""
    value: dict[str, Any] = json.loads(DATA.read_text(encoding="utf-8"))
    return value


def unpacked(value: Any) -> list[Any]:
    """A list, from either of its two forms."""
    return value if isinstance(value, list) else [value["of"][int(digit, 36)] for digit in value["at"]]


def script() -> ModuleType:
    """The script that makes the file, imported from where it lies."""
    spec = importlib.util.spec_from_file_location("make_transformers_defaults", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_head_says_what_made_it(document: dict[str, Any]) -> None:
    head = document["head"]
    assert head["packages"] == {"transformers": "5.24.0"}
    assert head["model_types"] == len(document["models"]) == 822
    assert head["format"] == 1
    assert head["common"] == {"dtype": None, "is_encoder_decoder": False}


def test_file_is_compact_and_one_line_per_model_type(document: dict[str, Any]) -> None:
    text = DATA.read_text(encoding="utf-8")
    assert len(text) < 700_000
    assert len(text.splitlines()) == sum(len(section) + 2 for section in document.values()) + 2
    assert text == script().render(document)


def test_sections_are_sorted(document: dict[str, Any]) -> None:
    for section in document.values():
        assert list(section) == sorted(section)
        for record in section.values():
            if isinstance(record, dict):
                assert list(record) == sorted(record)


def test_records_have_known_keys_and_parts_resolve(document: dict[str, Any]) -> None:
    models, classes = document["models"], document["classes"]
    for name, record in {**models, **classes}.items():
        assert set(record) <= MODEL_KEYS, name
        for given in record.get("sub_configs", {}).values():
            part = {"type": given} if isinstance(given, str) else given
            assert set(part) <= PART_KEYS, name
            assert ("type" in part) != ("class" in part), name
            assert part.get("class") is None or part["class"] in classes, name
            assert part.get("type") is None or part["type"] in {*models, *UNMAPPED}, name


def test_text_paths_lead_to_a_part(document: dict[str, Any]) -> None:
    models = document["models"]
    for name, record in models.items():
        current = record
        for step in filter(None, record.get("text", "").split(".")):
            part = current["sub_configs"][step]
            part = {"type": part} if isinstance(part, str) else part
            current = models[part["type"]] if "type" in part else document["classes"][part["class"]]
        assert current["class"], name


def test_mappings_are_covered(document: dict[str, Any]) -> None:
    count = dict.fromkeys(("causal_lm", "seq2seq", "speech_seq2seq"), 0)
    for record in document["models"].values():
        for kind in count:
            count[kind] += kind in record.get("builds", {})
    assert count == {"causal_lm": 196, "seq2seq": 38, "speech_seq2seq": 22}


def test_only_two_classes_cannot_be_built_from_nothing(document: dict[str, Any]) -> None:
    assert [n for n, r in document["models"].items() if "error" in r] == ["gemma4_assistant", "nougat"]


@pytest.mark.parametrize(
    ("name", "key", "given", "derived"),
    [
        ("llama", "num_key_value_heads", None, 32),
        ("llama", "head_dim", None, 128),
        ("mistral", "num_key_value_heads", 8, 8),
        ("mistral", "sliding_window", 4096, 4096),
        ("qwen2", "sliding_window", 4096, None),
        ("deepseek_v3", "kv_lora_rank", 512, 512),
        ("t5", "num_decoder_layers", None, 6),
        ("hrm_text", "num_hidden_layers", 16, 128),
        ("jamba", "mamba_dt_rank", "auto", 256),
    ],
)
def test_given_and_derived_values(
    document: dict[str, Any], name: str, key: str, given: object, derived: object
) -> None:
    record = document["models"][name]
    assert record["defaults"][key] == given
    assert record.get("derived", {}).get(key, given) == derived


def test_layer_patterns_are_derived_not_given(document: dict[str, Any]) -> None:
    gemma = document["models"]["gemma3_text"]
    assert gemma["defaults"]["layer_types"] is None
    assert gemma["legacy"]["sliding_window_pattern"] == 6
    layers = unpacked(gemma["derived"]["layer_types"])
    assert len(layers) == gemma["defaults"]["num_hidden_layers"]
    assert [n for n, kind in enumerate(layers) if kind == "full_attention"] == [5, 11, 17, 23]


def test_layers_that_differ_are_listed(document: dict[str, Any]) -> None:
    rows = unpacked(document["models"]["gemma4_text"]["per_layer"])
    assert [row["head_dim"] for row in rows[:6]] == [256, 256, 256, 256, 256, 512]


@pytest.mark.conformance
def test_the_installed_transformers_gives_the_same_file() -> None:
    try:
        installed = metadata.version("transformers")
    except metadata.PackageNotFoundError:
        pytest.skip("transformers is not installed")
    if installed != "5.24.0":
        pytest.skip(f"transformers {installed} is installed; the file is made with 5.24.0")
    assert script().generate() == DATA.read_text(encoding="utf-8")


def test_a_type_is_found_in_the_text_of_the_table(document: dict[str, Any]) -> None:
    """As in the parsed one: every type, its class names, nothing that only stands elsewhere in the file."""
    assert class_names.known_model_types() == tuple(document["models"])
    assert class_names.release() == document["head"]["packages"]["transformers"]
    owners: dict[str, dict[str, bool]] = {}
    for model_type, entry in document["models"].items():
        assert class_names.class_facts(model_type) == entry
        stem = entry.get("class", "").removesuffix("Config")
        for built in entry.get("builds", {}).values():
            for name in [built] if isinstance(built, str) else built:
                owners.setdefault(name, {})[model_type] = bool(stem) and name.startswith(stem)
    for other in {*document["classes"], *document["head"], *document} - document["models"].keys():
        assert class_names.class_facts(other) is None
    for name, types in owners.items():
        if name not in class_names.OTHER_CLASSES:
            own = [one for one, same in types.items() if same or len(types) == 1]
            assert class_names.model_type_of(name) == (own[0] if len(own) == 1 else None), name
    for other in ("", "causal_lm", "builds", 'a"b', "nobody\n"):
        assert class_names.model_type_of(other) is None
