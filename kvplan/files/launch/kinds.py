"""Kinds of files that are no object of Kubernetes, each one row: how it is recognised, and its reader."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kvplan.files.launch import bento, compose, dynamo, pipelines, python_files, runners, scripts, windows
from kvplan.files.launch.found import Beside, Broken
from kvplan.files.launch.launch import Launch
from kvplan.files.launch.trees import Tree

Reader = Callable[[Tree, Beside], Iterable[Launch | Broken]]
TextReader = Callable[[str, Beside], Iterable[Launch | Broken]]
OF_YAML: tuple[tuple[Callable[[Tree], bool], Reader], ...] = (
    (compose.is_compose, compose.services_of),
    (pipelines.is_workflow, pipelines.workflow),
    (pipelines.is_gitlab, pipelines.gitlab),
    (dynamo.is_graph, dynamo.graph),
    (bento.is_bentofile, bento.bentofile),
    (runners.is_llama_swap, runners.llama_swap),
    (runners.is_truss, runners.truss),
    (runners.is_dstack, runners.dstack),
    (runners.is_srt_slurm, runners.srt_slurm),
    (runners.is_localai, runners.localai),
    (runners.is_other_engine, runners.other_engine),
    (runners.is_options_file, runners.options_file),
)
OF_TEXT: tuple[tuple[Callable[[str, str], bool], TextReader], ...] = (
    (windows.is_of_windows, windows.of_windows),
    (scripts.is_unit, scripts.unit),
    (scripts.is_variables, scripts.variables),
    (scripts.is_dockerfile, scripts.dockerfile),
    (scripts.is_makefile, scripts.makefile),
    (python_files.is_notebook, python_files.notebook),
    (python_files.is_python, python_files.python),
    (scripts.is_script, scripts.script),
)
"""By a file's name and its text."""


def reader_of(document: Tree) -> Reader | None:
    """The reader of a YAML document; None where its kind has no row."""
    return next((reader for is_one, reader in OF_YAML if is_one(document)), None)


def text_reader_of(name: str, text: str) -> TextReader | None:
    """The reader of a file that is no YAML, by its name or its first line; None where its kind has no row."""
    return next((reader for is_one, reader in OF_TEXT if is_one(name, text)), None)
