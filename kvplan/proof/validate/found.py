"""From the workload test of a rank to figures and findings."""

from __future__ import annotations

from kvplan.plans.findings import Finding, Severity
from kvplan.proof.validate.attention import AttentionError
from kvplan.proof.validate.findings import WorkloadTest
from kvplan.proof.validate.stages.base import BYTES, COUNT, EXACT, Bench
from kvplan.proof.validate.target import Target

REQUESTS, BLOCKS, TOKENS = "requests", "blocks", "tokens"
_SHOWN = 5


def workload_figures(bench: Bench, done: WorkloadTest) -> None:
    """The figures of the cache in use; what must be equal is equal to the last byte."""

    def exact(name: str, predicted: int, measured: int, unit: str = COUNT) -> None:
        bench.figure(name, predicted, measured, unit=unit, allowed_ppm=EXACT)

    exact("cache_bytes", done.bytes_predicted, done.bytes_allocated, BYTES)
    for number, blocks in enumerate(done.blocks):
        bench.figure(f"rank_blocks_{number}", None, blocks, unit=BLOCKS)
    if done.stopped_at is not None:
        return
    exact("tensors_wrong", 0, len(done.tensors_wrong))
    exact("table_errors", 0, int(done.table_error is not None))
    exact("rank_requests", done.requests_predicted, done.requests_admitted, REQUESTS)
    exact("extra_request_refused", 1, int(done.extra_refused))
    exact("others_undisturbed", 1, int(done.undisturbed))
    exact("blocks_all_freed", 1, int(done.all_freed))
    exact("reserved_blocks_untouched", 1, int(done.reserved_untouched))
    exact("states_wrong", 0, done.states_wrong)
    exact("states_missing", 0, done.states_missing)
    bench.figure("states_written", None, done.states_written, unit=COUNT)
    bench.figure("states_read_back", None, done.states_verified, unit=COUNT)
    exact("attention_out_of_tolerance", 0, sum(not entry.ok for entry in done.attention))
    bench.figure("attention_checks", None, sum(entry.ran for entry in done.attention), unit=COUNT)
    bench.figure("bytes_written", None, done.bytes_written)
    bench.figure("requests_refilled", None, done.refilled, unit=REQUESTS)
    bench.figure("shared_prefix_tokens", None, done.shared_tokens, unit=TOKENS)
    bench.figure("blocks_copied_on_write", None, done.blocks_copied, unit=BLOCKS)
    bench.figure("token_slots", None, done.fragmentation.slots, unit=TOKENS)
    bench.figure("token_slots_used", None, done.fragmentation.used, unit=TOKENS)
    bench.figure("contiguous_requests", None, done.fragmentation.contiguous_requests, unit=REQUESTS)


def findings_of(target: Target, workload_tests: tuple[WorkloadTest, ...]) -> tuple[Finding, ...]:
    """Faults beyond a figure: differing bytes, wrong attention, requests that do not fit."""
    findings: list[Finding] = []
    for rank, done in enumerate(workload_tests):
        findings += _of_tables(rank, done)
        findings += [_of_attention(one) for one in done.attention if not one.ok]
    held = min((one.requests_admitted for one in workload_tests), default=None)
    admitted = None if held is None else target.at_once(held)
    if target.wanted is not None and admitted is not None and admitted < target.wanted:
        findings.append(
            Finding(
                "too-few-requests",
                Severity.ERROR,
                f"{admitted:,} requests of {target.result.request.tokens:,} tokens were admitted,"
                f" {target.wanted:,} are asked for",
                "require.requests" if target.asks_proof else None,
            )
        )
    return tuple(findings)


def _of_tables(rank: int, done: WorkloadTest) -> list[Finding]:
    """Faults of one rank's tensors and block tables."""
    rows = [
        f"rank {rank}: request {one.request}, layer {one.layer}, head {one.head}, position"
        f" {one.position}, {one.component}: block {one.block}, byte {one.byte} is {one.found},"
        f" {one.written} was written"
        for one in done.mismatches[:_SHOWN]
    ]
    whole = done.stopped_at is None and done.table_error is None and not done.tensors_wrong
    wrong = (
        ("tensors-differ", done.tensors_wrong, f"{len(done.tensors_wrong)} tensors are not the layout's",
         done.tensors_wrong[:_SHOWN]),
        ("table-error", done.table_error is not None, f"the block tables broke: {done.table_error}", ()),
        ("bytes-differ", done.states_wrong,
         f"{done.states_wrong:,} states did not read back as written", rows),
        ("states-missing", done.states_missing,
         f"{done.states_missing:,} states that the next token sees have no block", ()),
        ("reserved-blocks-written", whole and not done.reserved_untouched,
         "blocks that are never handed out (the null block, padding pages) were written", ()),
    )  # fmt: skip
    return [
        Finding(code, Severity.ERROR, message, detail=tuple(detail))
        for code, is_wrong, message, detail in wrong
        if is_wrong
    ]


def _of_attention(one: AttentionError) -> Finding:
    wrong = one.fault or f"off by {one.error:.2e}, {one.tolerance:.2e} is allowed"
    return Finding(
        "attention-differs",
        Severity.ERROR,
        f"attention over the paged cache ({one.kind}, {one.dtype}, {one.kernel}): {wrong}",
    )
