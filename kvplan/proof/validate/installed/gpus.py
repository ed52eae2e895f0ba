"""The GPUs that an installed engine will run on: which, whether they are alike, who else is there."""

from __future__ import annotations

from kvplan.errors import CannotRunHere
from kvplan.plans.findings import Finding, Severity
from kvplan.proof.validate.devices import CPU
from kvplan.proof.validate.installed.messages import Hello
from kvplan.proof.validate.probe import IDLE, Hardware, probe_cpu, slug_of
from kvplan.proof.validate.target import Target
from kvplan.record import replace
from kvplan.units import gib, human_bytes


def hardware_of(hello: Hello, device: str, *, shared: bool = False) -> tuple[Hardware, ...]:
    """The devices that the engine sees, the first as it names it. Raises CannotRunHere(no-gpu) where there is
    none."""
    if hello.kind == CPU:
        if device != CPU:
            raise CannotRunHere(
                "no-gpu",
                f"the installed engine ({hello.version}) runs on the CPU: no GPU here, or no build for one",
                help="a rehearsal: --device cpu",
            )
        return (probe_cpu(hello.torch),)
    told = hello.hardware
    plain = Hardware(
        hello.device, hello.kind, nvml_total=hello.nvml_total, slug=slug_of(hello.device), shared=shared,
        driver=told.driver, runtime=told.runtime, torch=hello.torch,
    )  # fmt: skip
    found = [
        replace(
            plain,
            name=one.name,
            slug=slug_of(one.name),
            nvml_total=one.total,
            used=one.used,
            processes=one.processes,
            compute_capability=one.compute_capability,
            ecc=one.ecc,
            mig=one.mig,
            persistence=one.persistence,
        )
        for one in told.devices
    ]
    if found:  # the engine's own name and total of the first
        found[0] = replace(
            found[0], name=plain.name, slug=plain.slug, nvml_total=plain.nvml_total or found[0].nvml_total
        )
    return tuple(found) or (plain,)


def of_ranks(target: Target, seen: tuple[Hardware, ...]) -> tuple[Hardware, ...]:
    """The devices of the plan's ranks, as far as the driver names them: all must be of one kind.

    Raises CannotRunHere(too-few-gpus | mixed-gpus)."""
    count = len(target.ranks)
    if seen[0].kind == CPU or seen[0].driver is None:
        return seen[:1]
    if len(seen) < count:
        raise CannotRunHere(
            "too-few-gpus",
            f"one replica takes {count} GPUs, the engine sees {len(seen)}",
            help="name the first of so many: --gpu 0",
        )
    mine = seen[:count]
    kinds = list(dict.fromkeys(f"{one.name} of {gib(one.nvml_total or 0)}" for one in mine))
    if len(kinds) > 1:
        raise CannotRunHere(
            "mixed-gpus",
            f"the {count} GPUs of the plan are not alike: {', '.join(kinds)}",
            help="name the first of so many that are: --gpu 2",
        )
    return mine


def growth(grown: int | None) -> str:
    """Why the memory that the engine found decides nothing."""
    how = "nobody could tell how much others took meanwhile"
    if grown is not None:
        how = f"others {'took' if grown > 0 else 'gave back'} {human_bytes(abs(grown))} meanwhile"
    return f"--shared: {how}; pool, blocks and requests that stand on free memory are reported alone"


def _others(hardware: Hardware) -> str | None:
    """Others on the device, in words: what they hold is missing in what the engine finds."""
    reserved = max(0, (hardware.nvml_total or 0) - (hardware.runtime_total or hardware.nvml_total or 0))
    held = max(0, (hardware.used or 0) - reserved)
    if not hardware.processes and held * IDLE <= (hardware.nvml_total or 0):
        return None
    shown = f" ({len(hardware.processes)})" if hardware.processes else ""
    return f"other processes{shown} held {gib(held)} of {hardware.name} before the engine started"


def refuse_others(hardware: Hardware) -> None:
    """Raises CannotRunHere(gpu-in-use) before the engine takes what they leave."""
    said = _others(hardware)
    if said is not None:
        raise CannotRunHere(
            "gpu-in-use",
            said,
            help=("wait until they end, or name another GPU: --gpu 1", "measure beside them: --shared"),
        )


def findings_beside(hardware: Hardware) -> list[Finding]:
    """A warning where others were on the device before the engine started."""
    said = _others(hardware)
    return [] if said is None else [Finding("gpu-in-use", Severity.WARNING, said)]
