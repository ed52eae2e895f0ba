"""The target of a ``validate`` command: a plan, or a bare model as one, and the device's spec."""

from __future__ import annotations

from typing import Any

from kvplan.api.load import usual_engine
from kvplan.cli.commands import Given
from kvplan.cli.given import gather
from kvplan.cli.plan_word import is_plan_file, only, plan_of
from kvplan.engines.traits import traits_of
from kvplan.errors import CannotRunHere, KvplanError
from kvplan.gpu import Gpu
from kvplan.model import Model
from kvplan.proof.validate.probe import Hardware
from kvplan.proof.validate.target import Target, bare_plan, target_of
from kvplan.settings import LONGEST, MEDIA

_OF_A_RUN = ("kv_cache_memory", "tokens", "encoder_tokens", "requests", "max_model_len")
"""Settings that may be given beside a plan: how it is run, not what it is."""


class Asked:
    """The target of one command line: the plan (or a bare model as one), its model, and the changes."""

    def __init__(self, words: list[str], given: Given) -> None:
        from kvplan.api import load_model, make_settings
        from kvplan.engines.budget import choose

        flags = _one_each(gather(given))
        flags.pop("gpu", None)  # the name of a GPU elsewhere; here the device says what it is
        flags.pop("usage", None)
        word = words[0]
        self.is_plan = is_plan_file(word)
        if self.is_plan:
            own = {name: value for name, value in given.items() if name != "gpu"}
            typed = list(only(own, _OF_A_RUN, word))
            self.plan = plan_of(word, given)
            self.choice = choose(self.plan.engine)
            self.model: Model = load_model(self.plan.model)
            settings = make_settings(**{name: flags[name] for name in typed})
        else:
            engine = flags.pop("engine", None)
            typed = [name for name in _OF_A_RUN if name in flags]
            media = {name: flags.pop(name) for name in MEDIA if name in flags}
            weights_from = flags.pop("weights_from", None)
            settings = make_settings(**flags)
            self.model = load_model(word, weights_from=weights_from)
            if media:
                from kvplan.architectures.media.request import with_media

                settings = with_media(self.model, settings, media)
                longer = (
                    name for name in ("tokens", "encoder_tokens") if getattr(settings, name) is not None
                )
                typed = list(dict.fromkeys((*typed, *longer)))
            self.choice = choose(engine or usual_engine([self.model], settings.quantization, (settings.gpu,)))
            self.plan = bare_plan(self.model, self.choice, settings)
        self.changes: dict[str, Any] = {name: getattr(settings, name) for name in typed}
        if self.changes.get("max_model_len") == LONGEST and not traits_of(self.choice.engine.name).auto_word:
            del self.changes["max_model_len"]  # left open, which is what auto means
        self.typed = word

    def target(self, hardware: Hardware | None, *, on_gpu: bool) -> Target:
        listed, measured = _spec_of(hardware)
        return target_of(
            self.plan,
            self.model,
            self.choice,
            asks_proof=self.is_plan,
            on_gpu=on_gpu,
            gpu=measured,
            spec=listed,
            changes=self.changes,
        )


def named_here(index: int) -> Hardware | None:
    """The GPU that NVML names, for a dry run, which does not load torch."""
    from kvplan.files.gpus.nvml import read_nvml

    try:
        gpus = read_nvml().gpus
    except CannotRunHere:
        return None
    return (
        Hardware(gpus[index].name, "cuda", nvml_total=gpus[index].memory_bytes) if index < len(gpus) else None
    )


def _spec_of(hardware: Hardware | None) -> tuple[Gpu | None, Gpu | None]:
    """The spec file of the device's name, None where it has none; and the spec with the runtime's own total,
    from which a bare model's budget is made."""
    if hardware is None or hardware.kind == "cpu":
        return None, None
    from kvplan.files.gpus.find import gpu_of_size, load_gpu
    from kvplan.record import replace

    total = hardware.runtime_total or hardware.nvml_total
    try:
        spec = load_gpu(hardware.name)
    except KvplanError:
        unlisted = None if total is None else gpu_of_size(f"{total}B")
        return None, None if unlisted is None else replace(
            unlisted, name=hardware.name, compute_capability=hardware.compute_capability
        )  # fmt: skip
    return spec, replace(spec, memory_total_bytes=hardware.runtime_total or spec.memory_total_bytes)


def _one_each(values: dict[str, Any]) -> dict[str, Any]:
    single: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, list):
            if len(value) != 1:
                raise KvplanError("bad-usage", f"validate takes one {name}, not {len(value)}")
            value = value[0]
        single[name] = value
    return single
