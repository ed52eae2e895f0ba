"""Settings that no flag says: environment variables in scripts, manifests and on the plan's screen."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

import kvplan
from kvplan.api.launching import started_readings
from kvplan.engines import OPTIONS_OF
from kvplan.engines.command import EngineTable
from kvplan.engines.folders import having
from kvplan.report.export.arguments import arguments_of
from kvplan.report.export.container import container_of
from kvplan.report.export.place import table_of
from kvplan.report.export.shell import export
from kvplan.report.plan_parts import flag_lines
from kvplan.report.start_words import started
from tests.report.export.plans import full, plan

TABLES: dict[str, EngineTable] = {name: part.TABLE for name, part in having("command").items()}
VARIABLES = sorted(
    (engine, name)
    for engine, table in TABLES.items()
    for name, argument in table.settings.items()
    if argument.in_environment and argument.env is not None
)
LONGER = {"vllm": "VLLM_ALLOW_LONG_MAX_MODEL_LEN", "sglang": "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN"}


def values_of(engine: str, name: str) -> list[object]:
    """All that an option may be."""
    (option,) = (one for one in OPTIONS_OF[engine] if one.name == name)
    return [True, False] if option.kind == "flag" else list(option.choices)


def test_there_are_some() -> None:
    assert {name for _, name in VARIABLES} >= {"any_length", "model_runner", "pytorch_alloc_conf"}


@pytest.mark.parametrize(("engine", "name"), VARIABLES)
def test_no_variable_is_empty(engine: str, name: str) -> None:
    """vLLM turns VLLM_USE_V2_MODEL_RUNNER into a number: an empty one ends its start (vllm/envs.py)."""
    said = 0
    for value in values_of(engine, name):
        made = plan(full(engine).engine, options={name: value})
        table, version = table_of(made)
        arguments = arguments_of(made, made.settings, table, version)
        assert len(arguments.env) <= 1
        assert all(word for _, word in arguments.env)
        assert "" not in arguments.words
        said += len(arguments.env)
    assert said > 0


@pytest.mark.parametrize(("engine", "name"), VARIABLES)
def test_what_is_emitted_is_read_back(engine: str, name: str) -> None:
    """A script's variable is the plan's setting again, or what says the same: that FlashInfer is absent no
    command tells."""
    for value in values_of(engine, name):
        made = plan(full(engine).engine, options={name: value}, max_model_len=4096)
        table, version = table_of(made)
        if not arguments_of(made, made.settings, table, version).env:
            continue
        (reading,) = started_readings(export(made, made.settings, None, None), "h100")
        assert reading.plan is not None
        read, words = reading.plan.settings.own[name], table.settings[name].words or {}
        assert words.get(str(read)) == words.get(str(value))


@pytest.mark.parametrize("engine", sorted(LONGER))
def test_a_length_beyond_the_config_starts(engine: str) -> None:
    """Without its variable the server refuses what the plan says."""
    made = plan(full(engine).engine, options={"any_length": True}, max_model_len=100_000)
    assert f"{LONGER[engine]}=1 " in export(made, made.settings, None, None)
    container = container_of(made, made.settings, None, None)
    assert (LONGER[engine], "1") in container.env


def test_an_override_of_the_length_is_written() -> None:
    made = plan(options={"config_length": 65536}, max_model_len=65536)
    script = export(made, made.settings, None, None)
    assert '{"max_position_embeddings": 65536}' in shlex.split(script.replace("\\\n", " "), comments=True)
    (reading,) = started_readings(script, "h100")
    assert reading.plan is not None
    assert reading.plan.settings.own["config_length"] == 65536


def flags_in(words: str) -> set[str]:
    """The flags of a line, without values."""
    return {word for word in shlex.split(words) if word.startswith("--")}


SCREENS: list[dict[str, Any]] = [
    {"compile_cache": "cold", "flashinfer": "absent"},
    {"model_runner": "v1", "pytorch_alloc_conf": "expandable_segments:True"},
    {"max_model_len": 100_000, "any_length": True},
]


@pytest.mark.parametrize("asked", SCREENS)
def test_the_screen_shows_what_a_server_takes(asked: dict[str, Any]) -> None:
    """`serve:` has no flag that the server does not know, and every variable that it needs."""
    found = kvplan.plan("qwen3-8b", gpu="h100", tokens=asked.get("max_model_len", 10_000), **asked)
    best = found.options[0]
    line = started(best.engine, best.model, dict(best.serve))
    known = {argument.flag for argument in TABLES["vllm"].settings.values()}
    assert flags_in(line) <= known
    made = plan(best.engine, options={k: v for k, v in asked.items() if k != "max_model_len"})
    table, version = table_of(made)
    variables = [f"{name}={value}" for name, value in arguments_of(made, made.settings, table, version).env]
    assert sorted(word for word in line.split() if "=" in word.partition("-")[0]) == sorted(variables)
    screen = " ".join(str(row) for row in flag_lines(found))
    for word in (*variables, *flags_in(line)):
        assert word in screen


def test_switches_stand_alone_or_not_at_all() -> None:
    serve: dict[str, object] = {"enforce_eager": True, "enable_lora": False, "max_model_len": 8192}
    assert started("vllm@0.33", "a/b", serve) == "a/b --enforce-eager --max-model-len 8192"
    assert started("vllm", "", {}) == ""
