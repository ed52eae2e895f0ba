"""The plain commands, one for each replica, with the GPUs that it sees."""

from __future__ import annotations

import shlex

from kvplan.engines.command import Checkpoint, EngineTable
from kvplan.engines.doors import DOORS, door_of
from kvplan.errors import KvplanError
from kvplan.files.cards.ollama_names import is_library_name, run_name
from kvplan.model import Model
from kvplan.plans.plan import Plan
from kvplan.report.check.shown import one_line
from kvplan.report.export.arguments import Arguments, arguments_of, kept
from kvplan.report.export.checkpoint import checkpoint_of
from kvplan.report.export.place import (
    Replica,
    across_of,
    gpu_of,
    replicas_of,
    spare_gpus,
    table_of,
    visible_variable,
)
from kvplan.report.export.yaml_text import yaml_text
from kvplan.settings import Settings

_END = "END_OF_OPTIONS"


def export(plan: Plan, settings: Settings, model: Model | None, image: str | None) -> str:
    """A shell script: one command a replica. Raises KvplanError."""
    table, version = table_of(plan)
    if is_library_name(plan.model.strip().lower()):
        return _of_a_program(plan)
    checkpoint = checkpoint_of(plan, model, table)
    arguments = arguments_of(plan, settings, table, version)
    replicas = replicas_of(plan)
    rows = [f"# {one_line(plan.name)}: {plan.engine}, {_count(plan)}"]
    if spare_gpus(plan):
        rows.append(f"# {spare_gpus(plan)} of {plan.gpus} GPUs make up no whole engine and stay idle")
    options = options_file(arguments)
    name = "kvplan-options.yaml"
    if options is not None:
        rows += [f"cat > {name} <<'{_END}'", options.rstrip("\n"), _END]
    background = len(replicas) > 1
    node = 0
    for replica in replicas:
        if replica.nodes > 1:
            words = start(plan, table, checkpoint, arguments, checkpoint.name, name)
            rows += _over_nodes(plan, replica, words, arguments)
            continue
        if replica.node != node:
            node = replica.node
            rows += ["wait", f"# on node {node + 1}:"]
        words = start(plan, table, checkpoint, arguments, checkpoint.name, name)
        if background:
            words += ["--port", str(port_of(plan, table) + replica.number)]
        rows.append(_command(plan, replica, words, arguments) + (" &" if background else ""))
    if background and replicas[0].nodes == 1:
        rows.append("wait")
    return "\n".join(rows) + "\n"


def _command(plan: Plan, replica: Replica, words: list[str], arguments: Arguments) -> str:
    variables = "".join(f"{one} " for one in _variables(plan, arguments, replica))
    return (f"{variables}\\\n  " if variables else "") + _folded(words)


def _over_nodes(plan: Plan, replica: Replica, words: list[str], arguments: Arguments) -> list[str]:
    """A command for each node of one engine, in which a variable says the address of its first."""
    across, first = across_of(plan), replica.node + 1
    address = f'"${{NODE_{first}:?its address}}"'
    rows = []
    for rank in range(replica.nodes):
        more = across.words(replica.nodes, str(rank), address, worker=rank > 0)
        rows.append(f"# on node {first + rank}:")
        rows.append(f"{_command(plan, replica, words, arguments)} \\\n  {' '.join(more)}")
    return rows


def _of_a_program(plan: Plan) -> str:
    """The commands of the program whose library the plan's model stands in: one engine on what it sees."""
    door = next((one for one in map(door_of, DOORS) if one.command is not None), None)
    if plan.replicas > 1 or door is None or door.command is None:
        raise KvplanError(
            "no-checkpoint",
            f"`{plan.model}` is a name of Ollama's library, and {plan.replicas} engines need its file",
            help="write model: hf:org/name-GGUF, or the path of the file",
        )
    serve = dict(plan.serve)
    head = f"# {one_line(plan.name)}: {door.title}, {_count(plan)}"
    return "\n".join((head, *door.command(run_name(plan.model, "", ""), serve))) + "\n"


def start(
    plan: Plan, table: EngineTable, checkpoint: Checkpoint, arguments: Arguments, path: str, options: str
) -> list[str]:
    """The words that start one engine. path: the checkpoint as the process sees it; options: so the file."""
    words = [*table.start, *table.model(checkpoint, path)]
    if checkpoint.revision is not None:
        if "revision" not in table.kept:
            raise KvplanError(
                "no-such-argument", f"{table.engine} takes no revision", help="write model: without @REVISION"
            )
        words += [table.kept["revision"].flag, checkpoint.revision]
    if options_file(arguments) is not None:
        words += ["--extra_llm_api_options", options]
    if plan.replicas > 1 and "--port" in arguments.words:
        at = arguments.words.index("--port")
        return [*words, *arguments.words[:at], *arguments.words[at + 2 :]]
    return [*words, *arguments.words]


def options_file(arguments: Arguments) -> str | None:
    """The options file, where something stands in it."""
    return yaml_text(arguments.options) if arguments.options else None


def port_of(plan: Plan, table: EngineTable) -> int:
    """The port that the plan asks for, else the server's own. Raises KvplanError(bad-argument)."""
    port = kept(plan, "port")
    if port is None:
        return table.port
    if isinstance(port, bool) or not isinstance(port, int) or not 0 < port < 2**16:
        raise KvplanError("bad-argument", f"{port!r} is no port", help="a whole number below 65,536")
    return port


def _variables(plan: Plan, arguments: Arguments, replica: Replica) -> list[str]:
    given = [f"{name}={shlex.quote(value)}" for name, value in arguments.env]
    gpu, variable = plan.settings.gpu, visible_variable(plan)
    if variable is None:
        return given
    numbers = ",".join(str(number) for number in replica.gpus)
    if gpu is not None and gpu.is_mig_slice:
        gpu_of(plan)  # refuses what one process cannot see
        numbers = f'"${{MIG_{replica.number}:?the UUID of a slice, as nvidia-smi -L lists it}}"'
    return [f"{variable}={numbers}", *given]


def _folded(words: list[str]) -> str:
    """A line for each option with its values."""
    rows: list[list[str]] = [[]]
    for word in words:
        if word.startswith("--") and rows[0]:
            rows.append([])
        rows[-1].append(shlex.quote(word))
    return " \\\n  ".join(" ".join(row) for row in rows)


def _count(plan: Plan) -> str:
    gpu = plan.settings.gpu
    engines = f"{plan.replicas} engine{'s' if plan.replicas != 1 else ''}"
    return f"{engines} of {plan.gpus_per_replica} × {gpu.slug if gpu is not None else 'GPU'}"
