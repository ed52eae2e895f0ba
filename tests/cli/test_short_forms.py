"""One option has one short form, whichever command it belongs to."""

from __future__ import annotations

from kvplan.cli.commands import COMMANDS
from tests.laws.sampling import for_each

SHORT = {"--gpu": "-g", "--engine": "-e", "--tokens": "-t", "--requests": "-n"}


@for_each("name", COMMANDS)
@for_each("long", SHORT)
def test_an_option_is_short_everywhere_or_nowhere(name: str, long: str) -> None:
    for option in COMMANDS[name].options:
        if long in option.flags:
            assert SHORT[long] in option.flags
