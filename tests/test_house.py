"""The house: imports run downward, the library is light, the version is one."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from bench.cold import MOST_MODULES, modules_of
from kvplan.engines import ENGINES
from kvplan.engines.folders import FOLDERS, part_of

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


def test_importing_the_library_is_light() -> None:
    """import kvplan reaches no terminal, no YAML, no pydantic, no torch."""
    heavy = "typer rich yaml pydantic torch transformers click huggingface_hub gguf numpy"
    code = f"import sys, kvplan; print([name for name in {heavy.split()!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(("question", "most"), MOST_MODULES.items())
def test_an_answer_reads_few_modules(question: tuple[str, ...], most: int) -> None:
    """What a question does not ask stays unread, and so do a terminal's libraries."""
    loaded = modules_of(question)
    own = [name for name in loaded if name.partition(".")[0] == "kvplan"]
    assert len(own) <= most, "\n".join(own)
    heavy = {"typer", "rich", "pydantic", "dataclasses", "inspect", "numpy", "torch"}
    assert heavy.isdisjoint(loaded)


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


NAMES = frozenset(ENGINES) - {"generic", "transformers"}
"""The names of engines that are no word of another meaning (a library's, an adjective)."""


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


CHOOSES_A_RELEASE = {
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
