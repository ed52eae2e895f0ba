"""Values named like secrets are not shown: neither in a line of a user's file nor as a word anywhere else.

A server's command, a chart or a list of variables may hold a token. An excerpt under an error shows the line
that is wrong, a message may name the same word from another line, and logs of CI are public. A file's secrets
are collected when it is read (`remember`) and masked in everything that the run writes (`hidden`).
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from html import escape

from kvplan.later import regex
from kvplan.shown import SECRETS

MASK = "*"
_SECRET = regex(
    r"(?:^|_)keys?$|(?:api|access|private|auth|account|license|signing)_?keys?(?:_|$)|token$|(?:^|_)(?:pat|auth)$"
    r"|(?:hf|hub|api|access|auth|refresh|bearer)_?tokens?(?:_|$)|secret|passw(?:or)?d|passphrase|credential",
    re.IGNORECASE,
)
_CAMEL = regex(r"(?<=[a-z0-9])(?=[A-Z])")
_NAME = regex(r"(?<![\w.-])-{0,2}([A-Za-z_][\w.-]{0,80})")
_BEHIND = regex(
    r"""["']?(?:\s*[=:]\s*|\s*,\s*|\s+)(?:["']?value["']?\s*[:=]\s*(?:,\s*)?)?(?:Bearer\s+)?(?:"(?P<double>(?:[^"\\]|\\.)*)"?|'(?P<single>[^']*)'?"""
    r"""|(?P<plain>[^\s"',\[\]{}&]+))"""
)
"""A value behind a name: ``--api-key x``, ``"--api-key", "x"``, ``TOKEN=x``, ``hf_token: 'x'``."""
_BARE = regex(
    r"(?<![\w-])(?:sk-[\w-]{8,}|hf_(?=\w*[0-9A-Z])\w{8,}|gh[oprsu]_\w{8,}|github_pat_\w{8,}|glpat-[\w-]{8,}|xox[a-z]-[\w-]{8,}"
    r"|nvapi-[\w-]{8,}|AKIA[0-9A-Z]{12,}|ya29\.[\w-]{8,}|eyJ[\w-]{8,}\.[\w.-]*)"
)
"""Tokens that say what they are by how they begin."""
_USER = regex(r"(?<=://)[^\s/@]+(?=@)")
"""A user and a password in an address."""
_VALUE = regex(r"""\s*(?:-\s+)?(?:["']?value["']?\s*:\s*)?["']?(?P<plain>[^"'\s#][^"']*)""")
"""A line that is one value, without the blanks, the comma and the quote at its end."""
_LAST = regex(r"[A-Za-z][\w.-]{0,80}\Z")
"""The last word of a line, behind which a value may stand in the next one."""
_ENDS = " \t\r\f\v\"',\\"
_LONGEST_NAME = 81
_HINT = regex(
    r"key|token|secret|passw|passphrase|credential|auth|(?<![a-z])pat(?![a-z])|://|sk-|hf_|gh[oprsu]_|github_|glpat"
    r"|xox|nvapi|akia|ya29|eyj",
    re.IGNORECASE,
)
_LEAST = 8
_TELLING = regex(r"(?=[^\s]*[0-9])(?=[^\s]*[A-Za-z])|[A-Za-z]{20,}\Z")
_AROUND = ":,;{}[]()\\\"'"
_WORD = r"[A-Za-z0-9_]"


@lru_cache(maxsize=4096)
def is_secret(name: str) -> bool:
    """Whether an option, a key or a variable is named like a secret: ``--api-key``, ``HF_TOKEN``,
    ``dbPassword``; not ``max_num_batched_tokens``, nor ``num_key_value_heads``."""
    return bool(_SECRET.search(_CAMEL.sub("_", name.strip("-")).replace(".", "_").replace("-", "_")))


def masked(line: str, before: str = "") -> str:
    """A line with as many asterisks as a secret has characters, so that a caret below stays where it was.

    before: the line above, whose name may be that of a value here (``- --api-key``, ``name: HF_TOKEN``).
    """
    found = line
    for start, end in _places(line, before):
        found = found[:start] + MASK * (end - start) + found[end:]
    return found


def _places(line: str, before: str) -> list[tuple[int, int]]:
    """Begin and end of every secret of a line; they may overlap."""
    found = []
    for name in _NAME.finditer(line):
        value = _BEHIND.match(line, name.end()) if is_secret(name[1]) else None
        if value is not None and value.lastgroup is not None:
            found.append(value.span(value.lastgroup))
    last = _LAST.search(before.rstrip(_ENDS)[-_LONGEST_NAME:])
    if last is not None and is_secret(last[0]):
        body = line.rstrip(" \t\r\f\v\\").removesuffix(",").rstrip("\"'")
        value = _VALUE.fullmatch(body)
        found += [value.span("plain")] if value is not None else []
    return [*found, *(one.span() for form in (_BARE, _USER) for one in form.finditer(line))]


def remember(text: str) -> None:
    """Collect the secrets of a text for the run that reads it: values masked in its lines, of at least eight
    characters, with a letter and a digit or twenty letters. Shorter and plainer ones are ordinary words too
    (``HF_TOKEN: none``), and no figure may ever be masked; in their own lines they are all the same."""
    kept = SECRETS.get()
    if kept is None or not _HINT.search(text):
        return
    above, hinted = "", False
    for line in text.split("\n"):
        hints = _HINT.search(line) is not None
        if hints or hinted:
            # Of several words the first is the value: behind it a next option or a comment may stand.
            words = (line[start:end].split()[:1] for start, end in _places(line, above))
            found = (word.strip(_AROUND) for one in words for word in one)
            kept.update(word for word in found if len(word) >= _LEAST and _TELLING.match(word))
        above, hinted = line, hints


def hidden(text: str, secrets: set[str] | None = None) -> str:
    """A text to be written without the secrets, wherever they stand as whole words; also as JSON and HTML
    write them. secrets: None means those of this run."""
    kept = SECRETS.get() if secrets is None else secrets
    for secret in sorted(kept or (), key=len, reverse=True):
        for form in dict.fromkeys(
            (secret, json.dumps(secret)[1:-1], escape(secret), escape(secret, quote=False))
        ):
            if form in text:
                whole = rf"(?<!{_WORD}){re.escape(form)}(?!{_WORD})"
                text = re.sub(whole, MASK * len(secret), text)
    return text
