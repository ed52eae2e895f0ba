"""Flags count before the environment, the environment before the config file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kvplan.cli.given import config_path, gather
from kvplan.cli.options import OPTIONS, whole_number
from kvplan.engines import ENGINES, OPTIONS_OF, OWN_OPTIONS
from kvplan.engines.shared_options import speculative
from kvplan.engines.traits import traits_of
from kvplan.errors import KvplanError
from kvplan.record import field_names
from kvplan.settings import MEDIA, Settings
from tests.cli.conftest import Run


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "kvplan" / "config.yaml"
    path.parent.mkdir()
    return path


def _environment(file: Path, **more: str) -> dict[str, str]:
    return {"XDG_CONFIG_HOME": str(file.parent.parent), **more}


def test_the_first_that_says_something_counts(file: Path) -> None:
    file.write_text(
        "engine: generic\ntokens: 1024\nrequests: [1, 2]\ntensor-parallel-size: 2\n", encoding="utf-8"
    )
    values = gather(
        {"tokens": "4k", "requests": None}, _environment(file, KVPLAN_TOKENS="2k", KVPLAN_REQUESTS="3")
    )
    assert values == {"engine": ["generic"], "tokens": [4096], "requests": [3], "tensor_parallel_size": 2}


def test_an_empty_variable_says_nothing(file: Path) -> None:
    assert gather({}, _environment(file, KVPLAN_TOKENS="", KVPLAN_CONFIG="")) == {}


def test_switches_come_from_everywhere(file: Path) -> None:
    file.write_text("enable_prefix_caching: false\n", encoding="utf-8")
    name = "enable_prefix_caching"
    assert gather({}, _environment(file))[name] is False
    assert gather({}, _environment(file, KVPLAN_ENABLE_PREFIX_CACHING="1"))[name] is True
    assert gather({name: False}, _environment(file, KVPLAN_ENABLE_PREFIX_CACHING="1"))[name] is False


@pytest.mark.parametrize(
    ("text", "code", "says"),
    [
        ("tokns: 4\n", "unknown-option", "did you mean tokens"),
        ("- 4\n", "bad-config-file", "mapping"),
        ("tokens: 4.5\n", "bad-config-file", "--tokens"),
        ("tokens: 4kk\n", "bad-count", "tokens: 4kk"),
        ("enable_prefix_caching: yes\n", "yaml-boolean", "yes"),
        ("tokens: 4\ntokens: 5\n", "yaml-duplicate-key", "tokens"),
    ],
)
def test_a_mistake_in_the_file_says_where(file: Path, text: str, code: str, says: str) -> None:
    file.write_text(text, encoding="utf-8")
    with pytest.raises(KvplanError) as caught:
        gather({}, _environment(file))
    assert caught.value.code == code
    assert says in caught.value.format()
    assert "config.yaml" in caught.value.format()


def test_a_mistake_in_the_environment_says_where() -> None:
    with pytest.raises(KvplanError, match="not a number of tokens") as caught:
        gather({}, {"KVPLAN_TOKENS": "many", "KVPLAN_CONFIG": ""})
    assert caught.value.where == "KVPLAN_TOKENS=many"


def test_a_named_file_must_exist(tmp_path: Path) -> None:
    with pytest.raises(KvplanError, match="KVPLAN_CONFIG"):
        config_path({"KVPLAN_CONFIG": str(tmp_path / "none.yaml")})


def test_no_file_is_no_error(tmp_path: Path) -> None:
    assert config_path({"XDG_CONFIG_HOME": str(tmp_path)}) is None


def test_the_command_line_uses_them(run: Run, file: Path) -> None:
    file.write_text("engine: generic\n", encoding="utf-8")
    ran = run(
        "size",
        "inputs/llama.json",
        "--json",
        environment=_environment(file, KVPLAN_TP="9", KVPLAN_TOKENS="1k"),
    )
    data = json.loads(ran.out)
    assert (data["engine"]["name"], data["request"]["tokens"]) == ("generic", 1024)


def test_every_option_is_a_setting_of_the_library() -> None:
    names = (
        {option.name for option in OPTIONS}
        - {"engine", "speculative", "weights_from", *MEDIA}
        - set(OWN_OPTIONS)
    )
    made = {"speculative_method", "num_speculative_tokens", "own", "media", "gpus", "spread", "starts"}
    assert names | made == set(field_names(Settings))
    assert set(OWN_OPTIONS) <= {option.name for option in OPTIONS}


def test_engines_that_share_an_option_declare_it_alike() -> None:
    for name, engine in ENGINES.items():
        assert (engine.name, engine.options) == (name, OPTIONS_OF.get(name, ()))
        for option in engine.options:
            assert OWN_OPTIONS[option.name] == option
            assert option.name not in field_names(Settings)


def test_an_option_of_engines_says_which() -> None:
    for option in OPTIONS:
        owners = {name for name, own in OPTIONS_OF.items() if option.name in {one.name for one in own}}
        foreign = {name for name in OPTIONS_OF if option.name in traits_of(name).foreign}
        if owners:
            assert set(option.engines) == owners, option.name
        elif option.engines:
            assert set(option.engines) == set(OPTIONS_OF) - foreign, option.name


def test_flags_are_unique_and_long_names_are_flags() -> None:
    flags = [flag for option in OPTIONS for flag in (*option.flags, *option.off_flags)]
    assert len(flags) == len(set(flags))
    for option in OPTIONS:
        assert f"--{option.name.replace('_', '-')}" in flags


@pytest.mark.parametrize("text", ["mtp:1", '{"method": "mtp", "num_speculative_tokens": 1}'])
def test_speculative(text: str) -> None:
    assert speculative(text) == ("mtp", 1, None)


def test_a_draft_model_may_decide_the_method() -> None:
    text = '{"model": "llama-3.2-1b", "num_speculative_tokens": 5}'
    assert speculative(text) == (None, 5, "llama-3.2-1b")
    assert speculative("draft_model:5") == ("draft_model", 5, None)


@pytest.mark.parametrize(
    "text",
    ["mtp", ":1", "mtp:0", "mtp:x", "{", "{}", '{"method": 1, "num_speculative_tokens": 1}', "[" * 2000],
)
def test_bad_speculative(text: str) -> None:
    with pytest.raises(KvplanError):
        speculative(text)


@pytest.mark.parametrize("text", ["", "1.5", "-1", "٣", "1e3", "9" * 19, "0x8"])
def test_whole_numbers_only(text: str) -> None:
    with pytest.raises(KvplanError):
        whole_number(text)
