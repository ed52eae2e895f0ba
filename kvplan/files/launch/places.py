"""Where in a command, a script or a manifest the values of the plan that it comes to were written."""

from __future__ import annotations

import re
from functools import lru_cache

from kvplan.engines.launch import flags_of_server
from kvplan.errors import Mark
from kvplan.files.plans.merge import FileSource
from kvplan.files.yaml.marks import Span
from kvplan.masking import masked
from kvplan.record import record

_LEAST = 3
"""Letters of a value that is looked for: shorter ones stand anywhere."""


@record()
class StartSource(FileSource):
    """A plan's text that was made of another. written: that other; server, model: of the plan, which tell
    several servers of one text apart; engine: whose options stand in it."""

    written: str
    server: str
    model: str
    engine: str

    def place(self, span: Span) -> Mark:
        """The word of the written text that says a value: the option or the key of that name, else the value
        itself; where there is none, the server's model."""
        found = map(self._nearest, self._words(span.line))
        named = _places(self.written, self.server)[:1] if self._is_name(span.line) else ()
        start, end = next(iter((*named, *filter(None, found))), self._server())
        line = self.written.count("\n", 0, start)
        begin = self.written.rfind("\n", 0, start) + 1
        above = self.written[:begin].rstrip("\r\n").rpartition("\n")[2]
        row = masked(self.written[begin:].partition("\n")[0].rstrip("\r"), above)
        return Mark(self.name, line + 1, start - begin + 1, end - begin + 1, row)

    def _is_name(self, line: int) -> bool:
        return self.text.split("\n")[line].startswith("name:")

    def _words(self, line: int) -> list[str]:
        """Words that may give the value of a line of the plan, likeliest first."""
        rows = self.text.split("\n")
        words: list[str] = []
        indent = len(rows[line]) + 1
        for row in reversed(rows[: line + 1]):
            own = len(row) - len(row.lstrip())
            if own >= indent:
                continue
            indent = own
            key, _, value = row.strip().partition(":")
            long = "--" + key.replace("_", "-")
            option = flags_of_server(self.engine).get(long)
            value = value.strip().strip("'\"")
            words += [long, *(option.names if option is not None else ())]
            words += [value] if len(value) >= _LEAST else []
            words += [f"{key}:"] if not own else []
        return words

    def _server(self) -> tuple[int, int]:
        """Where the server stands: its model behind its name, else either."""
        name = _places(self.written, self.server)
        model = _places(self.written, self.model)
        behind = [place for place in model if not name or place >= name[0]]
        return next(iter((*behind, *model, *name)), (0, 0))

    def _nearest(self, word: str) -> tuple[int, int] | None:
        near = self._server()[0]
        return min(_places(self.written, word), key=lambda place: abs(place[0] - near), default=None)


@lru_cache(maxsize=256)
def _places(text: str, word: str) -> tuple[tuple[int, int], ...]:
    """Begin and end of a whole word wherever it stands; of a key (``replicas:``) without its colon."""
    found = re.finditer(rf"(?<![\w-]){re.escape(word)}(?![\w-])", text) if word else ()
    return tuple((one.start(), one.end() - word.endswith(":")) for one in found)
