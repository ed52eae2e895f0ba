"""The skill for agents: its head is what readers of skills want, and every command in it is one."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import yaml

from kvplan.cli.quick import parse
from scripts.make_docs import PAGES, SKILL

TEXT = (Path(__file__).resolve().parents[1] / SKILL).read_text(encoding="utf-8")
COMMANDS = sorted(
    {found for found in re.findall(r"`(kvplan [^`]+)`", TEXT) if not re.search("…|NAME", found)}
)


def test_the_head() -> None:
    _, head, _ = TEXT.split("---\n", 2)
    found = yaml.safe_load(head)
    assert set(found) == {"name", "description"}
    assert found["name"] == Path(SKILL).parent.name
    assert len(found["description"]) <= 1024
    assert SKILL in PAGES  # its examples are printed by the commands


@pytest.mark.parametrize("text", COMMANDS)
def test_a_command_is_one(text: str) -> None:
    words = shlex.split(text)[1:]
    assert parse(words, {}) is not None, text
