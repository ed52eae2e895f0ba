"""BentoML: ``bentofile.yaml`` names the class that is a service, whose Python says what it starts
(bentoml/BentoML src/bentoml/_internal/bento/build_config.py)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kvplan.errors import KvplanError
from kvplan.files.launch.found import Beside, Broken
from kvplan.files.launch.launch import Launch
from kvplan.files.launch.python_files import python
from kvplan.files.launch.scripts import file_reader
from kvplan.files.launch.trees import Tree, mapping
from kvplan.later import regex

_SERVICE = regex(r"([\w./-]+?)(?:\.py)?(?::[A-Za-z_]\w*)?", re.ASCII)
_BESIDE = "include python labels docker envs models description exclude conda args".split()


def is_bentofile(document: Tree) -> bool:
    """Whether a mapping names a service and how it is built."""
    service = document.get("service")
    return (
        isinstance(service, str) and _SERVICE.fullmatch(service) is not None
        and "kind" not in document and any(key in document for key in _BESIDE)
    )  # fmt: skip


def bentofile(document: Tree, beside: Beside) -> Iterator[Launch | Broken]:
    """The servers of the Python file that its service stands in."""
    match = _SERVICE.fullmatch(str(document["service"]))
    assert match is not None
    read = file_reader(beside.folder)
    file = match[1] if "/" in match[1] else match[1].replace(".", "/")
    text = read(f"{file}.py")
    if text is None:
        why = f"its service {document['service']} stands in {file}.py, which is not here"
        yield Broken(beside.name, KvplanError("no-such-file", why))
        return
    build = mapping(document.get("python"))
    packages = build.get("packages")
    pins = [str(one) for one in packages] if isinstance(packages, list) else []
    requirements = build.get("requirements_txt")
    pins += [read(requirements.removeprefix("./")) or ""] if isinstance(requirements, str) else []
    own = beside._replace(name=str(document.get("name") or beside.name), file=f"{file}.py")
    given = mapping(document.get("args"))
    yield from python(text, own, written="\n".join([text, *pins]), fields=given)
