"""Fit the coefficients of vLLM's memory budget to start-up logs and write the coefficient file.

    python -m scripts.fit_budget FIELD_REPORTS... [--write]

Up to 0.19 the logs print the terms: every coefficient is the median over the rows in which its term decides
the printed figure. From 0.20 on most print only the weights and the pool: what is left of the request is set
against the formula's other lines, class by class (release range and board). A coefficient without a row keeps
its prior, which is a reading of the engine's source (v1/sample/ops/topk_topp_sampler.py, v1/worker/
gpu_model_runner.py, v1/worker/gpu/). Rows of one source are not independent: every family is predicted by a
fit that has not seen it, and a class's margin is the largest of those errors.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from kvplan.engines.vllm.memory.coefficients import FILE, PCIE, UNIFIED
from kvplan.engines.vllm.start.runner import V1, V2
from kvplan.units import GIB, MIB
from scripts.field_rows import Row, read_rows
from scripts.fitting.early import EARLY, FUSED, LATE, SORT, Early, early_report, fit_early, usable
from scripts.fitting.late import fit_late, late_report
from scripts.fitting.late_constants import Late
from scripts.fitting.late_rows import late_rows

COUNTED = 14_000
"""Of one logit, in thousandths of a byte: 2 as the head leaves it, 4 in float32, 4 masked or noise, 4 of its
probability."""


DRAFT_GRAPH = 3 * MIB // 2


class Fitted(NamedTuple):
    """What the rows say."""

    early: Early
    late: Late


REJECTION = 30_000
"""Thousandths of a byte of one logit in the V1 runner's dummy rejection (v1/sample/rejection_sampler.py, from
0.17 to 0.33): logits of a draft and a bonus token 4, the bonus token's 2 and in float32 4, the draft's in
float32 4 and as they are changed 4, their probabilities 4, the exponential noise 4 and its reciprocal 4."""


def lines_of(fitted: Fitted) -> dict[str, list[dict[str, Any]]]:
    """The file's lines: a row says what changed with its release, for its runner and its board.
    What the first row leaves out is the coefficient's declared zero."""
    early, late = fitted
    fused, sort = early.logit[FUSED], early.logit[SORT]
    return {
        "sampler": [
            _sampler("0.8", "FlashInfer is not installed: the vocabulary is sorted", V1, sort),
            _sampler("0.11", "FlashInfer samples by default", V1, fused),
            _sampler("0.11.1", "the sampler sorts the vocabulary (#26859)", V1, sort),
            _sampler("0.17", "a Triton kernel samples, then FlashInfer (#40376)", V1, fused),
            _sampler("0.20", "counted block by block on an H100", V1, COUNTED),
            _sampler("0.8", "logits, and a copy in float32", V2, 6000),
            _sampler("0.26", "logits are worked on in place", V2, 2000),
            _sampler("0.27", "no copy unless a request asks for it", V2, 2000),
            _sampler(
                "0.33", "a second pass with every parameter: copy, mask, softmax", V2, COUNTED, unfused=6000
            ),
        ],
        "kernel": [
            _row("0.8", "a copy for the sampler, another in the dummy run", V1, sampled_copies=2),
            _row("0.8", "no kernel samples", V2, sampled_copies=1),
            _row(
                "0.17",
                "FlashInfer samples too, then not alone (#40376); drafts are rejected in the dummy run",
                V1,
                kernel_always=True,
                rejection_millibytes=REJECTION,
            ),
            _row("0.33", "every parameter is asked for", V2, kernel_alone=True),
        ],
        "states": [
            _row("0.8", "lie outside what is taken off, or are not made"),
            _row(
                "0.27",
                "what stays is mem_get_info's difference",
                V2,
                states_counted=True,
                embeds_of_images=True,
            ),
            _row("0.27", "the same", V1, embeds_always=True, first_table=True),
        ],
        "forward": [
            _row(
                "0.8",
                "gate, up, their product and the hidden states",
                hidden_copies_milli=early.copies,
                traced_rest=early.traced_rest,
                draft_copies_milli=late.draft_copies,
                multimodal_copies_milli=early.encoder,
                activation_margin=128 * MIB,
                activation_margin_milli=30,
            ),
            _row("0.17", "workspaces are kept", workspace_kept=True),
            _row(
                "0.20",
                "backends of experts differ, encoders are profiled; what is constant is in the class's rest",
                activation_margin=0,
                activation_margin_milli=20,
                experts_margin_milli=250,
                encoder_margin_milli=1000,
            ),
        ],
        "compile": [
            _row("0.8", "no kernels are combined"),
            _row("0.11.1", "benchmark_combo_kernel", compile_copies_milli=late.compile_copies),
            _row(
                "0.20",
                "wrappers compile a part that takes embeddings; linear attention tunes its kernels",
                compile_embeds=GIB // 4,
                compile_states=GIB,
                compile_states_likely=GIB // 5,
            ),
            _row("0.20", "memory that the host shares", board=UNIFIED, compile_states_likely=GIB // 2),
            _row(
                "0.27",
                "memory that the allocator cannot give back is counted",
                compile_kept=True,
                compile_states_likely=GIB // 2,
            ),
            _row("0.27", "memory that the host shares: no start kept it", board=UNIFIED, compile_kept=False),
            _row("0.31", "the profile run does not split large blocks any more", compile_kept=False),
            _row("0.33", "torch 2.14: counted on an H100 and an H200", compile_copies_milli=2000),
        ],
        "non_torch": [
            _row(
                "0.8",
                "as 0.11",
                non_torch_pipeline=early.pipeline,
                non_torch_by_ranks=_ranks(early.non_torch[EARLY]),
                one_low=GIB // 8,
                one_high=GIB // 2,
                several_low=GIB // 2,
                several_high=GIB,
            ),
            _row(
                "0.11",
                "start-ups of H100 boards",
                calibrated=True,
                one_low=224 * MIB,
                one_high=224 * MIB,
                several_low=224 * MIB,
                several_high=224 * MIB,
            ),
            _row("0.18", "NCCL's buffers are counted", non_torch_by_ranks=_ranks(early.non_torch[LATE])),
            _row("0.18", FEW_BUFFERS, board=PCIE, several_low=1920 * MIB),
            *late.non_torch_rows(),
        ],
        "own": late.own_rows(),
        "graphs": [
            _row("0.8", "outside the utilisation"),
            *late.graph_rows(),
            _row(
                "0.29", "the draft's are measured too: a start on an H100", V2, draft_graph_bytes=DRAFT_GRAPH
            ),
        ],
    }


FEW_BUFFERS = "cards in slots: one start of two L40S (0.19.1) has NCCL's buffers in 0.13 GiB"


def _row(since: str, source: str, runner: str | None = None, **values: Any) -> dict[str, Any]:
    said = {"since": since} | ({"runner": runner} if runner else {})
    return {**said, **values, "source": source}


def _sampler(since: str, source: str, runner: str, amount: int, unfused: int | None = None) -> dict[str, Any]:
    """unfused: where FlashInfer does not sample."""
    other = amount if unfused is None else unfused
    return _row(since, source, runner, logit_millibytes=amount, logit_unfused_millibytes=other)


def _ranks(amounts: dict[int, int]) -> list[list[int]]:
    return [[ways, amount] for ways, amount in sorted(amounts.items())]


def fit(rows: Sequence[Row]) -> tuple[Fitted, int]:
    """Everything from all rows, and how many starts there are."""
    early, late = usable(rows), late_rows(rows)
    return Fitted(fit_early(early), fit_late(late)), len(early) + len(late)


def file_text(fitted: Fitted, starts: int) -> str:
    """The coefficient file; the same fit gives the same bytes."""
    about = (
        "Coefficients of vLLM's memory budget, line by line, from the release on that a row says: written by"
        f" scripts/fit_budget.py, not by hand. {starts} starts were fitted."
        " Names: kvplan/engines/vllm/memory/profile_run.py, Coefficients."
    )
    return json.dumps({"about": about, "lines": lines_of(fitted)}, indent=1) + "\n"


def report(rows: Sequence[Row]) -> list[str]:
    """What fits that have not seen a row say of it: by halves of the models, then by families."""
    return early_report(usable(rows)) + late_report(late_rows(rows))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("reports", type=Path, nargs="+")
    parser.add_argument("--write", action="store_true", help=f"write {FILE.name}")
    options = parser.parse_args()
    rows, _ = read_rows(*options.reports)
    print("\n".join(report(rows)))
    fitted, starts = fit(rows)
    if options.write:
        FILE.write_bytes(file_text(fitted, starts).encode())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
