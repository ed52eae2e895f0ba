"""The options and help text of ``validate``."""

from __future__ import annotations

from kvplan.cli.options import (
    OPTIONS,
    OUTPUT,
    PLAN_CHOICE,
    VERBOSE,
    Option,
    one_of,
    switch,
    whole_number,
    word,
)
from kvplan.errors import KvplanError
from kvplan.units import parse_bytes

VALIDATE = """\
\b
Examples:
  kvplan validate plan.yaml                 on this machine's GPU
  kvplan validate plan.yaml --gpu 1 --find-limit
  kvplan validate qwen3-8b --kv-cache-memory 40GiB --output receipt.json
  kvplan validate qwen3-8b --device cpu     a rehearsal in host memory
  kvplan validate plan.yaml --dry-run       what would be allocated
  kvplan validate plan.yaml --with vllm     the installed engine measures it
  torchrun --nproc-per-node 4 -m kvplan.proof plan.yaml

\b
Exit codes: 0 confirmed, 1 refuted, 3 could not run here or not proved (a
rehearsal of a plan, the time limit), 130 interrupted, 143 terminated.
"""


def seconds(text: str) -> int:
    """``90``, ``90s``, ``5m`` or ``1h`` in seconds. Raises KvplanError(bad-setting)."""
    cleaned = text.strip().lower()
    scale = {"s": 1, "m": 60, "h": 3600}.get(cleaned[-1:], 0)
    digits = cleaned[:-1] if scale else cleaned
    if not digits.isascii() or not digits.isdigit() or len(digits) > 9:
        raise KvplanError("bad-setting", f"{text!r} is not a time", help="write, for example, 90s or 5m")
    return int(digits) * (scale or 1)


def device_number(text: str) -> int:
    """Which GPU of this machine. Raises KvplanError(bad-count) for the name of one."""
    try:
        return whole_number(text)
    except KvplanError as error:
        raise KvplanError(
            error.code,
            f"{text!r} is not a number: validate measures GPUs of this machine, and --gpu says which",
            help=(
                "--gpu 0: the first",
                "a plan names its GPU: kvplan plan MODEL --gpu h100 --write plan.yaml",
            ),
        ) from None


_RUN = "The run"
VALIDATED = (
    Option("cuda_device", ("--gpu", "-g"), "NUMBER", device_number,
           "The GPU to validate on, counted from 0. Default: the first, or this rank's.", _RUN),
    Option("device", ("--device",), "cuda|cpu", one_of("cuda", "cpu"),
           "cpu: a rehearsal in host memory, which proves no capacity.", _RUN),
    Option("find_limit", ("--find-limit",), "", switch,
           "Grow the pool until memory runs out, and say by how much the plan's is below.", _RUN),
    Option("with_engine", ("--with",), "ENGINE", word,
           "Have the installed engine load the model with random weights, measure and admit.", _RUN),
    Option("engine_python", ("--engine-python",), "FILE", word,
           "The Python that has the engine. Default: this one.", _RUN),
    Option("layers", ("--layers",), "NUMBER", whole_number,
           "With --with: only so many layers, of a model that the GPU does not hold.", _RUN),
    Option("serve", ("--serve",), "", switch,
           "With --with: also start the engine's server, and send it requests of the plan's shape.", _RUN),
    Option("kernels", ("--kernels",), "auto|off", one_of("auto", "off"),
           "auto: code of the installed engine (vLLM, transformers) reads the pages too.", _RUN),
    Option("reserve", ("--reserve",), "SIZE", parse_bytes, "Memory to leave free. Default: 1GiB.", _RUN),
    Option("shared", ("--shared",), "", switch, "Also on a GPU where other processes run.", _RUN),
    Option("time_limit", ("--time-limit",), "SECONDS", seconds,
           "Stop after so long: 90, 90s, 5m.", _RUN),
    Option("dry_run", ("--dry-run",), "", switch, "Say what would be allocated; torch is not needed.", _RUN),
    VERBOSE,
    *PLAN_CHOICE,
    Option("output", ("--output", "-o"), "FILE", word,
           "Where the receipt goes. Default: evidence/ beside the plan.", OUTPUT),
    *(option for option in OPTIONS if option.name not in ("gpu", "usage")),
)  # fmt: skip
