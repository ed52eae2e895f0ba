"""Values named like secrets are not shown: lines of a user's file are printed with its value masked.

A server's command, a chart or a list of variables may hold a token. An excerpt under an error shows the line
that is wrong, and logs of CI are public. Standard library only.
"""

from __future__ import annotations

import re

MASK = "*"
_SECRET = re.compile(
    r"(?:^|_)keys?$|(?:api|access|private|auth|account|license|signing)_?keys?(?:_|$)|token$|(?:^|_)(?:pat|auth)$"
    r"|(?:hf|hub|api|access|auth|refresh|bearer)_?tokens?(?:_|$)|secret|passw(?:or)?d|passphrase|credential",
    re.IGNORECASE,
)
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_NAME = re.compile(r"(?<![\w.-])-{0,2}([A-Za-z_][\w.-]{0,80})")
_BEHIND = re.compile(
    r"""["']?(?:\s*[=:]\s*|\s*,\s*|\s+)(?:["']?value["']?\s*[:=]\s*,?\s*)?(?:Bearer\s+)?(?:"(?P<double>(?:[^"\\]|\\.)*)"?|'(?P<single>[^']*)'?"""
    r"""|(?P<plain>[^\s"',\[\]{}&]+))"""
)
"""A value behind a name: ``--api-key x``, ``"--api-key", "x"``, ``TOKEN=x``, ``hf_token: 'x'``."""
_BARE = re.compile(
    r"(?<![\w-])(?:sk-[\w-]{8,}|hf_\w{8,}|gh[oprsu]_\w{8,}|github_pat_\w{8,}|glpat-[\w-]{8,}|xox[a-z]-[\w-]{8,}"
    r"|nvapi-[\w-]{8,}|AKIA[0-9A-Z]{12,}|ya29\.[\w-]{8,}|eyJ[\w-]{8,}\.[\w.-]*)"
)
"""Tokens that say what they are by how they begin."""
_USER = re.compile(r"(?<=://)[^\s/@]+(?=@)")
"""A user and a password in an address."""
_VALUE = re.compile(r"""^(\s*(?:-\s+)?(?:["']?value["']?\s*:\s*)?["']?)([^"'\s#][^"'\n]*?)(["']?,?\s*)$""")
_LAST = re.compile(r"""([A-Za-z][\w.-]{0,80})["',\s]*\\?\s*$""")
"""The last word of a line, behind which a value may stand in the next one."""


def is_secret(name: str) -> bool:
    """Whether an option, a key or a variable is named like a secret: ``--api-key``, ``HF_TOKEN``,
    ``dbPassword``; not ``max_num_batched_tokens``, nor ``num_key_value_heads``."""
    return bool(_SECRET.search(_CAMEL.sub("_", name.strip("-")).replace(".", "_").replace("-", "_")))


def masked(line: str, before: str = "") -> str:
    """A line with as many asterisks as a secret has characters, so that a caret below stays where it was.

    before: the line above, whose name may be that of a value here (``- --api-key``, ``name: HF_TOKEN``).
    """
    found = line
    for name in _NAME.finditer(line):
        value = _BEHIND.match(line, name.end()) if is_secret(name[1]) else None
        if value is not None and value.lastgroup is not None:
            start, end = value.span(value.lastgroup)
            found = found[:start] + MASK * (end - start) + found[end:]
    last = _LAST.search(before)
    if last is not None and is_secret(last[1]):
        found = _VALUE.sub(lambda one: one[1] + MASK * len(one[2]) + one[3], found)
    return _USER.sub(_all, _BARE.sub(_all, found))


def _all(found: re.Match[str]) -> str:
    return MASK * len(found[0])
