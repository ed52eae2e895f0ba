"""Where the packaged data folders are.

In a wheel they lie in ``kvplan/_data/<name>``; an editable install has them beside the package, in the
repository itself.
"""

from __future__ import annotations

from collections.abc import Container
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


def read_packaged(name: str, slug: str) -> str:
    """The text of one file of such a folder. Raises KvplanError(unreadable-file)."""
    path = data_dir(name) / f"{slug}.yaml"
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise KvplanError(
            "unreadable-file", f"cannot read {name}/{path.name}: {reason}", help="check the path"
        ) from None


def behind(name: str, slugs: Container[str], command: str) -> list[str]:
    """The help where files of a folder are not in its index: which, and the command that renews it."""
    new = sorted(path.name for path in data_dir(name).glob("*.yaml") if path.stem not in slugs)
    return [f"{name}/index.json does not have {', '.join(new)}; renew it:\n{command}"] if new else []
