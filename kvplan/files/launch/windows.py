"""Scripts of cmd and of PowerShell, in the words of a shell."""

from __future__ import annotations

import re

from kvplan.files.launch.found import Beside
from kvplan.files.launch.scripts import Found, of_shell

_EACH = re.MULTILINE | re.IGNORECASE
_BATCH = (
    (r"^[ \t]*(?:@echo\b.*|rem\b.*|::.*|:\w+.*|goto\b.*|pause\b.*|for\b.*|title\b.*|cls\b.*)$", ""),
    (r"^[ \t]*@", ""),
    (r'^[ \t]*if not defined (\w+) set "?\1=([^"\n]*)"?', r': "${\1:=\2}"'),
    (r'^[ \t]*if "%(\w+)%"[ ]*==[ ]*"" set "?\1=([^"\n]*)"?', r': "${\1:=\2}"'),
    (r"^[ \t]*(?:if\b.*|\).*)$", ""),
    (r"^([ \t]*)set /a[ \t]+\"?(\w+)[ ]*=([^\"\n]*)\"?", r"\1export \2=$((\3))"),
    (r"%~dp0", "./"),
    (r"%~?(\d)", r"${\1}"),
)
"""Of cmd: conditions that give a default are kept, other branches left out."""
_POWERSHELL = (
    (r"(?s)<#.*?#>", ""),
    (r"^[ \t]*param[ \t]*\((.*?)\)[ \t]*$", None),
    (r"\$env:(\w+)", r"$\1"),
    (r"^([ \t]*)(?:\[[\w.]+\][ \t]*)?\$(\w+)[ \t]*=[ \t]*@\(", r"\1\2=("),
    (r"^([ \t]*)(?:\[[\w.]+\][ \t]*)?\$(\w+)[ \t]*=[ \t]*", r"\1export \2="),
    (r"^([ \t]*)&[ \t]+", r"\1"),
    (r"(?<![\w$])@(\w+)\b", r'"${\1[@]}"'),
    (r"(?<=['\"\w]),[ \t]*\n?[ \t]*(?=['\"])", " "),
)


def is_of_windows(name: str, text: str) -> bool:
    return name.lower().endswith((".bat", ".cmd", ".ps1"))


def of_windows(text: str, beside: Beside) -> Found:
    """``%X%``, ``set`` and ``^`` of cmd; ``$X = …``, ``param(…)``, ``@list`` and ``&`` of PowerShell."""
    lines = re.sub(r"[\^`][ \t]*\r?\n", " ", text.replace("\r\n", "\n")).replace("\\", "/")
    if beside.file.lower().endswith(".ps1"):
        for pattern, by in _POWERSHELL:
            flags = _EACH | (re.DOTALL if by is None else 0)
            lines = re.sub(pattern, _parameters if by is None else by, lines, flags=flags)
        return of_shell(lines, beside)
    for pattern, by in _BATCH:
        lines = re.sub(pattern, by, lines, flags=_EACH)
    lines = re.sub(r'^([ \t]*)set[ \t]+"?(\w+)=([^"\n]*)"?', _set, lines, flags=_EACH)
    return of_shell(re.sub(r"%(\w+)%", r"${\1}", lines), beside)


def _parameters(match: re.Match[str]) -> str:
    """The parameters of a script, a line each, with their defaults."""
    rows = re.findall(r"\$(\w+)[ \t]*=[ \t]*(\"[^\"]*\"|'[^']*'|[\w.]+)", match[1])
    return "\n".join(f"${name} = {value}" for name, value in rows)


def _set(match: re.Match[str]) -> str:
    value = re.sub(r"([\"$`])", r"\\\1", match[3].strip())
    return f'{match[1]}export {match[2]}="{value}"'
