"""Where in some words an engine's server is started: through shells, wrappers and container commands."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath

from kvplan.engines.launch import Server, servers
from kvplan.errors import KvplanError
from kvplan.record import record, replace

SHELLS = ("sh", "bash", "zsh", "dash", "ash")
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL | re.ASCII)
_VARIABLE = re.compile(r"\$(?:\{(\w+)(?::?-([^{}]*))?\}|\((\w+)\)|(\w+))", re.ASCII)
_TO_A_STREAM = re.compile(r"\d?[<>]&(\d|-)|&(?=>)", re.ASCII)
_BREAKS = re.compile(r"[;&|]+")
_IMAGE = re.compile(r"[\w./-]+(?::[\w.-]+)?(?:@sha256:\w+)?", re.ASCII)
_IMAGE_WORD = re.compile(r"(?:docker://|--image=)(.+)")
"""How Apptainer and ``kubectl run`` name an image."""
_TAG = re.compile(r"(?:^|[-_])v?(\d+\.\d+(?:\.\d+)?)(?=$|[-_.a-z+])", re.ASCII)
_REPACKED = ("lmcache/",)
"""Who puts an engine into images with tags of their own."""
_BESIDE = re.compile(
    r"rout(er|ing)|sidecar|schedul|picker|gateway|proxy|controller|operator|exporter|autoscal|bench|syncer"
    r"|-sim(?![a-z])|-cache-manager|dashboard|-epp"
)
"""In the names of images that stand beside a server and start none."""
_NAME = re.compile(r"(?<![$\w{])[A-Za-z_]\w*", re.ASCII)
_SUM = re.compile(r"\$\(\(([^()]*)\)\)")
_TERMS = re.compile(r"\s*(\d{1,9})((?:\s*[-+*]\s*\d{1,9})*)\s*", re.ASCII)
_PYTHON = re.compile(r"python(\d(\.\d+)?)?", re.ASCII)
_CONTAINERS = ("docker", "podman", "nerdctl")
_DEPTH = 4
MAX_WORDS = 4096


@record()
class Start:
    """A server that is started: its engine, the words after its own name, the variables it is given.
    image: of the container, where it is known."""

    server: Server
    words: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = ()
    image: str | None = None
    gpus: int | None = None

    @property
    def version(self) -> str | None:
        """The release that the image's tag says, None where it says none (``latest``, a commit) and where
        the image is not the engine's own: ``llm-d-cuda:v0.9.0`` holds llm-d's 0.9.0."""
        return version_of(self.image) if self.image is not None and self.is_tagged_by_engine else None

    @property
    def is_tagged_by_engine(self) -> bool:
        """Whether the tags of the image are the engine's releases: its own image, or one of that name in
        another registry."""
        name = _name_of(self.image or "")
        return any(f"/{name}".endswith(f"/{one}") for one in self.server.tagged) and not any(
            f"/{one}" in f"/{name}" for one in _REPACKED
        )


def version_of(image: str) -> str | None:
    """``0.11.0`` of ``vllm/vllm-openai:v0.11.0``; None of ``:latest``, a date, a commit."""
    last = image.rpartition("/")[2].partition("@")[0]
    _, colon, tag = last.partition(":")
    match = _TAG.search(tag) if colon else None
    return match[1] if match is not None and len(match[1].split(".")[0]) < 4 else None


def starts_in(text: str, environment: Mapping[str, str] | None = None) -> list[Start]:
    """The servers that a shell text starts."""
    joined = _SUM.sub(lambda match: "".join(match[0].split()), re.sub(r"\\\r?\n", " ", text))
    known = dict(environment or {})
    found: list[Start] = []
    for line in _commands(joined):
        while line and line[0] in ("export", "set", "declare"):
            line = line[1:]
        for word in line:
            match = _ASSIGNMENT.fullmatch(word)
            if match is None:
                break
            known[match[1]] = _expanded(match[2], known)
        found += starts_of([_expanded(word, known) for word in line], known)
    return found


def starts_of(
    words: Sequence[str],
    environment: Mapping[str, str] | None = None,
    image: str | None = None,
    depth: int = 0,
) -> list[Start]:
    """The servers that some words start: after assignments, wrappers (``nohup``, ``uv run``), a shell's
    ``-c``, ``docker run``. image: whose entry point takes the words, where nothing in them starts one."""
    known = dict(environment or {})
    words = [_expanded(word, known) for word in words][:MAX_WORDS]
    for place, word in enumerate(words):
        name = PurePosixPath(word).name
        if name in SHELLS and depth < _DEPTH:
            for at in range(place + 1, len(words)):
                if re.fullmatch(r"-\w*c", words[at]) and at + 1 < len(words):
                    return [
                        with_image(one, image)
                        for text in words[at + 1 :][:1]
                        for one in starts_in(text, known)
                    ]
        if (named := _IMAGE_WORD.fullmatch(word)) is not None and server_of_image(named[1]) is not None:
            after = [one for one in words[place + 1 :] if one != "--"]
            return starts_of(after, known, image=named[1], depth=depth + 1)
        if " " in word and depth < _DEPTH and place and name not in SHELLS and _said_to(words[0]):
            return [with_image(one, image) for one in _inside(word, known)]
        if name in _CONTAINERS and "run" in words[place + 1 : place + 3]:
            return _container(words[words.index("run", place) + 1 :], known, depth)
        found = _own(words, place)
        if found is not None:
            return [Start(found[0], tuple(words[found[1] :]), tuple(known.items()), image)]
    server = server_of_image(image) if image is not None else None
    if server is None:
        return []
    return [Start(server, tuple(_after_entry(words)), tuple(known.items()), image)]


def _said_to(word: str) -> bool:
    """Whether a command is given another as one word: ``ssh gpu1 'vllm serve …'``."""
    return PurePosixPath(word).name in ("ssh", "tmux", "screen", "su", "sudo", "watch", "timeout", "eval")


def _inside(text: str, known: Mapping[str, str]) -> list[Start]:
    try:
        return starts_in(text, known)
    except KvplanError:
        return []


def server_of_image(image: str) -> Server | None:
    """The engine whose server an image starts by itself: by parts of its name (``/vllm``: how the last part
    of its path begins)."""
    name = _name_of(image)
    last = name.rpartition("/")[2]
    if _BESIDE.search(last):
        return None
    for server in servers().values():
        if any(
            last.startswith(part[1:]) if part.startswith("/") else part in f"/{name}"
            for part in server.images
        ):
            return server
    return None


def _name_of(image: str) -> str:
    """An image without its tag and digest."""
    path = image.partition("@")[0]
    head, colon, tag = path.rpartition(":")
    return (head if colon and "/" not in tag else path).lower()


def _own(words: Sequence[str], place: int) -> tuple[Server, int] | None:
    """The server that the words at a place start, and where its own begin. ``python -m module`` begins at
    ``python``; a command by its name or path."""
    first = PurePosixPath(words[place]).name.removesuffix(".exe")
    for server in servers().values():
        for start in server.starts:
            module = start[0] == "-m"
            at = place
            if module:
                if not _PYTHON.fullmatch(first):
                    continue
                at += 1
                while at < len(words) and words[at] in ("-u", "-O", "-s"):
                    at += 1
            elif first != start[0]:
                continue
            shown = [
                first if index == place else words[index]
                for index in range(at, min(at + len(start), len(words)))
            ]
            if tuple(shown) == start:
                return server, at + len(start)
    return None


def _after_entry(words: Sequence[str]) -> Sequence[str]:
    """The arguments of an image's own entry point, which may be written out as ``serve``."""
    return words[1:] if words[:1] == ["serve"] else words


def _container(words: Sequence[str], known: dict[str, str], depth: int) -> list[Start]:
    """``docker run [options] IMAGE [words]``: the image is the first word that looks like an engine's."""
    gpus: int | None = None
    entry: str | None = None
    for place, word in enumerate(words):
        option, equals, value = word.partition("=")
        if not equals and place + 1 < len(words):
            value = words[place + 1]
        if option in ("-e", "--env"):
            match = _ASSIGNMENT.fullmatch(value)
            if match is not None:
                known[match[1]] = match[2]
        elif option == "--gpus":
            gpus = _gpus(value)
        elif option == "--entrypoint":
            entry = value
        elif not word.startswith("-") and _IMAGE.fullmatch(word) and server_of_image(word) is not None:
            if place and words[place - 1] in ("-v", "--volume", "--name", "-w", "--network", "--entrypoint"):
                continue
            after = words[place + 1 :]
            if entry is None:
                inner = starts_of(after, known, image=word, depth=depth + 1)
            else:  # it is started instead of the image's own server
                inner = [with_image(one, word) for one in starts_of([entry, *after], known, depth=depth + 1)]
            return [replace(one, gpus=gpus) for one in inner]
    # An image of somebody's own: its words start the server, or nothing says which it is.
    return starts_of([word for word in words if word not in _CONTAINERS], known, depth=_DEPTH)


def _gpus(text: str) -> int | None:
    """``2``, ``"device=0,1"``, ``all`` (not said how many)."""
    clean = text.strip("'\"")
    if clean.isdigit():
        return int(clean)
    match = re.search(r"device=([\w,.:-]+)", clean)
    return len(match[1].split(",")) if match else None


def with_image(start: Start, image: str | None) -> Start:
    """The start, in a container of that image unless it names one itself."""
    return start if start.image is not None or image is None else replace(start, image=image)


def split_words(text: str) -> list[str]:
    """The words of a text as a shell takes them apart. Raises KvplanError(bad-command)."""
    return [word for command in _commands(text) for word in command]


def _commands(text: str) -> list[list[str]]:
    """A shell text as its simple commands, each a list of words; what is no shell is refused.

    Raises KvplanError(bad-command)."""
    lexer = shlex.shlex(_broken(_TO_A_STREAM.sub(" ", text)), posix=True, punctuation_chars=";&|")
    lexer.whitespace_split = True
    lexer.commenters = ""
    commands: list[list[str]] = [[]]
    try:
        for token in lexer:
            if _BREAKS.fullmatch(token):
                commands.append([])
            else:
                commands[-1].append(token)
    except ValueError as error:
        raise KvplanError(
            "bad-command", f"this is no command line: {error}", help="quote the words as in a shell"
        ) from error
    return [kept for command in commands if (kept := _without_redirections(command))]


def _without_redirections(words: list[str]) -> list[str]:
    """``> file``: of no meaning here."""
    kept: list[str] = []
    place = 0
    while place < len(words):
        if words[place] in ("<", ">"):
            while place < len(words) and words[place] in ("<", ">"):
                place += 1
            place += 1
        else:
            kept.append(words[place])
            place += 1
    return kept


def _broken(text: str) -> str:
    """A shell text whose line ends outside of quotes are semicolons; without its comments."""
    out: list[str] = []
    quote = ""
    rows = iter(text)
    for char in rows:
        if quote:
            quote = "" if char == quote else quote
        elif char in "<>":
            if out and out[-1].isdigit() and (len(out) == 1 or out[-2].isspace()):
                out.pop()  # 2> is no value of what stands before it
            char = f" {char} "
        elif char in "'\"":
            quote = char
        elif char == "\n":
            char = " ; "
        elif char == "#" and (not out or out[-1][-1].isspace()):
            char = next((" ; " for one in rows if one == "\n"), "")
        out.append(char or " ")
    return "".join(out)


def _expanded(word: str, known: Mapping[str, str]) -> str:
    """A word with the variables that are known; a default (``${TP:-2}``) where one is written."""

    def value(match: re.Match[str]) -> str:
        name = match[1] or match[3] or match[4]
        if name in known:
            return known[name]
        return match[2] if match[2] is not None else match[0]

    if "$" not in word:
        return word
    return _SUM.sub(_summed, _VARIABLE.sub(value, _SUM.sub(lambda match: _named(match, known), word)))


def _named(match: re.Match[str], known: Mapping[str, str]) -> str:
    """A sum in which names that are known stand as their values: ``$((A*4))``."""
    return "$((" + _NAME.sub(lambda name: known.get(name[0], name[0]), match[1]) + "))"


def _summed(match: re.Match[str]) -> str:
    """The value of ``$((2*8))``; of what is no plain sum of numbers, its text."""
    found = _TERMS.fullmatch(match[1])
    if found is None:
        return match[0]
    total, product, sign = 0, int(found[1]), 1
    for operator, number in re.findall(r"([-+*])\s*(\d+)", found[2]):
        if operator == "*":
            product *= int(number)
        else:
            total, product, sign = total + sign * product, int(number), 1 if operator == "+" else -1
    return str(total + sign * product)
