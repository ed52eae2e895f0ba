"""The house: imports run downward, the library is light, the version is one."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from inspect import cleandoc
from pathlib import Path

import pytest

from bench.cold import MOST_MODULES, modules_of
from kvplan.engines import ENGINES
from kvplan.engines.folders import FOLDERS, part_of
from kvplan.engines.supported import CLASSES, read_rows
from kvplan.families import FAMILIES
from kvplan.families.base import Family

ROOT = Path(__file__).resolve().parents[1]


def test_import_contracts() -> None:
    linter = pytest.importorskip("importlinter.cli", reason="import-linter is not installed")
    assert linter.lint_imports(config_filename=str(ROOT / "pyproject.toml"), no_cache=True) == 0


def test_every_part_that_is_asked_for_by_name_exists() -> None:
    """A part that no engine has is None: a misspelt name would change answers in silence."""
    named = {
        call.args[-1].value
        for file in (ROOT / "kvplan").rglob("*.py")
        for call in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Name)
        and call.func.id in ("part_of", "having")
        and call.args
        and isinstance(call.args[-1], ast.Constant)
    }
    assert {"capacity_model", "log", "tensors"} <= named
    parts = {name for name in named if isinstance(name, str) and name not in ("audio", "lm_head")}
    assert [name for name in sorted(parts) if not any(part_of(engine, name) for engine in FOLDERS)] == []


def test_every_module_of_the_package_stands_in_the_layers() -> None:
    """A module that no layer names may import whatever it likes, unseen."""
    contracts = (ROOT / "pyproject.toml").read_text(encoding="utf-8").partition("\nlayers = [")[2]
    named = set(re.findall(r"kvplan\.(\w+)", contracts.partition("\n]")[0]))
    package = ROOT / "kvplan"
    rooms = {file.parent.name for file in package.glob("*/__init__.py")}
    modules = {file.stem for file in package.glob("*.py")} - {"__init__"}
    assert named == rooms | modules


CIRCLES = {
    # An engine's folder: a function reads the record of the file that calls it.
    ("kvplan.engines.vllm.start.draft_stages", "kvplan.engines.vllm.start.resolve"),
    ("kvplan.engines.vllm.cache_layout.older_block_sizes", "kvplan.engines.vllm.cache_layout.built_model"),
    ("kvplan.engines.vllm.cache_layout.side_by_side", "kvplan.engines.vllm.cache_layout.grouping"),
    ("kvplan.engines.vllm.memory.cuda_graphs", "kvplan.engines.vllm.memory.profile_run"),
    # The simulator's states know each other.
    ("kvplan.simulation.vllm.admission", "kvplan.simulation.vllm.scheduler"),
    ("kvplan.simulation.vllm.fast_forward", "kvplan.simulation.vllm.replica"),
    ("kvplan.simulation.vllm.replica", "kvplan.simulation.vllm.offload.replica"),
    ("kvplan.simulation.vllm.pool", "kvplan.simulation.vllm.request"),
    ("kvplan.simulation.vllm.decode_only", "kvplan.simulation.vllm.memory"),
    ("kvplan.simulation.trtllm.span", "kvplan.simulation.trtllm.request"),
}
"""Imports, put off until they are used or for types alone, without which no two modules need each other."""


def _imports() -> dict[str, set[str]]:
    """Module → the modules that it imports, at its top, inside functions and for types."""
    return {name: set(others) for name, others in _read_imports().items()}


@cache
def _read_imports() -> dict[str, set[str]]:
    files = {_module(file): file for file in (ROOT / "kvplan").rglob("*.py")}
    found: dict[str, set[str]] = {name: set() for name in files}
    for name, file in files.items():
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom):
                named = [f"{node.module}.{one.name}" for one in node.names]
                found[name] |= {one if one in files else str(node.module) for one in named} & files.keys()
            elif isinstance(node, ast.Import):
                found[name] |= {one.name for one in node.names} & files.keys()
    return found


def _module(file: Path) -> str:
    parts = file.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def test_no_two_modules_need_each_other() -> None:
    """An import inside a function, or for types alone, hides no circle but those that are named."""
    graph = _imports()
    for name, other in CIRCLES:
        graph[name].discard(other)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" → ".join(error.args[1]))


@pytest.mark.parametrize(("name", "other"), sorted(CIRCLES))
def test_a_circle_that_is_named_is_there(name: str, other: str) -> None:
    graph = _imports()
    assert other in graph[name]
    for one, another in CIRCLES - {(name, other)}:
        graph[one].discard(another)
    with pytest.raises(CycleError):
        TopologicalSorter(graph).prepare()


def test_importing_the_library_is_light() -> None:
    """import kvplan reaches no terminal, no YAML, no pydantic, no torch."""
    heavy = "typer rich yaml pydantic torch transformers click huggingface_hub gguf numpy"
    code = f"import sys, kvplan; print([name for name in {heavy.split()!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "[]"


MOST_COMPLEX = 5
"""Functions whose cyclomatic complexity is above 20 (D and worse, as radon counts): 20 are the aim."""
LONG = {"plan"}  # kvplan.plan: most of it parameters and what they mean
"""Functions over 60 lines that are left."""
Function = ast.FunctionDef | ast.AsyncFunctionDef


def _functions() -> Iterator[tuple[str, Function]]:
    """(file:line, function), those inside others too."""
    for file in (ROOT / "kvplan").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, Function):
                yield f"{file.relative_to(ROOT)}:{node.lineno} {node.name}", node


def _own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    """What stands in a function, without the functions inside it."""
    for node in ast.iter_child_nodes(function):
        if not isinstance(node, Function):
            yield node
            yield from _own_nodes(node)


def _complexity(function: Function) -> int:
    total = 1
    for node in _own_nodes(function):
        if isinstance(node, ast.If | ast.IfExp | ast.Assert):
            total += 1
        elif isinstance(node, ast.For | ast.While | ast.AsyncFor):
            total += 1 + bool(node.orelse)
        elif isinstance(node, ast.Try):
            total += len(node.handlers) + bool(node.orelse)
        elif isinstance(node, ast.BoolOp):
            total += len(node.values) - 1
        elif isinstance(node, ast.comprehension):
            total += 1 + len(node.ifs)
    return total


def test_functions_are_short() -> None:
    long = [(place, node.name) for place, node in _functions() if (node.end_lineno or 0) - node.lineno >= 60]
    assert [place for place, name in long if name not in LONG] == []
    assert {name for _, name in long} == LONG


def test_few_functions_are_complex() -> None:
    found = sorted(place for place, node in _functions() if _complexity(node) > 20)
    assert len(found) <= MOST_COMPLEX, "\n".join(found)


@pytest.mark.parametrize(("question", "most"), MOST_MODULES.items())
def test_an_answer_reads_few_modules(question: tuple[str, ...], most: int) -> None:
    """What a question does not ask stays unread, and so do a terminal's libraries."""
    loaded = modules_of(question)
    own = [name for name in loaded if name.partition(".")[0] == "kvplan"]
    assert len(own) <= most, "\n".join(own)
    heavy = {"typer", "rich", "pydantic", "dataclasses", "inspect", "numpy", "torch", "yaml", "tree_sitter"}
    heavy |= {"asyncio", "datetime", "email", "hashlib", "http", "importlib.metadata", "logging", "random"}
    heavy |= {"socket", "ssl", "subprocess", "tempfile", "threading", "tokenize", "urllib.request", "weakref"}
    assert heavy.isdisjoint(loaded)


def test_nothing_is_compiled_while_modules_are_read() -> None:
    """`later.regex` compiles an expression when it is first used, `named.NamedTuple` a constructor when there
    are many values; a subprocess's worker, which runs where kvplan may not be, has neither."""
    found = []
    for file, tree in _trees().items():
        if "workers" in Path(file).parts or Path(file).name == "named.py":
            continue
        inside = {
            id(node)
            for function in ast.walk(tree)
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            for node in ast.walk(function)
        }
        found += [
            f"{file}:{node.lineno}"
            for node in ast.walk(tree)
            if (
                isinstance(node, ast.Call)
                and ast.unparse(node.func) == "re.compile"
                and id(node) not in inside
            )
            or (isinstance(node, ast.ImportFrom) and node.module == "typing" and "NamedTuple" in _names(node))
            or (isinstance(node, ast.ImportFrom) and node.module == "re" and Path(file).name != "later.py")
        ]
    assert found == []


def _names(node: ast.ImportFrom) -> set[str]:
    return {one.name for one in node.names}


def test_what_is_read_later_is_what_type_checkers_read() -> None:
    """``later(package, names)`` beside the same imports under TYPE_CHECKING, name by name."""
    seen = 0
    for file in (ROOT / "kvplan").rglob("*.py"):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        for branch in (node for node in tree.body if isinstance(node, ast.If) and node.orelse):
            late = {name for node in branch.orelse for name in _read_later(node)}
            if not late:
                continue
            imports = [node for node in branch.body if isinstance(node, ast.ImportFrom)]
            named = {
                (one.asname or one.name, f"{node.module}.{one.name}")
                for node in imports
                for one in node.names
            }
            assert late <= named, file
            seen += len(late)
    assert seen > 50


def _read_later(node: ast.stmt) -> list[tuple[str, str]]:
    """(name, module) of one assignment from ``later``."""
    if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call):
        return []
    call, target = node.value, node.targets[0]
    if not isinstance(call.func, ast.Name) or call.func.id != "later":
        return []
    names = target.elts if isinstance(target, ast.Tuple) else [target]
    package, modules = (str(one.value) for one in call.args if isinstance(one, ast.Constant))
    pairs = zip(names, modules.split(), strict=True)
    return [(name.id, f"{package}.{module}") for name, module in pairs if isinstance(name, ast.Name)]


def test_everything_public_is_there() -> None:
    import kvplan

    for name in kvplan.__all__:
        assert getattr(kvplan, name) is not None
    with pytest.raises(AttributeError):
        _ = kvplan.no_such_name


NAMES = frozenset(ENGINES) - {"generic", "transformers", "mlx"}
"""The names of engines that are no word of another meaning (a library's, an adjective, a format's)."""


def _constants(file: Path, kind: type[ast.AST]) -> list[str]:
    """Places of a file where an engine's name stands in a node of this kind (itself, or what it compares)."""
    found = []
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if not isinstance(node, kind):
            continue
        inside = [node] if isinstance(node, ast.Constant) else list(ast.walk(node))
        if any(isinstance(one, ast.Constant) and one.value in NAMES for one in inside):
            found.append(f"{file.relative_to(ROOT)}:{node.lineno}")  # type: ignore[attr-defined]
    return found


def test_no_room_but_engines_says_an_engine_s_name() -> None:
    """Neutral rooms ask an engine's traits and parts; a difference of one engine stands in its folder."""
    package = ROOT / "kvplan"
    files = [file for file in package.rglob("*.py") if not file.is_relative_to(package / "engines")]
    assert len(files) > 300
    assert [place for file in files for place in _constants(file, ast.Constant)] == []


def test_the_shared_files_of_engines_compare_no_engine_s_name() -> None:
    """Lists of engines stand there (which have a folder, which is the default); branches do not."""
    engines = ROOT / "kvplan" / "engines"
    files = [file for file in engines.rglob("*.py") if file.relative_to(engines).parts[0] not in FOLDERS]
    assert [place for file in files for place in _constants(file, ast.Compare)] == []


@pytest.mark.parametrize("engine", FOLDERS)
def test_an_engine_s_folder_has_the_same_names_inside(engine: str) -> None:
    for part in ("engine", "budget", "flags", "command", "options", "traits", "log", "printed", "tensors"):
        assert part_of(engine, part) is not None, part
    assert part_of(engine, "no_such_part") is None


_TABLES = {engine: f"kvplan/engines/{engine}/data/classes.json" for engine in ("sglang", "vllm")}
"""The table of an engine's classes."""
_ELSEWHERE = {"llamacpp": 0, "sglang": 2, "trtllm": 5, "vllm": 0}
"""Classes that one file of the engine's folder besides the table names: SGLang's are model types too."""
_REMOTE = {"LLaDAModelLM"}
"""Classes of repositories' own code."""


def _registered(engine: str) -> set[str]:
    return {row.name for row in read_rows(CLASSES.read_text(encoding="utf-8")) if row.engine == engine}


@pytest.mark.parametrize("engine", _ELSEWHERE)
def test_what_is_known_of_a_class_is_one_row(engine: str) -> None:
    """No file of the engine's names a class, but for prose and for what scripts write."""
    registered, places = _registered(engine), dict[str, set[str]]()
    for file in (ROOT / "kvplan" / "engines" / engine).rglob("*.py"):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose:
                for name in registered.intersection(re.findall(r"\w+", node.value)):
                    places.setdefault(name, set()).add(str(file.relative_to(ROOT)))
    assert not {name: files for name, files in places.items() if len(files) > 1}
    assert len(places) <= _ELSEWHERE[engine], places


@pytest.mark.parametrize("engine", _TABLES)
def test_a_row_is_a_class_of_some_release(engine: str) -> None:
    rows = json.loads((ROOT / _TABLES[engine]).read_text(encoding="utf-8"))
    assert list(rows) == sorted(rows)
    named = {row.get("registered_as", row.get("built_as", name)) for name, row in rows.items()}
    assert named - _registered(engine) <= _REMOTE


ONE_FAMILY = {
    "engines/tgi/engine.py FullAttention SlidingWindow": "the only families that its pool has",
    "engines/vllm/cache_layout/built_model.py WindowedConvolution": "a window to an allocator, no attention",
    "engines/vllm/memory/state_graphs.py LightningAttention": "its kernel decodes one token at a time",
    "engines/vllm/refusals/classes.py WindowedConvolution": "kept in one dtype, divided by whole heads",
    "engines/vllm/refusals/division.py Mamba2": "its groups divide otherwise than its heads",
    "engines/vllm/start/architectures.py KvConvolution": "Inkling is known by it, and built anew",
    "engines/vllm/start/architectures.py NgramEmbedding": "its tables have rules of their own",
    "engines/vllm/start/resolve.py GatedDeltaNet": "a release ignored the dtype asked for its state",
    "engines/vllm/start/resolve.py KimiDeltaAttention": "its state is fp32 whatever else the model has",
}
"""Files outside families and architectures that ask for the class of a part, and why no kind, property or
table by family (docs/adr/0001-terms.md) says it there. A ratchet: it grows no more."""


def test_engines_look_a_family_up_in_a_table() -> None:
    """A ladder of ``isinstance`` hides what an engine does with a family, and forgets the next one."""
    package, names = ROOT / "kvplan", {family.__name__ for family in FAMILIES.values()}
    found = []
    for file in package.rglob("*.py"):
        place = file.relative_to(package)
        if place.parts[0] in ("families", "architectures"):
            continue
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            asks = isinstance(node, ast.Call) and ast.unparse(node.func) == "isinstance"
            if asks or isinstance(node, ast.Compare):
                asked = names & {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
                found += [" ".join((place.as_posix(), *sorted(asked)))] * bool(asked)
    assert set(found) == set(ONE_FAMILY)
    assert len(found) <= 10


def test_a_family_is_found_by_its_own_class() -> None:
    """Tables are keyed by class: a family that inherited from another would miss its rows."""
    assert {family.__bases__ for family in FAMILIES.values()} == {(Family,)}


CHOOSES_A_RELEASE = {
    "kvplan/planning/speed/build.py": "which of a table's constants an engine of that age has",
    "kvplan/engines/release_rules.py": "the reader of the tables",
    "kvplan/engines/__init__.py": "which known release stands for one that was asked for",
    "kvplan/comparison/recognise.py": "which known release stands for one that a log prints",
    "kvplan/simulation/served.py": "whether a release is newer than every one whose scheduler was asked",
    "kvplan/files/gguf/file.py": "the version of a file's format, which is no release",
}
"""Files that may compare releases: no rule of one is in them."""
ORDERED = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)


def _is_release(node: ast.AST, known: set[str]) -> bool:
    """Numbers like (0, 27), a version that was parsed, or a name of one."""
    if isinstance(node, ast.Subscript):
        return _is_release(node.value, known)
    if isinstance(node, ast.Tuple):
        numbers = [one.value for one in node.elts if isinstance(one, ast.Constant)]
        return len(numbers) == len(node.elts) > 1 and numbers[0] == 0 and any(numbers)
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id == "parse_version"
    name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
    return name in known


def _compared_releases(source: str) -> list[int]:
    """Lines on which releases are put in order."""
    tree, known = ast.parse(source), {"release", "version"}
    for node in ast.walk(tree):
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        value = getattr(node, "value", None)
        for target in targets:
            pairs = [(target, value)]
            if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
                pairs = list(zip(target.elts, value.elts, strict=False))
            known |= {
                a.id for a, b in pairs if isinstance(a, ast.Name) and b is not None and _is_release(b, set())
            }
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.expr) and (_orders(node, known) or _asks_of_one(node))
    ]


def _orders(node: ast.AST, known: set[str]) -> bool:
    """A comparison of a release."""
    if not isinstance(node, ast.Compare) or not any(isinstance(one, ORDERED) for one in node.ops):
        return False
    return any(_is_release(one, known) for one in (node.left, *node.comparators))


def _asks_of_one(node: ast.AST) -> bool:
    """``reached(version, "0.27")``: a rule that is no row."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        return False
    written = any(isinstance(one, ast.Constant) and one.value for one in node.args)
    return node.func.id in ("reached", "within", "through") and written


def test_a_rule_of_a_release_is_a_row() -> None:
    """Nothing but the reader of the tables puts releases in order."""
    found = {
        f"{file.relative_to(ROOT)}": lines
        for file in (ROOT / "kvplan").rglob("*.py")
        if (lines := _compared_releases(file.read_text(encoding="utf-8")))
    }
    assert {name: lines for name, lines in found.items() if name not in CHOOSES_A_RELEASE} == {}
    assert found.keys() == CHOOSES_A_RELEASE.keys()


@pytest.mark.parametrize(
    "source",
    [
        "if release < (0, 27): pass",
        "_SINCE = (0, 27)\nif asked >= _SINCE: pass",
        "_A, _B = (0, 27), 5\nif _A <= x: pass",
        "if parse_version(v)[:2] < FIRST: pass",
        "now = parse_version(v)[:2]\nif now > x: pass",
        "if asked.release >= x: pass",
        "if reached(version, '0.27'): pass",
    ],
)
def test_a_compared_release_is_seen(source: str) -> None:
    assert _compared_releases(source)
    assert not _compared_releases("if capability >= (8, 9) or release == '0.20': pass")


_MOST_ANY = 690
"""Uses of ``Any`` in the package: a new one takes the place of an old one."""


def _trees() -> dict[str, ast.Module]:
    package = ROOT / "kvplan"
    return {str(file): ast.parse(file.read_text(encoding="utf-8")) for file in package.rglob("*.py")}


def _docstrings() -> Iterator[tuple[str, str, str]]:
    """File, name of what holds it and text of every docstring, those below fields and constants too."""
    for file, tree in _trees().items():
        for holder in ast.walk(tree):
            if isinstance(holder, (ast.Module, ast.ClassDef, ast.FunctionDef)):
                for node in holder.body:
                    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                        yield file, getattr(holder, "name", ""), cleandoc(str(node.value.value))


def test_docstrings_say_what_a_thing_is() -> None:
    """``Bytes that …``, not ``What … takes``: the way a native engineer would begin."""
    assert [text for text in _docstrings() if text[2].startswith("What ")] == []


LISTS_ARGUMENTS = frozenset("check check_paths compare fits plan quality simulate size".split())
"""Public functions whose docstring says what each argument is."""


def test_docstrings_are_short() -> None:
    """A page above a file hides what the file is about: a fact stands at the line that it explains."""
    long = {(Path(file), name) for file, name, text in _docstrings() if len(text) > 600}
    unnamed = [file.relative_to(ROOT).as_posix() for file, name in long if name not in LISTS_ARGUMENTS]
    assert sorted(set(unnamed)) == []
    assert {name for _, name in long if name} == LISTS_ARGUMENTS


def test_types_are_said() -> None:
    used = sum(
        isinstance(node, ast.Name) and node.id == "Any"
        for tree in _trees().values()
        for node in ast.walk(tree)
    )
    assert used <= _MOST_ANY
