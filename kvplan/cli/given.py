"""Where an option's value comes from: flag, ``KVPLAN_*``, config file, in this order."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from kvplan.cli.options import BY_NAME, OPTIONS, Option, values_of
from kvplan.errors import KvplanError, did_you_mean
from kvplan.record import Json, JsonDict

ENV_PREFIX = "KVPLAN_"
CONFIG_VARIABLE = "KVPLAN_CONFIG"


def config_path(environment: Mapping[str, str]) -> Path | None:
    """``$KVPLAN_CONFIG``, else ``$XDG_CONFIG_HOME/kvplan/config.yaml`` (``~/.config``), else None.

    A file named by the variable must exist; an empty variable means none. Raises KvplanError(no-such-file).
    """
    named = environment.get(CONFIG_VARIABLE)
    if named and not os.path.isfile(named):  # noqa: PTH113 - never raises, whatever the name
        raise KvplanError("no-such-file", f"{CONFIG_VARIABLE} names {named}, which is not a file")
    if named is not None:
        return Path(named) if named else None
    folder = config_folder(environment)
    path = None if folder is None else folder / "config.yaml"
    return path if path is not None and os.path.isfile(path) else None  # noqa: PTH113


def config_folder(environment: Mapping[str, str]) -> Path | None:
    """Where the config file lies or would lie; None where ``$KVPLAN_CONFIG`` says that there is none."""
    named = environment.get(CONFIG_VARIABLE)
    if named is not None:
        return Path(named).parent if named else None
    base = environment.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")  # noqa: PTH111, PTH118
    return Path(base) / "kvplan"


def gather(flags: Json, environment: Mapping[str, str] | None = None) -> JsonDict:
    """Parsed values by the library's names, for what was given anywhere.

    flags: texts (or booleans) from the command line, None where a flag was not given. Raises KvplanError.
    """
    environment = os.environ if environment is None else environment
    path = config_path(environment)
    from_file = read_config_file(path) if path is not None else {}
    values: JsonDict = {}
    for option in OPTIONS:
        flag = flags.get(option.name)
        variable = ENV_PREFIX + option.name.upper()
        if flag is not None:
            values[option.name] = (
                flag if option.is_switch else values_of(option, flag, f"{option.flags[0]} {flag}")
            )
        elif environment.get(variable):
            text = environment[variable]
            values[option.name] = values_of(option, text, f"{variable}={text}")
        elif option.name in from_file:
            values[option.name] = from_file[option.name]
    return _spread(values)


def _spread(values: JsonDict) -> JsonDict:
    pair = values.pop("speculative", None)
    if pair is not None:
        method, values["num_speculative_tokens"], model = pair
        values["speculative_method"] = method
        if model is not None:
            values["speculative_model"] = model
    return values


def read_config_file(path: Path) -> JsonDict:
    """Defaults from a YAML file whose keys are long option names, with hyphens or underscores.

    Raises KvplanError(bad-config-file | unknown-option) with the place.
    """
    from kvplan.files.yaml.strict import load_yaml_file

    located = load_yaml_file(path)
    if located.data is None:
        return {}
    if not isinstance(located.data, dict):
        raise KvplanError(
            "bad-config-file", f"{path} is not a mapping of options to values", help="engine: vllm@0.32"
        )
    values: JsonDict = {}
    for key, value in located.data.items():
        option = _option(str(key), path)
        values[option.name] = values_of(option, _text(value, option, path), f"{path}: {key}: {value}")
    return values


def _option(key: str, path: Path) -> Option:
    option = BY_NAME.get(key.replace("-", "_"))
    if option is None:
        near = did_you_mean(key.replace("-", "_"), BY_NAME)
        raise KvplanError(
            "unknown-option",
            f"{path}: there is no option {key!r}",
            help=f"did you mean {near}?" if near else "keys are the long option names: " + ", ".join(BY_NAME),
        )
    return option


def _text(value: object, option: Option, path: Path) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (str, int)):
        return str(value)
    if isinstance(value, list) and option.many and all(isinstance(one, (str, int)) for one in value):
        return ", ".join(str(one) for one in value)
    raise KvplanError(
        "bad-config-file", f"{path}: {option.name}: {value!r} is not a value of {option.flags[0]}"
    )
