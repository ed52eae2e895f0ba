"""``kvplan simulate``."""

from __future__ import annotations

import csv
import io
import sys
from pathlib import Path

from kvplan.api.simulating import deployment, load_of, simulate
from kvplan.cli.ask import check_color
from kvplan.cli.commands import Given, is_given
from kvplan.cli.given import gather
from kvplan.cli.options import values_of
from kvplan.cli.plan import rate as rate_of
from kvplan.cli.plan import seconds, share
from kvplan.cli.plan_word import is_plan_file, only, plan_of
from kvplan.cli.simulate_options import SIMULATED
from kvplan.cli.terminal import Answer
from kvplan.errors import EXIT_CANNOT_ANSWER, EXIT_NO, EXIT_OK, KvplanError
from kvplan.files.folders import exists
from kvplan.files.writing import write_whole
from kvplan.plans.plan import SAFE, Plan
from kvplan.plans.serve import left_out
from kvplan.record import JsonDict, replace
from kvplan.results import SCHEMA_VERSION
from kvplan.simulation.results import SimulationResult
from kvplan.units import parse_tokens

_LOAD = ("trace_format", "trace_columns", "trace_block", "first")
_SWEEP = ("executor", "resume", "csv")


def run(words: list[str], given: Given) -> Answer:
    """The answer on the screen or as JSON; a sweep, or hit rates alone, where they are asked for."""
    check_color(given)
    values = _values(given)
    evict = policies_of(str(values.pop("evict"))) if "evict" in values else ()
    if "hit_rates" in values:
        return _hits(values, evict, is_given(given, "json"))
    if evict not in ((), ("lru",)):
        raise KvplanError(
            "bad-usage", f"--evict {','.join(evict)}: vLLM evicts what was not used for longest",
            help=f"--hit-rates 1k,10k --evict {','.join(evict)}: of flat caches of so many blocks",
        )  # fmt: skip
    if not words:
        raise KvplanError(
            "bad-usage", "which model or plan?", help="kvplan simulate qwen3-32b --trace FILE --gpu h100"
        )
    plan = plan_of(words[0], given) if is_plan_file(words[0]) else None
    model, asked = plan or words[0], _asked(words[0], plan, given)
    _generate(values)
    _calibrate(model, values, asked)
    page = values.pop("html", None)
    if "sweep" in values:
        wrong = "--html" if page is not None else "--hours" if values.get("hours") else None
        if wrong is not None:
            raise KvplanError("bad-usage", f"{wrong} is of one answer, not of a sweep", help="--csv, --json")
        return _swept(model, values, asked, is_given(given, "json"))
    if wrong := next((name for name in _SWEEP if values.pop(name, None) is not None), None):
        raise KvplanError("bad-usage", f"--{wrong} belongs to --sweep", help="--sweep replicas=2,3,4")
    quick = bool(values.pop("quick", False))
    result = simulate(model, search=not quick, helps=not quick, **values, **asked).outcome
    result = replace(result, notes=(*left_out(plan), *result.notes))
    code = EXIT_OK if _good(result, plan) else EXIT_NO
    if page is not None:
        from kvplan.report.simulate_html import simulation_page

        write_whole(Path(str(page)), simulation_page(result, where=_where(model, asked)))
    if is_given(given, "json"):
        from kvplan.simulation.shown import shown

        return Answer(data=shown(result).model_dump(), code=code)
    from kvplan.report.simulate import simulation_screen
    from kvplan.report.simulate_html import rules_of

    return Answer(simulation_screen(result, where=_where(model, asked), rules=rules_of(result)), code=code)


def _generate(values: JsonDict) -> None:
    """The trace that --generate asks for, where it does."""
    generated = values.pop("generate", None)
    if generated is not None:
        from kvplan.simulation.load import generate

        values["trace"] = generate.generated(generate.asked_of(str(generated)))


def _calibrate(model: Plan | str, values: JsonDict, asked: JsonDict) -> None:
    """The step time by the server's own metrics, where --calibrate asks for it."""
    calibration = values.pop("calibrate", None)
    if calibration is not None:
        if "step_time" in values:
            raise KvplanError("bad-usage", "give one of --step-time and --calibrate")
        from kvplan.simulation.calibrate import calibrated

        served, _ = deployment(model, pool=values.get("pool"), offload=values.get("offload"), **asked)
        values["step_time"] = calibrated(Path(str(calibration)), served)


def _good(result: SimulationResult, plan: Plan | None) -> bool:
    if result.missed:
        return False
    safe = plan is not None and plan.require.pool == SAFE
    if result.needed is not None:
        return (result.needed.safe if safe else result.needed.likely) is not None
    return result.safely if safe else result.keeps


def _where(model: Plan | str, asked: JsonDict) -> str:
    """``2 × h100-sxm-80gb``: the GPUs of one replica."""
    if isinstance(model, Plan):
        gpu, count = model.settings.gpu, model.gpus_per_replica
    else:
        from kvplan.api import make_settings

        settings = make_settings(
            **{name: value for name, value in asked.items() if name not in ("engine", "weights_from")}
        )
        gpu = settings.gpu
        count = settings.tensor_parallel_size * settings.pipeline_parallel_size * settings.data_parallel_size
    return f"{count} × {gpu.slug if gpu is not None else 'GPU'}"


def _values(given: Given) -> JsonDict:
    """Given values of the command's own options, under the names of `kvplan.simulate`."""
    values: JsonDict = {}
    for option in SIMULATED:
        flag = given.get(option.name)
        if isinstance(flag, bool):
            values[option.name] = flag
        elif flag is not None:
            values[option.name] = values_of(option, flag, f"{option.flags[0]} {flag}")
    for name in ("ttft", "tpot"):
        if name in values:
            values[name] = seconds(values[name], f"--{name}")
    if "goodput" in values:
        values["goodput"] = share(values["goodput"], "--goodput")
    if "rate" in values:
        text = str(values["rate"]).strip()
        values["rate"] = rate_of(text if "/" in text else f"{text}/s", "--rate")
    if "trace_columns" in values:
        values["trace_columns"] = columns_of(str(values["trace_columns"]))
    return values


def columns_of(text: str) -> tuple[str, ...]:
    """``in,out,t,ids`` as names; an empty one is left out. Raises KvplanError(bad-usage)."""
    names = [name.strip() for name in text.split(",")]
    if not 2 <= len(names) <= 4 or not all(names[:2]):
        raise KvplanError(
            "bad-usage", f"--trace-columns {text}: prompt, answer, then time and identities if any",
            help="--trace-columns prompt_tokens,completion_tokens,arrival",
        )  # fmt: skip
    return tuple(names)


def _asked(name: str, plan: Plan | None, given: Given) -> JsonDict:
    """The deployment's settings; beside a plan there are none."""
    own = {option.name for option in SIMULATED}
    rest = {key: value for key, value in given.items() if key not in own}
    if plan is not None:
        only(rest, (), name)
        return {}
    values = gather(rest)
    for key in ("tokens", "requests", "answer_tokens", "encoder_tokens"):
        values.pop(key, None)
    for key in ("engine", "kv_cache_dtype"):
        if key in values:
            if len(values[key]) != 1 or values[key] == ["all"]:
                raise KvplanError("bad-usage", f"one {key} is simulated at a time: --sweep {key}=…")
            values[key] = values[key][0]
    return values


def policies_of(text: str) -> tuple[str, ...]:
    """``lru,belady`` as names. Raises KvplanError(bad-eviction)."""
    from kvplan.simulation.cache_only.evict import check_policy

    names = tuple(dict.fromkeys(name.strip().lower() for name in text.split(",")))
    for name in names:
        check_policy(name)
    return names


def _hits(values: JsonDict, evict: tuple[str, ...], json: bool) -> Answer:
    from kvplan.report.hits import flat_screen, hits_screen
    from kvplan.simulation.cache_only.hits import flat_rates, hit_rates

    load = load_of(values.get("trace"), None, **{name: values[name] for name in _LOAD if name in values})
    sizes: list[int | None] = [parse_tokens(word) for word in str(values["hit_rates"]).split(",")]
    if any(size is not None and size < 1 for size in sizes):
        raise KvplanError("bad-usage", "a cache has at least one block", help="--hit-rates 1000,10k")
    if evict:
        found = flat_rates(load, sizes, evict)
        if json:
            shares = [{"blocks": one.blocks, "of_identities": dict(one.shares)} for one in found]
            return Answer(
                data={
                    "schema_version": SCHEMA_VERSION,
                    "identity_tokens": load.wide,
                    "flat_hit_rates": shares,
                }
            )
        return Answer(flat_screen(found, trace=load.name, wide=load.wide, requests=len(load.arrivals)))
    rates = hit_rates(load, [*sizes, None])
    if json:
        rows = [
            {"blocks": one.blocks, "of_identities": one.ids, "of_prompt_tokens": one.tokens} for one in rates
        ]
        return Answer(
            data={"schema_version": SCHEMA_VERSION, "identity_tokens": load.wide, "hit_rates": rows}
        )
    return Answer(hits_screen(rates, trace=load.name, wide=load.wide, requests=len(load.arrivals)))


def _swept(model: Plan | str, values: JsonDict, asked: JsonDict, json: bool) -> Answer:
    from kvplan.api.sweeps import sweep
    from kvplan.api.sweeps.tasks import over_of, row_of

    over = over_of(str(values.pop("sweep")))
    as_csv, executor = bool(values.pop("csv", False)), values.pop("executor", "auto")
    resume, trace = values.pop("resume", None), values.pop("trace", None)
    quick = values.pop("quick", True)
    if json and as_csv:
        raise KvplanError("bad-usage", "give one of --json and --csv")
    running = sweep(
        model, trace=trace, over=over, executor=executor, resume=resume, helps=False, search=not quick,
        **values, **asked,
    )  # fmt: skip
    try:
        found = list(running)
    except KeyboardInterrupt:
        if resume is not None and exists(Path(str(resume))) and sys.stderr is not None:
            sys.stderr.write(f"interrupted: {resume} has what is done, and the same command goes on\n")
        raise
    code = EXIT_OK if any("error" not in answer for _, answer in found) else EXIT_CANNOT_ANSWER
    if json:
        rows = [{"change": change, "answer": answer} for change, answer in found]
        return Answer(data={"schema_version": SCHEMA_VERSION, "sweep": rows}, code=code)
    flat = [({key: str(value) for key, value in change.items()}, row_of(answer)) for change, answer in found]
    if as_csv:
        return Answer(text=_csv([*over], flat), code=code)
    from kvplan.report.simulate import sweep_screen

    said = (answer.get("target", {}) for _, answer in found)
    target = any(one.get("ttft_seconds") or one.get("tpot_seconds") for one in said)
    return Answer(sweep_screen(flat, target=target), code=code)


def _csv(keys: list[str], rows: list[tuple[dict[str, str], dict[str, object]]]) -> str:
    """A sweep as a table: what was changed, then every figure that any run has."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = list(dict.fromkeys(name for _, row in rows for name in row))
    writer.writerow([*keys, *names])
    for change, row in rows:
        writer.writerow([*change.values(), *(row.get(name, "") for name in names)])
    return text.getvalue()
