"""An engine's start in one line: variables, the model, flags; without settings that no server takes."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from kvplan.engines import OWN_OPTIONS
from kvplan.engines.command import Argument
from kvplan.engines.folders import part_of


def started(engine: str, model: str, serve: Mapping[str, object]) -> str:
    """``VLLM_USE_V2_MODEL_RUNNER=0 Qwen/Qwen3-8B --max-model-len 8192``, of the flags under ``serve``.

    engine: ``vllm`` or ``vllm@0.33``. A flag of the plan has the server's name, but for what only an
    environment variable says, and for what says what there is (whether code is compiled already).
    """
    part = part_of(engine.partition("@")[0], "command")
    arguments: Mapping[str, Argument] = {} if part is None else part.TABLE.settings
    variables, flags = [], []
    for name, value in serve.items():
        argument, own = arguments.get(name), OWN_OPTIONS.get(name)
        if own is not None and not own.served:
            continue
        if argument is not None and argument.in_environment:
            said = (argument.words or {}).get(str(value))
            variables += [] if said is None else [f"{argument.env}={said}"]
        else:
            flags += _flag(name, value)
    return " ".join([*variables, *([model] if model else []), *flags])


def _flag(name: str, value: object) -> list[str]:
    """``--max-model-len 8192``; a switch that is on alone."""
    flag = "--" + name.replace("_", "-")
    if value is False:
        return []
    if value is True:
        return [flag]
    return [f"{flag} {_word(value)}"]


def _word(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(map(_word, value))
    return f"{float(value):g}" if isinstance(value, Fraction) else str(value)
