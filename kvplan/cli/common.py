"""Parameters that several commands have, and completion of names."""

from __future__ import annotations

from typing import Annotated

import typer

OUTPUT = "Output and help"


def complete_models(incomplete: str) -> list[str]:
    """Card names that begin so; nothing where the cards cannot be read."""
    from kvplan.cli.names import model_names

    return [name for name in model_names() if name.startswith(incomplete.lower())]


def complete_gpus(incomplete: str) -> list[str]:
    from kvplan.cli.names import gpu_names

    return [name for name in gpu_names() if name.startswith(incomplete.lower())]


def complete_engines(incomplete: str) -> list[str]:
    from kvplan.engines import ENGINES

    return [name for name in (*ENGINES, "all") if name.startswith(incomplete.lower())]


def complete_dtypes(incomplete: str) -> list[str]:
    from kvplan.dtypes import KV_DTYPES

    return [name for name in ("auto", *KV_DTYPES) if name.startswith(incomplete.lower())]


COMPLETE = {"gpu": complete_gpus, "engine": complete_engines, "kv_cache_dtype": complete_dtypes}

Json = Annotated[bool, typer.Option("--json", help="Only JSON on stdout.", rich_help_panel=OUTPUT)]
Color = Annotated[
    str, typer.Option("--color", metavar="auto|always|never", help="Colour on stdout.", rich_help_panel=OUTPUT)
]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.", rich_help_panel=OUTPUT)]
