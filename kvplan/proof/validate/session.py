"""One run on a device: stage by stage, every rank in step, everything released on the way out."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable

from kvplan.engines.tensors import Layout, Rank
from kvplan.errors import EXIT_CANNOT_RUN, CannotRunHere, KvplanError
from kvplan.plans.findings import Finding, Severity
from kvplan.plans.receipt import Figure
from kvplan.proof.validate.devices import CPU, CpuDevice, CudaDevice, is_out_of_memory, open_device
from kvplan.proof.validate.findings import WorkloadTest
from kvplan.proof.validate.found import findings_of
from kvplan.proof.validate.guard import Terminated
from kvplan.proof.validate.over_pages import figures_of, over_pages
from kvplan.proof.validate.probe import Hardware, compared, probe_cpu, probe_cuda
from kvplan.proof.validate.rank_run import Options, run_stages
from kvplan.proof.validate.ranks import OtherRankStopped, World
from kvplan.proof.validate.stages.base import EXACT, Bench, Progress, StageStopped, Stop, first_line
from kvplan.proof.validate.target import Target, check_world
from kvplan.record import record, replace
from kvplan.units import gib

TimeUp, OutOfMemory, Signal, Fault = "time", "memory", "signal", "fault"
PREDICTED = ("weights", "pool")
"""Stages that make what was predicted: memory that runs out there refutes; elsewhere it proves nothing."""


class SaidByRankZero(Exception):  # noqa: N818 - the error itself is another
    """Every rank knows of the error, and one says it. exit_code: the error's."""

    def __init__(self, exit_code: int) -> None:
        super().__init__(exit_code)
        self.exit_code = exit_code


@record()
class Outcome:
    """The outcome of one run. stopped_by: ``time``, ``memory``, ``signal`` or ``fault``, with the stage."""

    target: Target
    hardware: Hardware
    figures: tuple[Figure, ...]
    findings: tuple[Finding, ...]
    notes: tuple[str, ...]
    workload_tests: tuple[WorkloadTest, ...]
    """one of each rank"""
    stopped_at: str | None = None
    stopped_by: str | None = None

    @property
    def refuted_by_memory(self) -> bool:
        """Memory that others took of a shared GPU is no fault of the plan."""
        return self.stopped_by == OutOfMemory and self.stopped_at in PREDICTED and not self.hardware.shared


@record()
class _Part:
    """The message of one rank to the others after its stages."""

    hardware: Hardware
    figures: tuple[Figure, ...]
    notes: tuple[str, ...]
    workload_test: WorkloadTest | None
    stage: str
    stopped_by: str | None = None
    error: KvplanError | None = None
    layout: tuple[tuple[int, ...], int] = ((), 0)


def run_session(
    make_target: Callable[[Hardware], Target],
    options: Options,
    world: World,
    *,
    progress: Progress | None = None,
    stop: Stop | None = None,
    on_stage: Callable[[str], None] | None = None,
    settled: Callable[[Outcome], object] | None = None,
) -> Outcome:
    """All stages on this rank, and what all ranks found. make_target: from the device that is here.

    settled: told on the first rank what was found, before an engine's kernel runs that might take the process
    with it, and before a signal or a fault ends the run.
    Raises KvplanError; Ctrl-C and SIGTERM pass through, after everything was released.
    """
    device = open_device(
        CPU if options.device == CPU else f"cuda:{world.local_rank + (options.gpu or 0)}",
        sharers=world.local_size,
    )
    world.join(gpus=device.is_gpu)

    def tell(stage: str, done: int, total: int) -> None:
        if on_stage is not None:
            on_stage(stage)
        if progress is not None:
            progress(stage, done, total)

    def settle(outcome: Outcome) -> None:
        if settled is not None and world.leads:
            settled(outcome)

    bench = Bench(device, rank=world.rank, progress=tell, stop=stop, shared=options.shared)
    begun: tuple[Target, Hardware] | None = None
    try:
        hardware = _hardware(device, options, world)
        # The rank with the least memory decides for all, as in the engines.
        there = world.everyone(hardware)
        target = make_target(min(there, key=lambda one: one.runtime_total or 0))
        check_world(target, world.size)
        check_gpu(target, *there)
        begun = (target, hardware)
        parts = world.everyone(_on_rank(bench, target, hardware, options, world))
        outcome = _of_all(target, parts, world)
        if options.kernels and outcome.stopped_by is None:
            settle(outcome)
            begun = None  # what is kept stands, whatever happens from here on
            outcome = _with_readings(bench, outcome, world)
    except BaseException as ended:
        if begun is not None and not isinstance(ended, (KvplanError, SaidByRankZero)):
            by = Signal if isinstance(ended, (KeyboardInterrupt, Terminated)) else Fault
            with contextlib.suppress(KvplanError):
                settle(_cut_short(bench, *begun, by, ended))
        raise
    else:
        return outcome
    finally:
        # Whatever ended the run: the tensors of this frame's callees are gone, the cache of torch goes too.
        gc.collect()
        device.release()


def _hardware(device: CudaDevice | CpuDevice, options: Options, world: World) -> Hardware:
    """This rank's, once every rank has its own: one that is refused says why, and ends all."""
    try:
        return world.in_step(lambda: _probed(device, options))
    except OtherRankStopped as stopped:
        raise SaidByRankZero(EXIT_CANNOT_RUN) from stopped


def _probed(device: CudaDevice | CpuDevice, options: Options) -> Hardware:
    if isinstance(device, CudaDevice):
        return probe_cuda(device, shared=options.shared)
    import torch

    return probe_cpu(str(torch.__version__))


def _with_readings(bench: Bench, outcome: Outcome, world: World) -> Outcome:
    """The outcome with what every rank's kernels read; nothing that they meet ends the run."""
    target = outcome.target
    mine = over_pages(bench, target, target.ranks[world.rank])
    found = world.everyone(mine)
    workload_tests = tuple(
        replace(done, attention=(*done.attention, *more))
        for done, more in zip(outcome.workload_tests, found, strict=True)
    )
    findings = [one for one in outcome.findings if one.code != "attention-differs"]
    findings += [one for one in findings_of(target, workload_tests) if one.code == "attention-differs"]
    figures = [figure for rank, more in enumerate(found) for figure in figures_of(more, rank)]
    return replace(
        outcome,
        figures=(*outcome.figures, *figures),
        workload_tests=workload_tests,
        findings=tuple(findings),
        notes=tuple(dict.fromkeys([*outcome.notes, *bench.notes])),
    )


def _of_all(target: Target, parts: list[_Part], world: World) -> Outcome:
    try:
        return _together(target, parts)
    except KvplanError as error:
        if world.leads:
            raise
        raise SaidByRankZero(error.exit_code) from error


def _cut_short(
    bench: Bench, target: Target, hardware: Hardware, stopped_by: str, ended: BaseException
) -> Outcome:
    """The outcome as this rank knew it when a signal or a fault ended it."""
    notes = [*target.notes, *bench.notes]
    if stopped_by == Fault:
        notes.append(f"{type(ended).__name__}: {first_line(ended)}")
    return Outcome(
        target,
        hardware,
        tuple(bench.figures),
        (),
        tuple(notes),
        () if bench.workload_test is None else (bench.workload_test,),
        bench.stage,
        stopped_by,
    )


def check_gpu(target: Target, *there: Hardware) -> None:
    """Raises CannotRunHere(other-gpu): what one GPU holds proves nothing of a plan for another."""
    if not target.asks_proof or there[0].kind == CPU:
        return
    for finding in (found for one in there for found in compared(one, target.settings.gpu)):
        if finding.severity is Severity.ERROR:
            raise CannotRunHere(finding.code, finding.message, help="run it on a machine with that GPU")


def _on_rank(bench: Bench, target: Target, hardware: Hardware, options: Options, world: World) -> _Part:
    """The stages. What one rank's memory or time forbids ends the run of all, after the stage."""
    rank = target.ranks[world.rank]
    layout: Layout | None = None
    stopped_by: str | None = None
    error: KvplanError | None = None
    try:
        layout = _holding(target, rank)
        run_stages(bench, target, rank, layout, hardware, options, world)
    except OtherRankStopped:
        bench.note(f"rank {world.rank} stopped with the others")
    except StageStopped:
        stopped_by = TimeUp
    except KvplanError as found:
        error = found
    except (RuntimeError, MemoryError) as found:
        if not is_out_of_memory(found):
            raise
        if bench.device.is_gpu:
            stopped_by = OutOfMemory
            bench.note(first_line(found))
        else:
            error = CannotRunHere("no-room", f"host memory ran out in the stage `{bench.stage}`")
    shape = ((), 0) if layout is None else (tuple(one.num_blocks for one in layout.pools), layout.requests)
    return _Part(
        hardware,
        tuple(bench.figures),
        tuple(bench.notes),
        bench.workload_test,
        bench.stage,
        stopped_by,
        error,
        shape,
    )


def _holding(target: Target, rank: Rank) -> Layout:
    """The rank's tensors. Raises KvplanError(holds-nothing): where no request fits, nothing would be written,
    read or admitted, and so nothing proved."""
    layout = target.layout(rank)
    if layout.requests:
        return layout
    raise KvplanError(
        "holds-nothing",
        f"a pool of {gib(target.pool_bytes)} holds no request of {layout.tokens:,} tokens",
        help=("a larger pool: --kv-cache-memory", "shorter requests: --tokens"),
    )


def _together(target: Target, parts: list[_Part]) -> Outcome:
    """One outcome of all ranks: the smallest decides."""
    error = next((part.error for part in parts if part.error is not None), None)
    if error is not None:
        raise error
    stopped = next((part for part in parts if part.stopped_by is not None), None)
    workload_tests = tuple(part.workload_test for part in parts if part.workload_test is not None)
    figures = [figure for part in parts for figure in part.figures]
    if len(workload_tests) == len(parts):
        alike = sum(part.layout == parts[0].layout for part in parts)
        figures.append(_requests(target, parts[0], workload_tests))
        figures += _whole_pool(target, parts[0], workload_tests)
        figures.append(Figure("ranks_alike", "count", len(target.ranks), alike, EXACT, "all ranks"))
    hardware = parts[0].hardware
    findings = [
        *compared(hardware, target.settings.gpu if hardware.kind != CPU else None),
        *findings_of(target, workload_tests),
    ]
    names = {part.hardware.name for part in parts}
    if len(names) > 1:
        findings.append(
            Finding(
                "mixed-gpus",
                Severity.WARNING,
                f"the ranks run on different devices: {', '.join(sorted(names))}",
            )
        )
    notes = tuple(dict.fromkeys([*target.notes, *(note for part in parts for note in part.notes)]))
    return Outcome(
        target,
        hardware,
        tuple(figures),
        tuple(findings),
        notes,
        workload_tests,
        None if stopped is None else stopped.stage,
        None if stopped is None else stopped.stopped_by,
    )


def _requests(target: Target, first: _Part, workload_tests: tuple[WorkloadTest, ...]) -> Figure:
    """The engine's answer for requests, next to those that the blocks of the smallest rank held."""
    pool = target.result.pool
    predicted = first.layout[1] if pool is None else pool.max_running
    held = target.at_once(min(one.requests_admitted for one in workload_tests))
    return Figure("requests", "requests", predicted, held, EXACT, "all ranks")


def _whole_pool(target: Target, first: _Part, workload_tests: tuple[WorkloadTest, ...]) -> list[Figure]:
    """The blocks as the engine counts them (a page of padding beside them left out), of the smallest rank."""
    pool, blocks = target.result.pool, [one.blocks[0] for one in workload_tests if one.blocks]
    if pool is None or not blocks or not first.layout[0]:
        return []
    padding = first.layout[0][0] - pool.num_blocks
    return [
        Figure("num_blocks", "blocks", pool.num_blocks, min(blocks) - padding, EXACT, "all ranks"),
        Figure("kv_pool_bytes", "bytes", target.pool_bytes, None, None, "all ranks"),
    ]
