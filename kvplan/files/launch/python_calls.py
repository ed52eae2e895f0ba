"""Starts in a Python text, read by its tree and never run: engines that it makes, commands that it runs."""

from __future__ import annotations

import ast
import json
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence

from kvplan.engines.launch import Server, servers
from kvplan.errors import KvplanError
from kvplan.files.launch.given import value_of
from kvplan.files.launch.machines import gpu_of_label
from kvplan.files.launch.trees import count_of, words_of_keys
from kvplan.files.launch.unknown import unknown
from kvplan.named import NamedTuple

_RUNS = frozenset(
    """Popen run call check_call check_output system popen getoutput create_subprocess_exec execvp execv
    execvpe create_subprocess_shell spawn exec_run sh""".split()
)
"""Functions of Python that start a command."""
_ASKED = ("os.environ.get", "os.getenv", "environ.get", "getenv")
_KEPT = ("list", "tuple", "dict", "shlex.quote", "quote", "Path", "shlex.join", "shlex.split", "split")
"""Functions that give the words that they are given."""
_MODELS = ("HuggingFaceModel", "snapshot_download")
"""Functions that give the folder of the model that they are told."""
_COMMAND = "__command__"
"""The method of a service of BentoML that gives the words of its server."""
_ALL_GPUS = "torch.cuda.device_count()"
_SAME = (".model_dump", ".items", ".dict", ".copy")
"""Methods that give what an object holds."""
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


class Begun(NamedTuple):
    """An engine that is made (server, and its options as words), or a command: words, or a text for a shell.

    others: (condition, its further words). gpu, gpus: of the function around it. otherwise: (word, a note
    where a condition makes another of it)."""

    server: Server | None
    words: tuple[str, ...] = ()
    text: str | None = None
    environment: Mapping[str, str] = {}
    others: tuple[tuple[str, tuple[str, ...]], ...] = ()
    notes: tuple[str, ...] = ()
    gpu: str | None = None
    gpus: int | None = None
    otherwise: tuple[tuple[str, str], ...] = ()


class PythonText(NamedTuple):
    """A text that was read. names: of its top level that stand for a text or a number."""

    begun: tuple[Begun, ...]
    names: Mapping[str, str]


NOTHING: Mapping[str, str] = {}


def read_python(
    text: str, shown: str, environment: Mapping[str, str] = NOTHING, arguments: Sequence[str] = (),
    fields: Mapping[str, object] = NOTHING,
) -> PythonText:  # fmt: skip
    """Everything that a text starts, in its order. environment, arguments: as it is started with. fields: of
    its ``use_arguments``, as its build says them.

    Raises KvplanError(bad-python)."""
    try:
        with warnings.catch_warnings():  # on escapes in texts that are not ours
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
        reader = _Reader(tree, environment, arguments)
        reader.fields = {name: _held(value) for name, value in fields.items()}
        reader.block(tree.body, {})
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        said = str(error).partition("(")[0]
        raise KvplanError("bad-python", f"{shown} is no Python: {said}") from None
    names = {name: str(one) for name, one in reader.top.items() if isinstance(one, (str, int, float))}
    return PythonText(tuple(reader.begun), names)


class _Reader:
    """Walks a file's statements in their order, with what names stand for."""

    def __init__(self, tree: ast.Module, environment: Mapping[str, str], arguments: Sequence[str]) -> None:
        self.environment = environment
        self.arguments = dict(_pairs(arguments))
        self.begun: list[Begun] = []
        self.around: tuple[str | None, int | None] = (None, None)
        self.top: dict[str, object] = {}
        self.condition: str | None = None
        self.options: dict[str, object] = {}
        self.otherwise: list[tuple[object, str]] = []  # a value, what it is on a condition
        self.imports = dict(_imports(tree))
        self.classes: dict[str, dict[str, object]] = {}  # what a class says of its instances
        self.properties: dict[str, list[ast.FunctionDef]] = {}  # of a class
        self.fields: dict[str, object] = {}
        self.decides = False  # whether a value that is known decides a branch

    def block(self, nodes: Sequence[ast.stmt], scope: dict[str, object]) -> None:
        for node in nodes:
            self.statement(node, scope)
        if not self.top:
            self.top = scope

    def add(self, one: Begun) -> None:
        """Something that is started on the GPUs of the function around it."""
        gpu, gpus = self.around
        said = tuple((_word(value), note) for value, note in self.otherwise)
        if gpus is not None:
            words = tuple(word.replace(unknown(_ALL_GPUS), str(gpus)) for word in one.words)
            one = one._replace(words=words)
        self.begun.append(one._replace(gpu=gpu, gpus=gpus, otherwise=said))

    def statement(self, node: ast.stmt, scope: dict[str, object]) -> None:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            before = self.around
            for decorator in node.decorator_list:
                self.gpu(decorator, scope)
            inner = dict(scope)
            if isinstance(node, ast.ClassDef):
                self.members(node, inner, scope)
            else:
                inner.update(_defaults(node, lambda one: self.value(one, scope)))
                self.block(node.body, inner)
                scope.update({name: one for name, one in inner.items() if name.startswith("self.")})
                if node.name == _COMMAND:
                    self.command(self.returned(node.body, inner), None, inner)
            self.around = before
            return
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                self.bind(target, node.value, scope)
        elif isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add):
            self.extend(ast.unparse(node.target), self.value(node.value, scope), scope)
        for call in self.calls(node):
            self.call(call, scope)
        if not self.set_each(node, scope):
            self.inner(node, scope)

    def set_each(self, node: ast.stmt, scope: dict[str, object]) -> bool:
        """``for key, value in OPTIONS.items(): setattr(args, key, value)``; False for any other statement."""
        if not (isinstance(node, ast.For) and len(node.body) == 1 and isinstance(node.body[0], ast.Expr)):
            return False
        call = node.body[0].value
        if not (isinstance(call, ast.Call) and ast.unparse(call.func) == "setattr" and len(call.args) == 3):
            return False
        given = self.value(node.iter, scope)
        if not isinstance(given, dict) or not isinstance(node.target, ast.Tuple):
            return False
        target = ast.unparse(call.args[0])
        scope.update({f"{target}.{key}": one for key, one in given.items()})
        return True

    def computed(self, name: str, kind: str, fields: Mapping[str, object]) -> dict[str, object]:
        """``NAME.PROPERTY`` of an instance of a class, whose branches its fields decide."""
        found: dict[str, object] = {}
        before, self.decides = self.decides, True
        for one in self.properties.get(kind, ()):
            inner: dict[str, object] = {f"self.{key}": value for key, value in fields.items()}
            self.block(one.body, inner)
            found[f"{name}.{one.name}"] = self.returned(one.body, inner)
        self.decides = before
        return found

    def returned(self, nodes: Sequence[ast.stmt], scope: Mapping[str, object]) -> object:
        """The value that a function ends with."""
        last = nodes[-1] if nodes else None
        if isinstance(last, ast.Return) and last.value is not None:
            return self.value(last.value, scope)
        return Open("")

    def members(self, node: ast.ClassDef, inner: dict[str, object], scope: dict[str, object]) -> None:
        """The body of a class, whose names are ``self.NAME`` in its methods, and ``CLASS().NAME``."""
        for one in node.body:
            self.statement(one, inner)
            inner.update({f"self.{name}": value for name, value in _new(inner, scope).items()})
        fields = _new(inner, scope)
        self.classes[node.name] = fields
        self.properties[node.name] = [
            one for one in node.body
            if isinstance(one, ast.FunctionDef) and "property" in map(ast.unparse, one.decorator_list)
        ]  # fmt: skip
        scope.update({f"self.{name}": value for name, value in fields.items()})

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
            elif isinstance(value, dict):
                scope.update({f"{name}.{key}": one for key, one in value.items()})
                if isinstance(node, ast.Call) and node.args:
                    scope.update(self.computed(name, ast.unparse(node.args[0]), value))
        elif isinstance(target, ast.Subscript) and self.condition is None:
            held = scope.get(ast.unparse(target.value))
            if isinstance(held, dict):
                kept = {**held, str(self.value(target.slice, scope)): value}
                scope[ast.unparse(target.value)] = kept

    def inner(self, node: ast.stmt, scope: dict[str, object]) -> None:
        """The blocks inside a statement; what a branch adds counts on its condition alone."""
        if isinstance(node, ast.If) and self.decides:
            said = self.value(node.test, scope)
            if not isinstance(said, Open):
                empty = isinstance(said, Words) and not said.words
                self.block(node.body if said and not empty else node.orelse, scope)
                return
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
            self.add(self.engine(server, node, scope))
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

    def engine(self, server: Server, node: ast.Call, scope: dict[str, object]) -> Begun:
        keys: dict[str, object] = {}
        rest: list[str] = []
        for place, one in enumerate(node.args[:1]):
            head = f"{ast.unparse(one)}."
            named = {name.removeprefix(head): value for name, value in scope.items() if name.startswith(head)}
            if named:
                keys.update(named)
            else:
                keys[server.model[place].lstrip("-")] = self.value(one, scope)
        for keyword in node.keywords:
            value = self.value(keyword.value, scope)
            if keyword.arg is not None:
                keys[keyword.arg] = value
            elif isinstance(value, dict):
                keys.update(value)
            else:
                rest.append(unknown(f"**{ast.unparse(keyword.value)}"))
        rest += [unknown(key) for key in keys if key.startswith("**")]
        plain = {key: _plain(one) for key, one in keys.items() if not key.startswith("**")}
        words = (*words_of_keys(plain), *rest)
        note = f"read as options of its server: {ast.unparse(node.func)} may have other defaults"
        return Begun(server, words, notes=(note,))

    def command(self, value: object, node: ast.Call | None, scope: dict[str, object]) -> None:
        """A list of words, or a text for a shell. node: the call that runs it."""
        keywords = [] if node is None else node.keywords
        environment = next((self.value(one.value, scope) for one in keywords if one.arg == "env"), None)
        known = (
            {str(key): _word(one) for key, one in environment.items()}
            if isinstance(environment, dict)
            else {}
        )
        if isinstance(value, Words):
            words = tuple(map(_word, value.words))
            others = tuple((condition, tuple(map(_word, more))) for condition, more in value.others)
            self.add(Begun(None, words, environment=known, others=others))
        elif isinstance(value, str):
            self.add(Begun(None, text=value, environment=known))

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
            if keyword.arg == "resources":
                self.resources(self.value(keyword.value, scope))
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

    def resources(self, given: object) -> None:
        """``@bentoml.service(resources={"gpu": 1, "gpu_type": "nvidia-a100-80gb"})``."""
        asked = given if isinstance(given, dict) else {}
        gpu = gpu_of_label(str(asked.get("gpu_type") or ""))
        count = count_of(asked.get("gpu"))
        if gpu is not None or count is not None:
            self.around = (gpu, count)

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
            return self.mapped(node, scope)
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

    def mapped(self, node: ast.Dict, scope: Mapping[str, object]) -> dict[str, object]:
        """A mapping with those that it spreads; one that is not known keeps its own text as a key."""
        found: dict[str, object] = {}
        for key, one in zip(node.keys, node.values, strict=True):
            value = self.value(one, scope)
            if key is not None:
                found[str(self.value(key, scope))] = value
            elif isinstance(value, dict):
                found.update(value)
            else:
                found[f"**{ast.unparse(one)}"] = value
        return found

    def item(self, node: ast.Subscript, scope: Mapping[str, object]) -> object:
        """One of a mapping or a list; of ``os.environ`` the value that is given."""
        held, key = self.value(node.value, scope), self.value(node.slice, scope)
        if ast.unparse(node.value) in ("os.environ", "environ") and (said := self.variable(str(key))):
            return said
        if isinstance(held, dict):
            return held.get(str(key), Open(ast.unparse(node)))
        if isinstance(held, Words) and isinstance(key, int) and -len(held.words) <= key < len(held.words):
            return held.words[key]
        return Open(ast.unparse(node))

    def variable(self, name: str) -> str | None:
        """A variable of the environment, as far as somebody says it."""
        found = self.environment.get(name)
        return value_of(name) if found is None else found

    def argument(self, node: ast.Call, scope: Mapping[str, object]) -> None:
        """The default of an option of argparse."""
        names = [one.value for one in node.args if isinstance(one, ast.Constant)]
        default = next((one.value for one in node.keywords if one.arg == "default"), None)
        if default is not None:
            value = self.value(default, scope)
            self.options.update((_plain_name(one), value) for one in names)
        given = next((self.arguments[one] for one in map(_plain_name, names) if one in self.arguments), None)
        if given is not None:
            self.options.update((_plain_name(one), given) for one in names)

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
            said = self.variable(str(given[0]))
            unset = given[1] if len(given) == 2 else Open(ast.unparse(node))
            return unset if said is None else said
        if name in ("str", "int", "float") and len(given) == 1:
            return given[0] if isinstance(given[0], Open) else _cast(name, given[0])
        held = self.held(node, name, given, scope)
        if held is not None:
            return held
        if given and name.endswith(_MODELS):
            return given[0]
        if name == "json.dumps" and given and isinstance(given[0], dict):
            return str(_plain(given[0]))
        if name.endswith(".Field"):
            return self.field(node, scope)
        if name.endswith(".lower") and isinstance(node.func, ast.Attribute):
            text = self.value(node.func.value, scope)
            return text.lower() if isinstance(text, str) else Open(ast.unparse(node))
        if len(given) == 1 and (name in _KEPT or (name.endswith(".join") and isinstance(given[0], Words))):
            return given[0]
        if name.endswith(".split") and not given and isinstance(node.func, ast.Attribute):
            return self.value(node.func.value, scope)
        return Open(ast.unparse(node))

    def field(self, node: ast.Call, scope: Mapping[str, object]) -> object:
        """The default of ``pydantic.Field(default=1)``, ``Field(default_factory=list)``."""
        for one in node.keywords:
            if one.arg == "default":
                return self.value(one.value, scope)
            if one.arg == "default_factory" and ast.unparse(one.value) in ("list", "dict"):
                return Words(()) if ast.unparse(one.value) == "list" else {}
        return Open(ast.unparse(node))

    def held(
        self, node: ast.Call, name: str, given: Sequence[object], scope: Mapping[str, object]
    ) -> dict[str, object] | None:
        """The keys of ``dict(OPTIONS, key=1)``, of an instance of a class here, of its ``model_dump()``; None
        of any other call."""
        if name == "dict" and all(isinstance(one, dict) for one in given):
            merged = {key: one for each in given if isinstance(each, dict) for key, one in each.items()}
            own = {one.arg: self.value(one.value, scope) for one in node.keywords if one.arg is not None}
            return {**merged, **own}
        if name in self.classes:
            return dict(self.classes[name])
        if name.endswith(".use_arguments") and node.args:
            return {**self.classes.get(ast.unparse(node.args[0]), {}), **self.fields}
        if name.endswith(_SAME) and isinstance(node.func, ast.Attribute):
            found = self.value(node.func.value, scope)
            return found if isinstance(found, dict) else None
        return None


def _new(inner: Mapping[str, object], scope: Mapping[str, object]) -> dict[str, object]:
    """The names that a block added or changed."""
    return {
        name: one for name, one in inner.items()
        if not name.startswith("self.") and (name not in scope or scope[name] is not one)
    }  # fmt: skip


def _held(value: object) -> object:
    """A value of a file as a value of Python's text."""
    return Words(tuple(value)) if isinstance(value, list) else value


def _plain_name(option: object) -> str:
    return str(option).lstrip("-").replace("-", "_")


def _pairs(words: Sequence[str]) -> Iterator[tuple[str, object]]:
    """(name, value) of options as argparse takes them; a switch is True."""
    for place, word in enumerate(words):
        if word.startswith("-"):
            name, equals, value = word.partition("=")
            after = words[place + 1] if place + 1 < len(words) else "-"
            yield _plain_name(name), value if equals else True if after.startswith("-") else after


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
