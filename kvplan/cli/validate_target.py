"""What a command line of ``validate`` asks for: a plan, or a bare model as one, and the device's spec."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from kvplan.cli.commands import Given, text_of
from kvplan.cli.given import gather
from kvplan.errors import CannotRunHere, KvplanError
from kvplan.gpu import Gpu
from kvplan.model import Model
from kvplan.plans.plan import Plan
from kvplan.settings import LONGEST
from kvplan.validate.probe import Hardware
from kvplan.validate.target import Target, bare_plan, target_of

_PLAN_HEAD = re.compile(r"^kvplan:\s*['\"]?plan/", re.MULTILINE)
_OF_A_RUN = ("kv_cache_memory", "tokens", "encoder_tokens", "requests", "max_model_len")
"""Settings that may be given beside a plan: how it is run, not what it is."""


class Asked:
    """What one command line asks for: the plan (or a bare model as one), its model, and the changes."""

    def __init__(self, words: list[str], given: Given) -> None:
        from kvplan.api import load_model, make_settings
        from kvplan.fitting import choose

        flags = _one_each(gather(given))
        flags.pop("gpu", None)  # the name of a GPU elsewhere; here the device says what it is
        flags.pop("usage", None)
        word = words[0]
        self.is_plan = _is_plan(word)
        if self.is_plan:
            typed = [name for name in _one_each(gather(given, {"KVPLAN_CONFIG": ""})) if name != "gpu"]
            wrong = [name for name in typed if name not in _OF_A_RUN]
            if wrong:
                flag = "--" + wrong[0].replace("_", "-")
                raise KvplanError("bad-usage", f"{flag} belongs to a model: a plan says its own", where=word)
            self.plan = _plan(word, text_of(given, "environment"), text_of(given, "plan_name"))
            self.choice = choose(self.plan.engine)
            self.model: Model = load_model(self.plan.model)
            settings = make_settings(**{name: flags[name] for name in typed})
        else:
            engine = str(flags.pop("engine", "vllm"))
            typed = [name for name in _OF_A_RUN if name in flags]
            settings = make_settings(**flags)
            self.choice = choose(engine)
            self.model = load_model(word)
            self.plan = bare_plan(self.model, self.choice, settings)
        self.changes: dict[str, Any] = {name: getattr(settings, name) for name in typed}
        if self.changes.get("max_model_len") == LONGEST and self.choice.engine.name != "vllm":
            del self.changes["max_model_len"]  # left open, which is what auto means
        self.typed = word

    def target(self, hardware: Hardware | None, *, on_gpu: bool) -> Target:
        return target_of(
            self.plan,
            self.model,
            self.choice,
            asks_proof=self.is_plan,
            on_gpu=on_gpu,
            gpu=_spec_of(hardware),
            changes=self.changes,
        )


def named_here(index: int) -> Hardware | None:
    """The GPU that NVML names, for a dry run, which does not load torch."""
    from kvplan.readers.gpus.nvml import read_nvml

    try:
        gpus = read_nvml().gpus
    except CannotRunHere:
        return None
    return (
        Hardware(gpus[index].name, "cuda", nvml_total=gpus[index].memory_bytes) if index < len(gpus) else None
    )


def _spec_of(hardware: Hardware | None) -> Gpu | None:
    """The spec file of the device's name, with the runtime's own total."""
    if hardware is None or hardware.kind == "cpu":
        return None
    from dataclasses import replace

    from kvplan.readers.gpus.find import gpu_of_size, load_gpu

    total = hardware.runtime_total or hardware.nvml_total
    try:
        spec = load_gpu(hardware.name)
    except KvplanError:
        unlisted = None if total is None else gpu_of_size(f"{total}B")
        return None if unlisted is None else replace(
            unlisted, name=hardware.name, compute_capability=hardware.compute_capability
        )  # fmt: skip
    return replace(spec, memory_total_bytes=hardware.runtime_total or spec.memory_total_bytes)


def _is_plan(word: str) -> bool:
    path = Path(word)
    if path.suffix not in (".yaml", ".yml") or not path.is_file():
        return False
    return bool(_PLAN_HEAD.search(path.read_text(encoding="utf-8", errors="replace")))


def _plan(word: str, environment: str | None, name: str | None) -> Plan:
    """The one plan of a file. Raises KvplanError: what is wrong with it, or that there are several."""
    from kvplan.plans.serve import flags_of
    from kvplan.readers.plans.file import read_plan_file, together

    readings = read_plan_file(Path(word), engine_of=flags_of, shown=word, environment=environment)
    if name is not None:
        readings = [one for one in readings if one.name == name]
    if len(readings) != 1:
        names = ", ".join(dict.fromkeys(one.name for one in readings))
        raise KvplanError(
            "bad-usage",
            f"{word} has {len(readings) or 'no such'} plans: one is validated at a time",
            help=f"--plan NAME: one of {names}" if names else (),
        )
    reading = readings[0]
    if reading.plan is None:
        raise together(reading.errors)
    return reading.plan


def _one_each(values: dict[str, Any]) -> dict[str, Any]:
    single: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, list):
            if len(value) != 1:
                raise KvplanError("bad-usage", f"validate takes one {name}, not {len(value)}")
            value = value[0]
        single[name] = value
    return single
