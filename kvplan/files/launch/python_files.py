"""Python that starts an engine, read by its tree and never run; notebooks."""

from __future__ import annotations

import ast
import json
import re

from kvplan.errors import KvplanError
from kvplan.files.launch.found import Beside
from kvplan.files.launch.python_calls import read_python
from kvplan.files.launch.scripts import Found, file_reader, of_starts
from kvplan.files.launch.starts import starts_in, starts_of_begun


def is_python(name: str, text: str) -> bool:
    return name.lower().endswith(".py")


def is_notebook(name: str, text: str) -> bool:
    return name.lower().endswith(".ipynb")


def python(text: str, beside: Beside, shell: str = "", written: str | None = None) -> Found:
    """The servers of a Python file. shell: the lines of a notebook that a shell reads; written: all of it.

    Raises KvplanError(bad-python)."""
    said = read_python(text, beside.file or beside.name)
    starts = starts_of_begun(said.begun)
    if shell:
        known = said.names
        given = re.sub(
            r"\{(\w+)\}", lambda match: f"${{{match[1]}}}" if match[1] in known else match[0], shell
        )
        starts += starts_in(given, known, beside=file_reader(beside.folder))
    return of_starts(starts, beside, text if written is None else written)


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
