"""One option has one short form, whichever command it belongs to."""

from __future__ import annotations

import pytest

from kvplan.cli.commands import COMMANDS

SHORT = {"--gpu": "-g", "--engine": "-e", "--tokens": "-t", "--requests": "-n"}


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("long", SHORT)
def test_an_option_is_short_everywhere_or_nowhere(name: str, long: str) -> None:
    for option in COMMANDS[name].options:
        if long in option.flags:
            assert SHORT[long] in option.flags
