"""Every flag that a plan may hold under ``serve:`` can be written for its engine, or is refused."""

from __future__ import annotations

import importlib

import pytest

from kvplan.engines.folders import having
from kvplan.errors import KvplanError
from kvplan.report.export.arguments import arguments_of
from kvplan.report.export.place import table_of
from tests.report.export.plans import full

TABLES = {name: part.TABLE for name, part in having("command").items()}

serve = pytest.importorskip("kvplan.plans.serve", reason="plans are not read in this checkout")


@pytest.mark.parametrize("engine", sorted(TABLES))
def test_flags_of_plans_are_known(engine: str) -> None:
    made = full(engine)
    table, version = table_of(made)
    flags = importlib.import_module("kvplan.plans.serve").flags_of(made.engine).flags
    assert len(flags) > 5
    unknown = []
    for name, flag in flags.items():
        with_flag = made.__class__(
            made.name, made.model, made.engine, made.gpus, made.settings, serve=((name, "1"),)
        )
        try:
            arguments_of(with_flag, made.settings, table, version)
        except KvplanError as error:
            if flag.setting is not None or name not in table.none:
                unknown.append(f"{name}: {error.message}")
    assert unknown == []
