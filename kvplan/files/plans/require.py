"""Requirements that are given beside plans: ``kvplan check deploy.yaml --require requests=60,tokens=8k``.

They are read as the ``require:`` of a plan file and laid over the plan's own, key by key.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

from kvplan.errors import KvplanError
from kvplan.files.plans.merge import documents_of, merge, without_nulls
from kvplan.files.yaml.marks import Located, Node
from kvplan.later import regex

OPTION, KEY = "--require", "require"
_PLAIN = regex(r"[\w.%+/-]+", re.ASCII)


def requirements(given: str | Mapping[str, object]) -> Located:
    """``requests=60,tokens=8k``, or a mapping, as the document that has them under ``require:``.

    Raises KvplanError(bad-usage)."""
    pairs = [_pair(one) for one in given.split(",")] if isinstance(given, str) else list(given.items())
    if not pairs:
        raise _no_pairs("")
    rows = [f"{str(key).replace('-', '_')}: {_value(value)}" for key, value in pairs]
    return documents_of("\n  ".join((f"{KEY}:", *rows)), OPTION, Path())[0]


def said_of(asked: Located) -> str:
    """The requirements as they are typed: ``requests=60,tokens=8k``."""
    return ",".join(f"{key}={value}" for key, value in asked.data[KEY].items())


def over(plan: Located, asked: Located) -> Located:
    """The plan with these requirements before its own."""
    data, root = merge(plan.data, plan.root, asked.data, asked.root)
    root = Node(plan.root.span, None, root.keys, root.children)
    return Located(without_nulls(data), root, plan.source)


def overridden(plan: Located, asked: Located) -> tuple[str, ...]:
    """The plan's own requirements that differ, as a sentence."""
    own, new = plan.data.get(KEY), asked.data[KEY]
    if not isinstance(own, dict):
        return ()
    return tuple(
        f"{OPTION} {key}={new[key]} counts before the plan's own {own[key]}"
        for key in new
        if key in own and own[key] != new[key]
    )


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = (part.strip() for part in text.partition("="))
    if not (key and equals and value and _PLAIN.fullmatch(key)):
        raise _no_pairs(text)
    return key, value


def _no_pairs(text: str) -> KvplanError:
    return KvplanError(
        "bad-usage", f"{OPTION} takes KEY=VALUE, with commas between them, not {text!r}",
        help=(f"{OPTION} requests=60,tokens=8k", "keys are those of a plan's `require:`: kvplan schema plan"),
    )  # fmt: skip


def _value(value: object) -> str:
    """A value as YAML writes it."""
    if isinstance(value, str) and _PLAIN.fullmatch(value):
        return value
    return json.dumps(str(value) if not isinstance(value, (int, float, str)) else value)
