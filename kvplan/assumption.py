"""Named numbers that an estimate rests on, each with its source. Values only; no file is read here."""

from __future__ import annotations

from collections.abc import Mapping

from kvplan.errors import KvplanError, did_you_mean
from kvplan.record import record


@record()
class Assumption:
    """One number that nobody can compute from a model's config: an efficiency, a latency, a link's rate.

    unit: ``share``, ``s``, ``B/s``, ``FLOP/s``, ``tokens`` or ``ratio``. source: a page, a file of a
    repository, or the fit that made it.
    """

    name: str
    value: float
    unit: str
    source: str


@record(eq=False)
class Assumptions:
    """A table of assumptions by name. Compared and hashed by identity: read once, pass on."""

    by_name: Mapping[str, Assumption]

    def __getitem__(self, name: str) -> Assumption:
        found = self.by_name.get(name)
        if found is None:
            near = did_you_mean(name, self.by_name)
            raise KvplanError(
                "unknown-assumption",
                f"the table of assumptions has no {name!r}",
                help=f"did you mean {near!r}?" if near else "",
            )
        return found

    def __contains__(self, name: object) -> bool:
        return name in self.by_name

    def replaced(self, **values: float) -> Assumptions:
        """The same table with other values (dots of a name written as ``__``), marked as given.

        >>> one = Assumptions({"a.b": Assumption("a.b", 1.0, "s", "a page")})
        >>> one.replaced(a__b=2.0)["a.b"]
        Assumption(name='a.b', value=2.0, unit='s', source='given')
        """
        table = dict(self.by_name)
        for key, value in values.items():
            name = key.replace("__", ".")
            table[name] = Assumption(name, value, self[name].unit, "given")
        return Assumptions(table)
