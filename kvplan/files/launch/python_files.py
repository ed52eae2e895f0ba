"""Python that starts an engine, read by its tree and never run; notebooks."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from kvplan.engines.launch import Server, servers
from kvplan.errors import KvplanError
from kvplan.files.launch.entries import words_of_keys
from kvplan.files.launch.found import Beside
from kvplan.files.launch.given import value_of
from kvplan.files.launch.machines import gpu_of_label
from kvplan.files.launch.scripts import Found, file_reader, of_starts
from kvplan.files.launch.starts import Start, starts_in, starts_of
from kvplan.files.launch.trees import count_of
from kvplan.files.launch.unknown import unknown
from kvplan.record import replace

_RUNS = frozenset(
    """Popen run call check_call check_output system popen getoutput create_subprocess_exec execvp execv
    execvpe create_subprocess_shell spawn exec_run sh""".split()
)
"""Functions of Python that start a command."""
_ASKED = ("os.environ.get", "os.getenv", "environ.get", "getenv")
_KEPT = ("list", "tuple", "dict", "shlex.quote", "quote", "Path", "shlex.join", "shlex.split", "split")
"""Functions that give the words that they are given."""
_MOST_VALUES = 4096

_LARGEST = 10**12
"""Numbers of a sum that is still worked out."""


class Words(NamedTuple):
    """A list of words. others: further words on a condition."""

    words: tuple[object, ...]
    others: tuple[tuple[str, tuple[object, ...]], ...] = ()


class Open(NamedTuple):
    """A value of which the text alone is known."""

    text: str


def is_python(name: str, text: str) -> bool:
    return name.lower().endswith(".py")


def is_notebook(name: str, text: str) -> bool:
    return name.lower().endswith(".ipynb")


def python(text: str, beside: Beside, shell: str = "", written: str | None = None) -> Found:
    """The servers of a Python file. shell: the lines of a notebook that a shell reads; written: all of it.

    Raises KvplanError(bad-python)."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        said = str(error).partition("(")[0]
        raise KvplanError("bad-python", f"{beside.file or beside.name} is no Python: {said}") from None
    reader = _Reader(tree)
    reader.block(tree.body, {})
    starts = [*reader.starts]
    if shell:
        known = {name: str(one) for name, one in reader.top.items() if isinstance(one, (str, int, float))}
        given = re.sub(
            r"\{(\w+)\}", lambda match: f"${{{match[1]}}}" if match[1] in known else match[0], shell
        )
        starts += starts_in(given, known, beside=file_reader(beside.folder))
    return of_starts(starts, beside, text if written is None else written)


def notebook(text: str, beside: Beside) -> Found:
    """The cells of a notebook in their order: Python, and what stands behind ``!`` and ``%%bash``.

    Raises KvplanError(bad-json | bad-python)."""
    try:
        cells = json.loads(text)["cells"]
        sources = ["".join(one["source"]) for one in cells if one.get("cell_type") == "code"]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise KvplanError("bad-json", f"{beside.file} is no notebook: {error}") from None
    plain, shell = [], []
    for source in sources:
        first, _, rest = source.partition("\n")
        if re.match(r"%%(?:bash|sh|script|shell)\b", first):
            shell.append(rest)
        elif not first.startswith("%%"):
            joined = re.sub(r"\\\n", " ", source)
            rows = joined.splitlines()
            shell += [row.lstrip().lstrip("!") for row in rows if row.lstrip().startswith("!")]
            plain.append("\n".join(
                re.sub(r"^(\s*)[!%].*$", r"\1pass", row) for row in rows
            ))  # fmt: skip
    kept = [one for one in plain if _parses(one)]
    return python("\n".join(kept), beside, "\n".join(shell), text)


def _parses(text: str) -> bool:
    try:
        ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


class _Reader:
    """Walks a file's statements in their order, with what names stand for."""

    def __init__(self, tree: ast.Module) -> None:
        self.starts: list[Start] = []
        self.around: tuple[str | None, int | None] = (None, None)
        self.top: dict[str, object] = {}
        self.condition: str | None = None
        self.options: dict[str, object] = {}
        self.otherwise: list[tuple[object, str]] = []  # a value, what it is on a condition
        self.imports = dict(_imports(tree))

    def block(self, nodes: Sequence[ast.stmt], scope: dict[str, object]) -> None:
        for node in nodes:
            self.statement(node, scope)
        if not self.top:
            self.top = scope

    def add(self, starts: Sequence[Start]) -> None:
        """Servers on the GPUs of the function around them."""
        gpu, gpus = self.around
        for one in starts:
            said = [note for value, note in self.otherwise if _word(value) in one.words]
            self.starts.append(
                replace(one, gpu=one.gpu or gpu, gpus=one.gpus or gpus, notes=(*one.notes, *said))
            )

    def statement(self, node: ast.stmt, scope: dict[str, object]) -> None:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            before = self.around
            for decorator in node.decorator_list:
                self.gpu(decorator, scope)
            inner = dict(scope)
            if not isinstance(node, ast.ClassDef):
                inner.update(_defaults(node, lambda one: self.value(one, scope)))
            self.block(node.body, inner)
            self.around = before
            if isinstance(node, ast.ClassDef):
                scope.update({f"self.{name}": one for name, one in inner.items() if name not in scope})
            return
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                self.bind(target, node.value, scope)
        elif isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add):
            self.extend(ast.unparse(node.target), self.value(node.value, scope), scope)
        for call in self.calls(node):
            self.call(call, scope)
        self.inner(node, scope)

    def bind(self, target: ast.expr, node: ast.expr, scope: dict[str, object]) -> None:
        """A name becomes what an expression stands for; what a branch makes of it is said where it counts."""
        name, value = ast.unparse(target), self.value(node, scope)
        if isinstance(target, (ast.Name, ast.Attribute)):
            before = scope.get(name) if self.condition is not None else None
            if before is not None and self.condition is not None:
                self.otherwise.append((before, f"where {self.condition}: {name} is {_word(value)}"))
            scope[name] = value if before is None else before
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("parse_args"):
                scope.update({f"{name}.{key}": one for key, one in self.options.items()})
        elif isinstance(target, ast.Subscript) and self.condition is None:
            held = scope.get(ast.unparse(target.value))
            if isinstance(held, dict):
                kept = {**held, str(self.value(target.slice, scope)): value}
                scope[ast.unparse(target.value)] = kept

    def inner(self, node: ast.stmt, scope: dict[str, object]) -> None:
        """The blocks inside a statement; what a branch adds counts on its condition alone."""
        if isinstance(node, ast.If) and "__name__" not in ast.unparse(node.test):
            before = self.condition
            for nodes, text in (
                (node.body, ast.unparse(node.test)),
                (node.orelse, f"not {ast.unparse(node.test)}"),
            ):
                self.condition = text
                self.block(nodes, scope)
            self.condition = before
            return
        for field in ("body", "orelse", "finalbody"):
            self.block([one for one in getattr(node, field, []) if isinstance(one, ast.stmt)], scope)
        for handler in getattr(node, "handlers", []):
            self.block(handler.body, scope)

    @staticmethod
    def calls(node: ast.stmt) -> Iterator[ast.Call]:
        """The calls of a statement, without those of the blocks inside it."""
        left: list[ast.AST] = [
            one for name, one in ast.iter_fields(node)
            if isinstance(one, ast.AST) and name not in ("body", "orelse", "finalbody", "handlers")
        ]  # fmt: skip
        left += getattr(node, "items", [])
        while left:
            one = left.pop()
            if isinstance(one, ast.Call):
                yield one
            left += ast.iter_child_nodes(one)

    def call(self, node: ast.Call, scope: dict[str, object]) -> None:
        name = ast.unparse(node.func)
        target, _, method = name.rpartition(".")
        server = self.server(name)
        if server is not None:
            self.add([self.engine(server, node, scope)])
        elif method == "add_argument":
            self.argument(node, scope)
        elif method in ("append", "extend") and node.args:
            value = self.value(node.args[0], scope)
            self.extend(target, Words((value,)) if method == "append" else value, scope)
        elif method in _RUNS and node.args:
            self.command(self.value(node.args[0], scope), node, scope)

    def server(self, name: str) -> Server | None:
        """The server whose class a name is, by the package that it was imported from."""
        head, _, rest = name.partition(".")
        full = self.imports.get(head, head) + (f".{rest}" if rest else "")
        package, last = full.partition(".")[0], full.rpartition(".")[2]
        return next(
            (one for one in servers().values() if one.package == package != "" and last in one.calls), None
        )

    def engine(self, server: Server, node: ast.Call, scope: dict[str, object]) -> Start:
        keys: dict[str, object] = {}
        rest: list[str] = []
        for place, one in enumerate(node.args[:1]):
            keys[server.model[place].lstrip("-")] = self.value(one, scope)
        for keyword in node.keywords:
            value = self.value(keyword.value, scope)
            if keyword.arg is not None:
                keys[keyword.arg] = value
            elif isinstance(value, dict):
                keys.update(value)
            else:
                rest.append(unknown(f"**{ast.unparse(keyword.value)}"))
        words = (*words_of_keys({key: _plain(one) for key, one in keys.items()}), *rest)
        note = f"read as options of its server: {ast.unparse(node.func)} may have other defaults"
        return Start(server, words, notes=(note,))

    def command(self, value: object, node: ast.Call, scope: dict[str, object]) -> None:
        """A list of words, or a text for a shell."""
        environment = next((self.value(one.value, scope) for one in node.keywords if one.arg == "env"), None)
        known = (
            {str(key): _word(one) for key, one in environment.items()}
            if isinstance(environment, dict)
            else {}
        )
        if isinstance(value, Words):
            starts = starts_of([_word(one) for one in value.words], known)
            for place, start in enumerate(starts):
                others = []
                for condition, more in value.others:
                    found = starts_of([_word(one) for one in (*value.words, *more)], known)
                    if len(found) == len(starts):
                        others.append((condition, found[place]))
                self.add([replace(start, others=tuple(others))])
        elif isinstance(value, str):
            self.add(starts_in(value, known))

    def extend(self, name: str, value: object, scope: dict[str, object]) -> None:
        held = scope.get(name)
        if isinstance(held, str) and isinstance(value, str) and self.condition is None:
            scope[name] = held + value
        if not isinstance(held, Words):
            return
        more = value.words if isinstance(value, Words) else (Open(str(value)),)
        if self.condition is not None:
            scope[name] = held._replace(others=(*held.others, (self.condition, more)))
        else:
            scope[name] = held._replace(words=(*held.words, *more)[:_MOST_VALUES])

    def gpu(self, node: ast.expr, scope: dict[str, object]) -> None:
        """``@app.function(gpu="H100:2")``, ``modal.gpu.H100(count=2)``."""
        for keyword in node.keywords if isinstance(node, ast.Call) else ():
            if keyword.arg != "gpu":
                continue
            value, count = self.value(keyword.value, scope), 1
            if isinstance(keyword.value, ast.Call):
                value = ast.unparse(keyword.value.func).rpartition(".")[2]
                counts = [
                    self.value(one.value, scope) for one in keyword.value.keywords if one.arg == "count"
                ]
                count = count_of(next(iter(counts), 1)) or 1
            if isinstance(value, str):
                kind, _, number = value.partition(":")
                gpu = gpu_of_label(kind)
                if gpu is not None:
                    self.around = (gpu, count_of(number) or count)

    def value(self, node: ast.expr, scope: Mapping[str, object]) -> object:
        """The value of an expression, as far as the file says it."""
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, (ast.Name, ast.Attribute)):
            text = ast.unparse(node)
            return scope.get(text, Open(text))
        if isinstance(node, (ast.List, ast.Tuple)):
            return self.listed(node.elts, scope)
        if isinstance(node, ast.Dict):
            return {
                str(self.value(key, scope)): self.value(one, scope)
                for key, one in zip(node.keys, node.values, strict=True) if key is not None
            }  # fmt: skip
        if isinstance(node, ast.Subscript):
            return self.item(node, scope)
        if isinstance(node, ast.JoinedStr):
            return "".join(_word(self.value(one, scope)) for one in node.values)
        if isinstance(node, ast.FormattedValue):
            return self.value(node.value, scope)
        if isinstance(node, ast.BinOp):
            return self.joined(node, scope)
        if isinstance(node, ast.Call):
            return self.called(node, scope)
        if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or):
            values = [self.value(one, scope) for one in node.values]
            return next((one for one in values if not isinstance(one, Open)), values[0])
        return Open(ast.unparse(node))

    def item(self, node: ast.Subscript, scope: Mapping[str, object]) -> object:
        """One of a mapping or a list; of ``os.environ`` the value that is given."""
        held, key = self.value(node.value, scope), self.value(node.slice, scope)
        if ast.unparse(node.value) in ("os.environ", "environ") and (said := value_of(str(key))) is not None:
            return said
        if isinstance(held, dict):
            return held.get(str(key), Open(ast.unparse(node)))
        if isinstance(held, Words) and isinstance(key, int) and -len(held.words) <= key < len(held.words):
            return held.words[key]
        return Open(ast.unparse(node))

    def argument(self, node: ast.Call, scope: Mapping[str, object]) -> None:
        """The default of an option of argparse."""
        names = [one.value for one in node.args if isinstance(one, ast.Constant)]
        default = next((one.value for one in node.keywords if one.arg == "default"), None)
        if default is not None:
            value = self.value(default, scope)
            self.options.update((str(one).lstrip("-").replace("-", "_"), value) for one in names)

    def listed(self, nodes: Sequence[ast.expr], scope: Mapping[str, object]) -> object:
        words: list[object] = []
        for one in nodes:
            if isinstance(one, ast.Starred):
                inner = self.value(one.value, scope)
                words += inner.words if isinstance(inner, Words) else (Open(ast.unparse(one.value)),)
            else:
                words.append(self.value(one, scope))
        return Words(tuple(words[:_MOST_VALUES]))

    def joined(self, node: ast.BinOp, scope: Mapping[str, object]) -> object:
        left, right = self.value(node.left, scope), self.value(node.right, scope)
        if isinstance(node.op, ast.Add):
            if isinstance(left, Words) and isinstance(right, Words):
                return Words((*left.words, *right.words), (*left.others, *right.others))
            if isinstance(left, str) and isinstance(right, (str, Open)):
                return left + _word(right)
        numbers = [one for one in (left, right) if isinstance(one, int) and not isinstance(one, bool)]
        if len(numbers) == 2 and max(map(abs, numbers)) < _LARGEST:
            one, two = numbers
            if isinstance(node.op, (ast.Add, ast.Sub, ast.Mult)):
                signed = -two if isinstance(node.op, ast.Sub) else two
                return one * two if isinstance(node.op, ast.Mult) else one + signed
        return Open(ast.unparse(node))

    def called(self, node: ast.Call, scope: Mapping[str, object]) -> object:
        """``os.environ.get(X, DEFAULT)``, ``str(N)``, ``" ".join(WORDS)``, ``shlex.split(TEXT)``."""
        name = ast.unparse(node.func)
        given = [self.value(one, scope) for one in node.args]
        if name in _ASKED and given:
            said = value_of(str(given[0]))
            unset = given[1] if len(given) == 2 else Open(ast.unparse(node))
            return unset if said is None else said
        if name in ("str", "int", "float") and len(given) == 1:
            return given[0] if isinstance(given[0], Open) else _cast(name, given[0])
        if name == "dict" and not given:
            return {one.arg: self.value(one.value, scope) for one in node.keywords if one.arg is not None}
        if len(given) == 1 and (name in _KEPT or (name.endswith(".join") and isinstance(given[0], Words))):
            return given[0]
        if name.endswith(".split") and not given and isinstance(node.func, ast.Attribute):
            return self.value(node.func.value, scope)
        return Open(ast.unparse(node))


def _cast(name: str, value: object) -> object:
    try:
        return {"str": str, "int": int, "float": float}[name](value)
    except (TypeError, ValueError):
        return Open(str(value))


def _word(value: object) -> str:
    return unknown(value.text) if isinstance(value, Open) else str(value)


def _plain(value: object) -> object:
    """A value as a file of options has it."""
    if isinstance(value, Open):
        return unknown(value.text)
    if isinstance(value, Words):
        return [_plain(one) for one in value.words]
    if isinstance(value, dict):
        return json.dumps({key: _plain(one) for key, one in value.items()}, ensure_ascii=False)
    return value


def _imports(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """(name here, what it is) of the imports of a file."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            yield from ((one.asname or one.name, f"{node.module}.{one.name}") for one in node.names)
        elif isinstance(node, ast.Import):
            yield from ((one.asname or one.name.partition(".")[0], one.name) for one in node.names)


def _defaults(
    node: ast.FunctionDef | ast.AsyncFunctionDef, value: Callable[[ast.expr], object]
) -> dict[str, object]:
    """The arguments of a function that have a default; the others are whatever its caller says."""
    names = [one.arg for one in (*node.args.posonlyargs, *node.args.args)]
    found: dict[str, object] = {name: Open(name) for name in names if name != "self"}
    found.update(
        zip(names[len(names) - len(node.args.defaults) :], map(value, node.args.defaults), strict=True)
    )
    for one, default in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True):
        found[one.arg] = Open(one.arg) if default is None else value(default)
    return found
