"""Python that starts an engine, read by its tree and never run; notebooks."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping
from importlib import import_module

from kvplan.errors import KvplanError
from kvplan.files.launch.found import Beside
from kvplan.files.launch.python_calls import read_python
from kvplan.files.launch.scripts import Found, file_reader, of_starts
from kvplan.files.launch.starts import starts_in, starts_of_begun
from kvplan.files.launch.trees import mapping


def is_python(name: str, text: str) -> bool:
    return name.lower().endswith(".py")


def is_notebook(name: str, text: str) -> bool:
    return name.lower().endswith(".ipynb")


def python(
    text: str, beside: Beside, shell: str = "", written: str | None = None,
    fields: Mapping[str, object] | None = None,
) -> Found:  # fmt: skip
    """The servers of a Python file. shell: the lines of a notebook that a shell reads; written: all of it.
    fields: of its build.

    Raises KvplanError(bad-python)."""
    said = read_python(text, beside.file or beside.name, fields={**_built(text, beside), **(fields or {})})
    starts = starts_of_begun(said.begun)
    if shell:
        known = said.names
        given = re.sub(
            r"\{(\w+)\}", lambda match: f"${{{match[1]}}}" if match[1] in known else match[0], shell
        )
        starts += starts_in(given, known, beside=file_reader(beside.folder))
    return of_starts(starts, beside, text if written is None else written)


def _built(text: str, beside: Beside) -> Mapping[str, object]:
    """The arguments that a service's build says (``tool.bentoml.build.args`` of ``pyproject.toml`` beside).

    Raises KvplanError(bad-python): a Python before 3.11 reads no TOML."""
    project = file_reader(beside.folder)("pyproject.toml") if "use_arguments" in text else None
    if project is None or "tool.bentoml.build" not in project:
        return {}
    try:
        toml = import_module("tomllib")
    except ImportError:
        why = f"the arguments of {beside.file} stand in pyproject.toml, which Python reads from 3.11 on"
        raise KvplanError("bad-python", why) from None
    try:
        found = mapping(toml.loads(project))
    except ValueError as error:
        raise KvplanError("bad-python", f"pyproject.toml beside {beside.file}: {error}") from None
    for key in ("tool", "bentoml", "build", "args"):
        found = mapping(found.get(key))
    return found


def notebook(text: str, beside: Beside) -> Found:
    """The cells of a notebook in their order: Python, and what stands behind ``!`` and ``%%bash``.

    Raises KvplanError(bad-json | bad-python)."""
    try:
        cells = json.loads(text)["cells"]
        sources = ["".join(one["source"]) for one in cells if one.get("cell_type") == "code"]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise KvplanError("bad-json", f"{beside.file} is no notebook: {error}") from None
    plain, shell = [], []
    for source in sources:
        first, _, rest = source.partition("\n")
        if re.match(r"%%(?:bash|sh|script|shell)\b", first):
            shell.append(rest)
        elif not first.startswith("%%"):
            joined = re.sub(r"\\\n", " ", source)
            rows = joined.splitlines()
            shell += [row.lstrip().lstrip("!") for row in rows if row.lstrip().startswith("!")]
            plain.append("\n".join(
                re.sub(r"^(\s*)[!%].*$", r"\1pass", row) for row in rows
            ))  # fmt: skip
    kept = [one for one in plain if _parses(one)]
    return python("\n".join(kept), beside, "\n".join(shell), text)


def _parses(text: str) -> bool:
    try:
        ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True
