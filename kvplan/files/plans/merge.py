"""Plans that extend plans: mappings merge key by key, null removes, and every value remembers its own file.

The result is one `Located` whose spans know the text that they stand in, so that a complaint about a merged
plan points into the file where the value was written.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from kvplan.errors import KvplanError, Mark
from kvplan.files.folders import is_file
from kvplan.files.json_input import read_limited
from kvplan.files.yaml.marks import Key, Located, Node, Source, Span
from kvplan.files.yaml.strict import MAX_BYTES, load_yaml_documents
from kvplan.masking import remember
from kvplan.record import record

MAX_BASES = 16
EXTENDS = "extends"
_OWN = (EXTENDS, "name")
"""Keys of a base that its plans do not take over."""


@record()
class FileSource(Source):
    """A text, and the folder against which the paths in it are meant."""

    directory: Path


@record()
class PlacedSpan(Span):
    """A stretch of a text that knows which text."""

    source: FileSource


@record()
class MergedSource(Source):
    """Several texts: each span stands in its own. ``name`` is the plan's file."""

    def place(self, span: Span) -> Mark:
        if isinstance(span, PlacedSpan):
            return span.source.place(span)
        return Mark(self.name, 1, 1, 1)


Bring = Callable[[Path], None]
"""Called before a file is opened; a checkout that is not on the disk puts it there."""


def nothing(_: Path) -> None:
    """Every file is where it is named."""


class Files:
    """The plan files of one run, each read once. bring: see `Bring`."""

    def __init__(self, bring: Bring = nothing) -> None:
        self.bring = bring
        self._documents: dict[Path, list[Located]] = {}

    def documents(self, path: Path, shown: str) -> list[Located]:
        """The documents of a file, with placed spans. Raises KvplanError as `load_yaml_documents` does."""
        if path not in self._documents:
            self.bring(path)
            self._documents[path] = documents_of(read_limited(path, MAX_BYTES), shown, path.parent)
        return self._documents[path]

    def merged(self, document: Located, path: Path) -> tuple[Located, tuple[Path, ...]]:
        """A document over its bases, and the bases' files.

        Raises KvplanError: ``bad-extends`` for a cycle, too many bases, several documents in one, a file
        that is not there; what reading it raises.
        """
        chain: list[tuple[Located, Path]] = [(document, path.resolve())]
        while True:
            top, _ = chain[-1]
            data = top.mapping("a plan")
            wanted = data.get(EXTENDS)
            if wanted is None:
                break
            chain.append(self._base(top, wanted, [entry[1] for entry in chain]))
        result, node = chain[-1][0].data, chain[-1][0].root
        for over, _ in reversed(chain[:-1]):
            kept = {key: value for key, value in result.items() if key not in _OWN}
            result, node = merge(kept, node, over.data, over.root)
        source = MergedSource(document.name, "")
        return Located(without_nulls(result), node, source), tuple(entry[1] for entry in chain[1:])

    def _base(self, top: Located, wanted: object, chain: list[Path]) -> tuple[Located, Path]:
        def wrong(message: str, *helps: str) -> KvplanError:
            return top.error("bad-extends", message, (EXTENDS,), help=helps)

        if not isinstance(wanted, str) or not wanted.strip():
            raise wrong("`extends` names one file", "extends: base.yaml")
        directory = directory_of(top.root)
        path = directory / wanted
        self.bring(path)
        try:
            resolved = path.resolve()
            there = is_file(path)
        except (OSError, ValueError, RuntimeError):
            resolved, there = path, False
        if not there:
            raise wrong(f"there is no file {wanted} beside this one")
        if resolved in chain:
            raise wrong(f"{wanted} extends this plan: they go round in a circle")
        if len(chain) > MAX_BASES:
            raise wrong(f"more than {MAX_BASES} bases, one on the other")
        documents = self.documents(path, str(path))
        if len(documents) != 1:
            raise wrong(f"{wanted} holds {len(documents)} documents; a base is one")
        documents[0].mapping("a base plan")
        return documents[0], resolved


def documents_of(content: bytes | str, shown: str, directory: Path) -> list[Located]:
    """The documents of a text, with placed spans."""
    remember(content if isinstance(content, str) else content.decode("utf-8", "replace"))
    found = load_yaml_documents(content, name=shown)
    if not found:
        return []
    source = FileSource(shown, found[0].source.text, directory)
    return [Located(one.data, placed(one.root, source), source) for one in found]


def placed(node: Node, source: FileSource) -> Node:
    """The same positions, each with its text. Depth is bounded by the YAML reader."""

    def at(span: Span) -> PlacedSpan:
        return PlacedSpan(span.line, span.column, span.end_line, span.end_column, source)

    keys: dict[Key, Span] = {key: at(span) for key, span in node.keys.items()}
    children = {key: placed(child, source) for key, child in node.children.items()}
    return Node(at(node.span), node.text, keys, children)


def directory_of(node: Node) -> Path:
    """The folder of the file that a value was written in."""
    return node.span.source.directory if isinstance(node.span, PlacedSpan) else Path()


def merge(base: object, base_node: Node, over: object, over_node: Node) -> tuple[object, Node]:
    """``over`` on ``base``: mappings key by key, everything else as in ``over``; null removes the key."""
    if not isinstance(base, dict) or not isinstance(over, dict):
        return over, over_node
    data = dict(base)
    keys = {key: span for key, span in base_node.keys.items() if key in data}
    children = {key: child for key, child in base_node.children.items() if key in data}
    for key, value in over.items():
        node = over_node.children[key]
        if value is None:
            for held in (data, keys, children):
                held.pop(key, None)
            continue
        if key in data:
            data[key], children[key] = merge(data[key], children[key], value, node)
        else:
            data[key], children[key] = value, node
        keys[key] = over_node.keys[key]
    return data, Node(over_node.span, None, keys, children)


def without_nulls(data: object) -> object:
    """Mappings without the keys whose value is null: nothing was said of them."""
    if not isinstance(data, dict):
        return data
    return {key: without_nulls(value) for key, value in data.items() if value is not None}
