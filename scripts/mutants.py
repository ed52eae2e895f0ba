"""Would a test notice? Mutants of the arithmetic that decides answers, each run against its module's tests.

    python -m scripts.mutants                         every module; exits 1 where too few are killed
    python -m scripts.mutants --only grouping --all   one module, every place instead of a sample

A mutant is the module with one operator, comparison, constant or min/max changed. It lives in a process of
its own: the module is compiled from the changed source as it is imported, no file is touched. Those that no
test tells apart are printed with their line: a test is missing, or the change makes no difference.
"""

from __future__ import annotations

import argparse
import ast
import copy
import importlib.abc
import importlib.util
import os
import random
import resource
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
_GROUPING = tuple(
    f"tests/engines/test_vllm_{name}.py"
    for name in "grouping rules recorded releases drafts corners state_graphs releases_shared random".split()
)
_POOLS = tuple(
    f"tests/engines/test_sglang{name}.py"
    for name in ("_pools", "", "_older", "_speculation", "_corners", "_recorded", "_random", "_releases")
)
_FAMILIES = tuple(f"tests/core/test_{name}.py" for name in ("published", "terms", "beside"))
_COUNTS = ("tests/deployment/test_counts.py", "tests/deployment/test_counts_by_law.py")
_SEARCH = tuple(
    f"tests/planning/test_{name}.py" for name in "search_bounds search slots pools sharing".split()
)
PLACES = {
    "kvplan/terms.py": _FAMILIES,
    "kvplan/families": _FAMILIES,
    "kvplan/bisection.py": ("tests/core/test_bisection.py",),
    "kvplan/engines/vllm/cache_layout/grouping.py": _GROUPING,
    "kvplan/engines/vllm/cache_layout/side_by_side.py": (
        "tests/engines/test_vllm_side_by_side.py",
        *_GROUPING,
        "tests/engines/test_vllm_own.py",
    ),
    "kvplan/engines/sglang/cache_layout/pools.py": _POOLS,
    "kvplan/deployment/counts.py": (*_COUNTS, "tests/laws/test_auto_length.py"),
    "kvplan/deployment/held.py": ("tests/deployment/test_held.py", "tests/deployment/test_fixes.py"),
    "kvplan/deployment/lengths.py": ("tests/deployment/test_lengths.py", "tests/laws/test_auto_length.py"),
    "kvplan/deployment/resolve.py": ("tests/deployment/test_resolve.py",),
    "kvplan/deployment/answer.py": ("tests/deployment/test_verdicts.py", *_COUNTS),
    "kvplan/deployment/gpus.py": ("tests/deployment/test_gpus.py",),
    "kvplan/deployment/fixes.py": (
        "tests/deployment/test_fixes.py",
        "tests/deployment/test_fixes_of_vllm.py",
    ),
    "kvplan/checking/rules.py": ("tests/checking/test_rules.py", "tests/checking/test_check.py"),
    "kvplan/planning/search.py": _SEARCH,
}
"""A module's file, or a folder for all modules in it → the tests that hold it, the quickest first."""


def _files(place: str) -> list[Path]:
    path = ROOT / place
    return sorted(set(path.glob("*.py")) - {path / "__init__.py"}) if path.is_dir() else [path]


TESTS = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): tests
    for place, tests in PLACES.items()
    for path in _files(place)
}
WANTED_PERCENT = 85
SAMPLE, SEED = 40, 20261122
LONGEST_SECONDS = 120
"""Of processor time: a mutant that makes a loop endless is noticed."""

SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult, ast.Mod: ast.FloorDiv,
    ast.Div: ast.Mult, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
    ast.And: ast.Or, ast.Or: ast.And, ast.BitOr: ast.BitAnd, ast.BitAnd: ast.BitOr,
}  # fmt: skip
NAMES = {
    "min": "max",
    "max": "min",
    "any": "all",
    "all": "any",
    "ceil_div": "round_up",
    "round_up": "ceil_div",
}


class Mutant(NamedTuple):
    """One change of a module: where, what, and the source that has it."""

    module: str
    line: int
    change: str
    source: str

    def __str__(self) -> str:
        return f"{self.module}:{self.line}: {self.change}"


def mutants(module: str) -> list[Mutant]:
    """Every mutant of a module, in the order of its lines."""
    tree = ast.parse(path_of(module).read_text(encoding="utf-8"))
    found = []
    for node in list(_nodes(tree)):
        for variant in range(_variants(node)):
            before, own = ast.unparse(node), vars(node).copy()
            vars(node).update(copy.deepcopy(own))  # what is changed is a copy
            _change(node, variant)
            line: int = getattr(node, "lineno", 0)
            found.append(Mutant(module, line, f"{before} -> {ast.unparse(node)}", ast.unparse(tree)))
            vars(node).update(own)
    return sorted(found, key=lambda one: one.line)


def path_of(module: str) -> Path:
    """The file of a module, or of a package."""
    place = ROOT / module.replace(".", "/")
    return place / "__init__.py" if place.is_dir() else place.with_suffix(".py")


def _nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """What runs: no annotations, texts, decorators or error messages."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.JoinedStr | ast.Raise | ast.Assert):
            continue
        if isinstance(tree, ast.AnnAssign | ast.arg) and child is tree.annotation:
            continue
        if isinstance(tree, ast.FunctionDef) and (child is tree.returns or child in tree.decorator_list):
            continue
        yield child
        yield from _nodes(child)


def _variants(node: ast.AST) -> int:
    """How many ways a node can be changed."""
    if isinstance(node, ast.Constant):
        return int(isinstance(node.value, int))
    if isinstance(node, ast.BinOp | ast.BoolOp):
        return int(type(node.op) in SWAPS)
    if isinstance(node, ast.Compare):
        return int(type(node.ops[0]) in SWAPS)
    if isinstance(node, ast.UnaryOp):
        return int(isinstance(node.op, ast.Not))
    if isinstance(node, ast.Call):
        return int(isinstance(node.func, ast.Name) and node.func.id in NAMES)
    return 0


def _change(node: ast.AST, variant: int) -> None:
    if isinstance(node, ast.Constant):
        node.value = not node.value if isinstance(node.value, bool) else int(str(node.value)) + 1
    elif isinstance(node, ast.BinOp | ast.BoolOp):
        node.op = SWAPS[type(node.op)]()  # type: ignore[assignment]
    elif isinstance(node, ast.Compare):
        node.ops[0] = SWAPS[type(node.ops[0])]()  # type: ignore[call-overload]
    elif isinstance(node, ast.UnaryOp):
        node.op = ast.UAdd()
        node.operand = ast.Call(ast.Name("bool", ast.Load()), [node.operand], [])
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        node.func.id = NAMES[node.func.id]


class _Changed(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports one module from another source."""

    def __init__(self, mutant: Mutant) -> None:
        self.mutant = mutant

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != self.mutant.module:
            return None
        place = path_of(name)
        inside = [str(place.parent)] if place.name == "__init__.py" else None
        return importlib.util.spec_from_file_location(
            name, place, loader=self, submodule_search_locations=inside
        )

    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        exec(compile(self.mutant.source, str(path_of(self.mutant.module)), "exec"), vars(module))


def passes(mutant: Mutant, tests: Sequence[str]) -> bool:
    """Whether the tests pass with the mutant, so that nobody noticed."""
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_CPU, (LONGEST_SECONDS, LONGEST_SECONDS))
        silent = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silent, 1)
        os.dup2(silent, 2)
        sys.meta_path.insert(0, _Changed(mutant))
        code: int = 1
        with suppress(BaseException):
            import pytest

            code = int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *tests]))
        os._exit(min(code, 1))
    _, status = os.waitpid(child, 0)
    return status == 0


def chosen(module: str, *, every: bool) -> list[Mutant]:
    """All of a module's mutants, or a sample that is the same each time."""
    found = mutants(module)
    if every or len(found) <= SAMPLE:
        return found
    return sorted(random.Random(SEED).sample(found, SAMPLE), key=lambda one: one.line)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", default="", help="modules whose name contains this")
    parser.add_argument("--all", action="store_true", help="every place, not a sample")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    import hypothesis  # noqa: F401 - loaded once, for every mutant
    import pytest  # noqa: F401

    too_few = False
    for module, tests in TESTS.items():
        if options.only not in module:
            continue
        asked = chosen(module, every=options.all)
        if not passes(Mutant(module, 0, "nothing", path_of(module).read_text(encoding="utf-8")), tests):
            print(f"{module}: its tests fail without a mutant")
            too_few = True
            continue
        with ThreadPoolExecutor(options.jobs) as pool:
            alive = list(pool.map(partial(passes, tests=tests), asked))
        lived = [one for one, lives in zip(asked, alive, strict=True) if lives]
        killed = len(asked) - len(lived)
        too_few |= 100 * killed < WANTED_PERCENT * len(asked)
        print(f"{module}: {killed} of {len(asked)} killed ({100 * killed // len(asked)} %)", flush=True)
        for one in lived:
            print(f"  alive  {one}")
    return int(too_few)


if __name__ == "__main__":
    raise SystemExit(main())
