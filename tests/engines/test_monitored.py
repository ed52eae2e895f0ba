"""The names on the Prometheus pages: what each recorded release has in its source, and the installed one."""

from __future__ import annotations

import inspect
import re

import pytest

from kvplan.engines.base import parse_version
from kvplan.engines.folders import having
from kvplan.engines.monitored import Names, Series, name_of
from kvplan.record import field_names
from tests.recorded import record

FIELDS = tuple(name for name in field_names(Series) if name not in ("per", "label", "switch"))


def names_of(engine: str, field: str) -> Names:
    found: Names = getattr(having("monitoring")[engine].SERIES, field)
    return found


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
@pytest.mark.parametrize("field", FIELDS)
def test_every_recorded_release_has_the_name(engine: str, field: str) -> None:
    for version, known in record("series")[engine].items():
        plain = {name.removesuffix("_total") for name in known}
        assert name_of(names_of(engine, field), version) in plain, version


@pytest.mark.parametrize("engine", having("monitoring"))
@pytest.mark.parametrize("field", FIELDS)
def test_every_release_has_one_or_none_has(engine: str, field: str) -> None:
    releases = [parse_version(since) for since, _ in names_of(engine, field)]
    assert releases == sorted(releases, reverse=True)
    assert not releases or releases[-1] == parse_version("0")


@pytest.mark.vllm
def test_the_installed_vllm_has_the_names() -> None:
    import vllm.v1.metrics.loggers

    known = set(re.findall(r'"(vllm:\w+)"', inspect.getsource(vllm.v1.metrics.loggers)))
    assert {name_of(names_of("vllm", field), "0.32") for field in FIELDS} <= known
