"""``kvplan validate --with ENGINE``: the installed engine measures what the plan predicts."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path

from kvplan.cli.commands import Given, is_given, text_of
from kvplan.cli.options import whole_number
from kvplan.cli.terminal import Answer
from kvplan.cli.validate_answer import code_of, receipt_data
from kvplan.cli.validate_target import Asked
from kvplan.engines import ENGINES
from kvplan.engines.budget import choose
from kvplan.engines.folders import part_of, title_of
from kvplan.engines.traits import traits_of
from kvplan.errors import CannotRunHere, KvplanError, did_you_mean
from kvplan.plans.receipt import PROOF, REHEARSAL, Receipt
from kvplan.proof.validate.guard import INTERRUPTED, TERMINATED, Guard, Terminated
from kvplan.proof.validate.installed.messages import Hello
from kvplan.proof.validate.installed.process import TimeUp
from kvplan.proof.validate.installed.question import Start, asked_settings, plan_of_worker
from kvplan.proof.validate.installed.run import EngineOptions, EngineOutcome, run_engine, workers
from kvplan.proof.validate.installed.served import serve
from kvplan.proof.validate.probe import Hardware
from kvplan.proof.validate.provenance import run_facts
from kvplan.proof.validate.receipts import By, check_place, place_of, receipt_of, write_receipt
from kvplan.proof.validate.target import UNSTATED, Target
from kvplan.record import replace

_WORKER_ONLY = ("--skip-tokenizer-init",)


def check_options(given: Given) -> str:
    """The engine's name. Raises KvplanError(bad-usage) for one that nothing is known of."""
    name = (text_of(given, "with_engine") or "").lower()
    known = workers()
    if name not in known:
        if name in ENGINES:
            raise KvplanError(
                "bad-usage",
                f"--with {name}: kvplan does not drive {title_of(name)}'s worker",
                help=(
                    "its own server says what it has: kvplan compare MODEL --url URL",
                    "one of " + ", ".join(known),
                ),
            )
        near = did_you_mean(name, known)
        raise KvplanError(
            "bad-usage",
            f"--with {name}: kvplan drives no such engine",
            help=f"did you mean {near}?" if near else "one of " + ", ".join(known),
        )
    for option in ("find_limit", "dry_run", "reserve", "kernels"):
        if given.get(option):
            raise KvplanError(
                "bad-usage", f"--{option.replace('_', '-')} and --with cannot both hold",
                help="without --with, kvplan allocates the predicted cache itself",
            )  # fmt: skip
    return name


def run(
    words: list[str],
    given: Given,
    *,
    gpu: int | None,
    limit: float | None,
    on_stage: Callable[[str], None] | None = None,
) -> Answer:
    """Run the engine, write the receipt, say what was found. Exit 0 confirmed, 1 refuted, 3 not proved."""
    name = check_options(given)
    device = "cpu" if text_of(given, "device") == "cpu" else "cuda"
    layers = text_of(given, "layers")
    asked = asked_of(words, given, name, None)
    settings = asked.plan.settings
    options = EngineOptions(
        name, text_of(given, "engine_python"), None if layers is None else whole_number(layers), gpu, device,
        is_given(given, "shared"), settings.tensor_parallel_size * settings.pipeline_parallel_size,
    )  # fmt: skip
    kind = PROOF if device != "cpu" else REHEARSAL
    check_place(text_of(given, "output"), By(kind, name, options.layers, is_given(given, "serve")))
    with Guard(limit) as guard:
        try:
            found = run_engine(
                lambda hello, hardware: _target(words, given, asked, name, hello, hardware),
                lambda target, folder: start_of(target, folder, on_gpu=device != "cpu"),
                options,
                stop=guard.stop,
                on_stage=on_stage,
            )
        except (KeyboardInterrupt, Terminated) as error:
            ended = isinstance(error, Terminated)
            raise KvplanError(
                "terminated" if ended else "interrupted",
                "stopped; the engine's processes were ended, no receipt was written",
                exit_code=TERMINATED if ended else INTERRUPTED,
            ) from error
        kept = keep(found, given, guard)
        if is_given(given, "serve") and found.outcome.stopped_by is None:
            found = _served(found, options, kept[1], guard, on_stage)
            kept = keep(found, given, guard)
    return answer_of(found, *kept, asked, given)


def _served(
    found: EngineOutcome,
    options: EngineOptions,
    path: Path | None,
    guard: Guard,
    on_stage: Callable[[str], None] | None,
) -> EngineOutcome:
    """The server's figures beside the worker's, whose receipt is there already.

    Raises CannotRunHere(server-ended | server-silent | time-up).
    """
    try:
        if not found.server:
            raise KvplanError("bad-usage", "--serve: this engine has no server of its own")
        return serve(
            found,
            lambda target, folder: start_of(target, folder, on_gpu=options.device != "cpu", served=True),
            options,
            stop=guard.stop,
            on_stage=on_stage,
        )
    except TimeUp as error:
        said = "no receipt was written" if path is None else f"what the worker measured is in {path}"
        raise CannotRunHere("time-up", f"the time was up while the server ran: {said}") from error


def asked_of(words: list[str], given: Given, name: str, version: str | None) -> Asked:
    """The plan or model; a bare model is asked of the installed release.

    Raises KvplanError(other-engine) for a plan of another engine.
    """
    own = given
    if version is not None and not text_of(given, "engine"):
        own = {**given, "engine": f"{name}@{version}"}
    asked = Asked(words, own)
    if asked.choice.engine.name != name and (asked.is_plan or text_of(given, "engine") or version):
        raise KvplanError(
            "other-engine",
            f"{words[0]} is for {title_of(asked.choice.engine.name)}, not {title_of(name)}",
            help=f"--with {asked.choice.engine.name}",
        )
    return asked


def _target(
    words: list[str], given: Given, asked: Asked, name: str, hello: Hello, hardware: Hardware
) -> Target:
    """Raises CannotRunHere(other-release) where the plan is for rules that the installed release has not."""
    here = choose(f"{name}@{hello.version}")
    if not asked.is_plan and not text_of(given, "engine"):
        asked = asked_of(words, given, name, hello.version)
    elif here.version != asked.choice.version:
        raise CannotRunHere(
            "other-release",
            f"{asked.plan.name} is for {title_of(name)} {asked.choice.version}, {hello.version} is installed",
            help=(f"a plan for the installed one: engine: {name}@{here.version}", "--engine-python PYTHON"),
        )
    on_gpu, block = hello.kind != "cpu", traits_of(name).host_block
    if not on_gpu and block is not None and asked.plan.settings.block_size is None:
        asked.changes.setdefault("block_size", block)  # a length that these blocks hold is chosen
    target = asked.target(hardware, on_gpu=on_gpu)
    if asked.is_plan or "tokens" in asked.changes or target.result.request.tokens <= UNSTATED:
        return target
    if target.result.pool is None:  # a library runs every token of a forward pass
        asked.changes["tokens"] = UNSTATED
        said = f"requests of {UNSTATED:,} tokens: each is run through the model (--tokens changes it)"
        target = asked.target(hardware, on_gpu=on_gpu)
        return replace(target, notes=(*target.notes, said))
    return target


def start_of(target: Target, folder: Path, *, on_gpu: bool, served: bool = False) -> Start:
    """The plan's own arguments and variables, with random weights of the model in a folder. served: for the
    server, which has a tokenizer."""
    command = part_of(target.choice.engine.name, "command")
    if command is None or not command.TABLE.random:
        return Start()  # a library: it takes no arguments
    from kvplan.report.export.arguments import arguments_of
    from kvplan.report.export.place import table_of

    plan = plan_of_worker(target.plan)
    table, _ = table_of(plan)
    asked = asked_settings(target, on_gpu=on_gpu)
    if not on_gpu and "kv_cache_memory" in table.none:
        asked = replace(asked, kv_cache_memory=None)  # of a rehearsal, not of the plan
    made = arguments_of(plan, asked, table, target.choice.version)
    own = [word.format(folder) for word in command.TABLE.random]
    return Start((*own, *(() if served else _WORKER_ONLY), *made.words), dict(made.env))


def keep(found: EngineOutcome, given: Given, guard: Guard) -> tuple[Receipt, Path | None]:
    """The receipt, written, and where it is: None where nobody said and there is no plan beside which it
    goes."""
    created = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    run = run_facts(guard.seconds, found.variables)
    receipt = replace(receipt_of(found.outcome, created=created, run=run), engine_run=found.engine_run)
    path = place_of(text_of(given, "output"), found.outcome.target, receipt)
    if path is not None:
        write_receipt(receipt, path)
    return receipt, path


def answer_of(
    found: EngineOutcome, receipt: Receipt, path: Path | None, asked: Asked, given: Given
) -> Answer:
    """Screen or JSON, and the exit code."""
    code = code_of(receipt, found.outcome)
    if is_given(given, "json"):
        return Answer(data=receipt_data(found.outcome, receipt, path), code=code)
    from kvplan.report.validate_engine import engine_screen

    screen = engine_screen(
        found.outcome,
        receipt,
        typed=asked.typed,
        path=None if path is None else str(path),
        whole=is_given(given, "verbose"),
    )
    return Answer(screen, code=code)
