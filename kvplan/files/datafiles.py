"""Where the packaged data folders are.

In a wheel they lie in ``kvplan/_data/<name>``, the YAML files in one; an editable install has them beside the
package, in the repository itself.
"""

from __future__ import annotations

import json
from collections.abc import Container, Mapping
from functools import cache
from pathlib import Path

from kvplan.errors import CannotRunHere, KvplanError

_PACKAGE = Path(__file__).resolve().parents[1]


@cache
def data_dir(name: str) -> Path:
    """The folder ``name`` (``gpu_specs``, ``model_cards``) of this installation.

    Raises:
        CannotRunHere: ``missing-data`` where the installation lacks it.
    """
    for folder in (_PACKAGE / "_data" / name, _PACKAGE.parent / name):
        if folder.is_dir():
            return folder
    raise CannotRunHere(
        "missing-data",
        f"this installation of kvplan has no folder {name}",
        help="install kvplan again: pip install --force-reinstall kvplan",
    )


PACKED = "files.bin"
"""All YAML files of a folder in one, as a wheel has them (packaging/pack_data.py): a line of JSON, name →
place and length, and the files behind it."""


@cache
def _packed(name: str) -> tuple[Mapping[str, tuple[int, int]], int]:
    """Where the files stand in the packed one, and where the first begins."""
    with (data_dir(name) / PACKED).open("rb") as stream:
        line = stream.readline()
    return json.loads(line), len(line)


def packaged_slugs(name: str) -> list[str]:
    """The YAML files of a folder of this installation, without their ending, in the order of their names."""
    from kvplan.files.folders import is_file

    folder = data_dir(name)
    names = _packed(name)[0] if is_file(folder / PACKED) else [path.name for path in folder.glob("*.yaml")]
    return [file.removesuffix(".yaml") for file in sorted(names)]


def read_packaged(name: str, slug: str) -> bytes:
    """The content of one file of such a folder. Raises KvplanError(unreadable-file)."""
    file = f"{slug}.yaml"
    try:
        with (data_dir(name) / file).open("rb") as stream:
            return stream.read()
    except FileNotFoundError:
        pass
    except OSError as error:
        raise _unreadable(name, file, error) from None
    try:
        places, begin = _packed(name)
        at, length = places[file]
        with (data_dir(name) / PACKED).open("rb") as stream:
            stream.seek(begin + at)
            return stream.read(length)
    except (OSError, KeyError) as error:
        raise _unreadable(name, file, error) from None


def _unreadable(name: str, file: str, error: Exception) -> KvplanError:
    if isinstance(error, FileNotFoundError | KeyError):
        return KvplanError("unreadable-file", f"there is no file {name}/{file}", help="check the path")
    reason = getattr(error, "strerror", None) or type(error).__name__
    return KvplanError("unreadable-file", f"cannot read {name}/{file}: {reason}", help="check the path")


def behind(name: str, slugs: Container[str], command: str) -> list[str]:
    """The help where files of a folder are not in its index: which, and the command that renews it."""
    new = [f"{slug}.yaml" for slug in packaged_slugs(name) if slug not in slugs]
    return [f"{name}/index.json does not have {', '.join(new)}; renew it:\n{command}"] if new else []
