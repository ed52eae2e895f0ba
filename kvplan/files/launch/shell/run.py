"""The commands that a script comes to, in its order; nothing of it is run.

A branch whose condition the script does not decide is read both ways: it goes on as the way that is usual
(a variable that it does not set is taken as empty, as ``${X:-…}`` does), and what the other way would have
made of a command is kept beside it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from kvplan.errors import KvplanError
from kvplan.files.launch.given import value_of
from kvplan.files.launch.shell.conditions import UNKNOWN, Truth, both, truth
from kvplan.files.launch.shell.expand import Expander, printed
from kvplan.files.launch.shell.grammar import broken_lines, named, parse, plain_words, text_of
from kvplan.files.launch.shell.state import State, Variable, Words
from kvplan.files.launch.unknown import is_open, shown, unknown, unknowns, without
from kvplan.later import regex
from kvplan.named import NamedTuple

if TYPE_CHECKING:
    from tree_sitter import Node

SHELLS = ("sh", "bash", "zsh", "dash", "ash")
_TOLD = regex(r"-[a-z]*c[a-z]*")
_MOST_COMMANDS = 20_000
_MOST_TEXT = 100_000
"""Signs of one variable."""
_DEPTH = 12
_PYTHON = regex(r"python(\d(\.\d+)?)?", re.ASCII)
_MOST_BEFORE = 8
"""Words of a wrapper before the program that it starts."""
_ENTRY = regex(r"\[(.*?)\]=(.*)", re.DOTALL)
"""One of an array with keys."""
_NONE = Variable(())
_DECLARE = ("export", "declare", "local", "readonly", "typeset")


class Call(NamedTuple):
    """A command with its arguments. others: its words and variables where a condition is otherwise.
    arms: the branches that it stands in, (the place of the branch, the arm's condition). stdin: the text that
    it is given. missing: files that the script takes variables from and that are not here."""

    words: Words
    environment: Mapping[str, str]
    others: tuple[tuple[str, Words, Mapping[str, str]], ...] = ()
    arms: tuple[tuple[int, str], ...] = ()
    stdin: str | None = None
    missing: tuple[str, ...] = ()
    open: bool = False
    """a word of it stands in a branch alone"""
    aside: bool = False
    """the script goes on while it runs (``&``)"""


Beside = Callable[[str], "str | None"]
"""The text of a file beside the script, by its path."""


class Reading(NamedTuple):
    """A script that was read. files: that it writes, by path. broken: lines that are no shell."""

    calls: Sequence[Call]
    files: Mapping[str, str]
    started: frozenset[str]
    """those of the files that it starts or reads"""
    broken: Sequence[int]


def read(
    text: str, environment: Mapping[str, str], *, beside: Beside, script: str = "script",
    arguments: Words | None = None,
) -> Reading:  # fmt: skip
    """The commands of a script. arguments: as it is given, None where nobody says."""
    state = State(environment, script)
    state.arguments = arguments
    runner = _Runner(beside)
    words = plain_words(text)
    if words is not None:
        runner.command(words, state, state, {}, None, None)
        return Reading(runner.found, state.files, frozenset(runner.read), [])
    root = parse(text)
    try:
        runner.block(named(root), state)
        if not runner.found:  # a library of functions
            for body in list(state.functions.values()):
                runner.block([body], state.copy())
    except RecursionError:
        raise KvplanError("bad-command", "this is no command line: it nests too deep") from None
    return Reading(runner.found, state.files, frozenset(runner.read), broken_lines(root))


def expanded(word: str, known: Mapping[str, str]) -> str:
    """A word with the variables that are known."""
    if not set("$`\\") & set(word):
        return word
    runner, mark = _Runner(lambda path: None), "END_OF_A_WORD"
    (node,) = named(parse(f"cat <<{mark}\n{word}\n{mark}\n"))[:1]
    redirect = next(iter(node.children_by_field_name("redirect")), None)
    if redirect is None:
        return word
    return _heredoc(redirect, runner.expander(State(known))).removesuffix("\n")


class _Runner:
    def __init__(self, beside: Beside) -> None:
        self.beside = beside
        self.found: list[Call] = []
        self.arms: tuple[tuple[int, str], ...] = ()
        self.left = _MOST_COMMANDS
        self.depth = 0
        self.read: set[str] = set()
        self.aside = False

    def block(self, nodes: Sequence[Node], state: State) -> None:
        for node in nodes:
            if state.ended:
                return
            self.statement(node, state)

    def statement(self, node: Node, state: State, stdin: str | None = None) -> None:
        self.left -= 1
        if self.left < 0:
            return
        before = self.aside
        self.aside = before or (node.next_sibling is not None and node.next_sibling.type == "&")
        reader = getattr(self, f"_{node.type}", None)
        if reader is not None:
            reader(node, state, stdin)
        elif node.type not in ("comment", "word", "number", "string"):
            self.block(named(node), state)
        self.aside = before

    # Commands

    def _command(self, node: Node, state: State, stdin: str | None = None) -> None:
        state_of_it, assigned = state, []
        expander = self.expander(state)
        for child in named(node):
            if child.type == "variable_assignment":
                assigned.append(child)
            elif child.type == "herestring_redirect":
                stdin = expander.text(named(child)[-1])
        words = self._words(node, expander)
        if assigned:
            state_of_it = state if not words else state.copy()
            for one in assigned:
                name = self.assign(one, state_of_it)
                if words:
                    state_of_it.exported.add(name)
        if words:
            self.command(words, state, state_of_it, expander.used, node, stdin)

    def _words(self, node: Node, expander: Expander) -> list[str]:
        skipped = ("variable_assignment", "herestring_redirect", "file_redirect", "heredoc_redirect")
        return [word for one in named(node) if one.type not in skipped for word in expander.fields(one)]

    def command(
        self, words: list[str], state: State, own: State, used: Mapping[str, None], node: Node | None,
        stdin: str | None,
    ) -> None:  # fmt: skip
        """node: of the command, None where it is words alone."""
        name = words[0]
        if name in state.functions and self.depth < _DEPTH:
            self.function(name, words[1:], state, own)
            return
        builtin = _BUILTINS.get(name)
        if builtin is not None:
            builtin(self, words, state)
            return
        if self.script(words, state, own, stdin):
            return
        labels = dict.fromkeys(used)
        for exported in own.exported & own.variables.keys():
            labels.update(dict.fromkeys(own.variables[exported].others))
        others = []
        for label in labels:
            assert node is not None  # words alone use no variable
            other, variables = self._words(node, self.expander(own, label)), own.environment(label)
            if other != words or variables != own.environment():
                others.append((own.told(label), tuple(other), variables))
        only_in_a_branch = any(
            variable.words is None and used.keys() & variable.others.keys()
            for variable in own.variables.values()
        )
        self.found.append(
            Call(tuple(words), own.environment(), tuple(others), self.arms,
                 self.given(words, state, stdin), tuple(state.missing), only_in_a_branch, self.aside)
        )  # fmt: skip

    def given(self, words: Sequence[str], state: State, stdin: str | None) -> str | None:
        """The text that a command is given: of Python the file that it runs, where that is known."""
        for place, word in enumerate(words[:_MOST_BEFORE]):
            if _PYTHON.fullmatch(PurePosixPath(word).name):
                file = next((one for one in words[place + 1 :] if not one.startswith("-") or one == "-"), "-")
                if file.endswith(".py") and not {"-c", "-m"} & {*words[place + 1 : words.index(file)]}:
                    return None if is_open(file) else self.file(file, state)
        return stdin

    def function(self, name: str, arguments: Sequence[str], state: State, own: State) -> None:
        before, exported = state.arguments, state.exported
        hidden, state.hidden = state.hidden, {}
        state.arguments = None if list(arguments) == [unknown("$@")] else tuple(arguments)
        state.exported = state.exported | own.exported
        if own is not state:
            state.variables = {**state.variables, **own.variables}
        self.depth += 1
        self.block([state.functions[name]], state)
        self.depth -= 1
        state.show()
        state.hidden = hidden
        state.ended = False  # `return`; a function that exits ends its caller too seldom to matter
        state.arguments, state.exported = before, exported | (state.exported - own.exported)

    def script(self, words: list[str], state: State, own: State, stdin: str | None) -> bool:
        """Reads a script that is started: a text behind ``-c`` or on stdin, one that this one wrote, or that
        lies beside it."""
        found = self.started(words, state, stdin)
        if found is None or self.depth >= _DEPTH:
            return False
        text, arguments = found
        inner = state if words[0] in ("source", ".") else own.process()
        before = inner.arguments
        if arguments or inner is not state:
            inner.arguments = tuple(arguments)
        self.depth += 1
        self.block(named(parse(text)), inner)
        self.depth -= 1
        inner.arguments = before
        return True

    def started(self, words: list[str], state: State, stdin: str | None) -> tuple[str, list[str]] | None:
        """(text, arguments) of a script that a command starts."""
        name = PurePosixPath(words[0]).name or words[0]
        told = next((at for at, one in enumerate(words) if _TOLD.fullmatch(one)), None)
        if name in SHELLS and told is not None:
            rest = [one for one in words[told + 1 :] if one != "--"] or [""]
            return None if is_open(rest[0]) and " " not in rest[0] else (rest[0], rest[2:])
        runs = name in (*SHELLS, "sbatch", "source", ".")
        given = [one for one in words[1:] if not one.startswith("-")] if runs else words
        if not given:
            return None if stdin is None else (stdin, [])
        known = not is_open(given[0]) and (runs or "/" in given[0])
        text = self.file(given[0], state) if known else None
        return None if text is None else (text, given[1:])

    def file(self, path: str, state: State) -> str | None:
        for name in (path, path.removeprefix("./")):
            if name in state.files:
                self.read.add(name)
                return state.files[name]
        return self.beside(path)

    def expander(self, state: State, world: str | None = None) -> Expander:
        return Expander(state, self.output, world)

    def assign(self, node: Node, state: State) -> str:
        """Sets a variable; what it would be on other conditions is kept beside it."""
        target, value = node.children[0], node.child_by_field_name("value")
        name = text_of(target.children[0] if target.type == "subscript" else target)
        index = text_of(target).partition("[")[2].rstrip("]") if target.type == "subscript" else None
        array = value is not None and value.type == "array"
        adds = any(text_of(one) == "+=" for one in node.children[:3])
        if state.variables.get(name, _NONE).keys is not None and (array or index is not None):
            self.assign_keys(node, name, index, state)
            return name
        expander = self.expander(state)
        words = _assigned(name, index, value, adds, expander)
        others = {}
        for label in expander.used:
            other = _assigned(name, index, value, adds, self.expander(state, label))
            if other != words:
                others[label] = other
        if sum(map(len, words or ())) > _MOST_TEXT:
            words, others = (unknown(f"${name}"),), {}
        old = state.variables.get(name)
        kept = array or index is not None or (adds and old is not None and old.array)
        state.put(name, Variable(words, kept, expander.default, others))
        return name

    def assign_keys(self, node: Node, name: str, index: str | None, state: State) -> None:
        """Sets an associative array, or one of its entries."""
        expander = self.expander(state)
        found = _entries(node, name, index, expander)
        others: dict[str, Words | None] = {}
        for label in expander.used:
            other = _entries(node, name, index, self.expander(state, label))
            if other != found:
                others[label] = tuple(other.values()) if other.keys() == found.keys() else None
        words = tuple(found.values())
        state.put(name, Variable(words, True, expander.default, others, keys=tuple(found)))

    def _variable_assignment(self, node: Node, state: State, stdin: str | None) -> None:
        self.assign(node, state)

    def _variable_assignments(self, node: Node, state: State, stdin: str | None) -> None:
        for one in named(node):
            self.assign(one, state)

    def _declaration_command(self, node: Node, state: State, stdin: str | None) -> None:
        kind = text_of(node.children[0])
        options = [text_of(one) for one in named(node) if text_of(one).startswith("-")]
        exports = kind == "export" or any("x" in one for one in options)
        has_keys = any("A" in one for one in options)
        for child in named(node):
            if child.type == "variable_assignment":
                if kind == "local":
                    state.hide(text_of(child.children[0]))
                if has_keys:
                    state.put(text_of(child.children[0]), Variable((), True, keys=()))
                name = self.assign(child, state)
            elif child.type == "variable_name":
                name = text_of(child)
                if kind == "local":
                    state.hide(name)
                    state.put(name, Variable(("",)))
                if any("a" in one.lower() for one in options):
                    state.put(name, Variable((), True, keys=() if has_keys else None))
            else:
                words = self.expander(state).fields(child)
                name, equals, value = (words or [""])[0].partition("=")
                if not equals:
                    self.dotenv(text_of(child), state)
                    continue
                state.put(name, Variable((value,)))
            if exports and "-n" not in options:
                state.exported.add(name)

    def dotenv(self, written: str, state: State) -> None:
        """``export $(grep -v '^#' .env | xargs)``: the variables of a file beside."""
        match = re.search(r"[\w./-]*\.env[\w.-]*", written)
        text = None if match is None else self.file(match[0], state)
        if match is not None and text is None:
            state.missing = [*state.missing, match[0]]
        for row in (text or "").splitlines():
            name, equals, value = row.strip().partition("=")
            if equals and name.isidentifier():
                state.put(name, Variable((value.strip("\"'"),)))
                state.exported.add(name)

    def _unset_command(self, node: Node, state: State, stdin: str | None) -> None:
        for one in named(node):
            state.variables.pop(text_of(one), None)

    def _function_definition(self, node: Node, state: State, stdin: str | None) -> None:
        name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
        if name is not None and body is not None:
            state.functions[text_of(name)] = body

    def _redirected_statement(self, node: Node, state: State, stdin: str | None) -> None:
        """``cat > FILE <<EOF`` writes a file; other commands are given the text."""
        body = node.child_by_field_name("body")
        expander = self.expander(state)
        redirects = node.children_by_field_name("redirect")
        text, target = _redirected(redirects, expander, stdin)
        words = self._words(body, expander) if body is not None and body.type == "command" else []
        target = _written(words, target)
        if text is not None and target is not None and {"cat", "tee"} & set(words[:3]):
            state.files[target] = text
        elif words[:1] == ["echo"] and target is not None:
            state.files[target] = state.files.get(target, "") + (printed(words) or "") + "\n"
        elif body is not None and not (words[:1] == ["cat"] and text is not None):
            self.statement(body, state, text)
        for one in redirects:
            for after in named(one) if one.type == "heredoc_redirect" else ():
                if after.type in _STATEMENTS:
                    self.statement(after, state, text)

    def _pipeline(self, node: Node, state: State, stdin: str | None) -> None:
        for one in named(node):
            output = self.output(one, self.expander(state)) if one.type == "command" else None
            self.statement(one, state.copy(), stdin)
            stdin = stdin if output is None else output

    def _subshell(self, node: Node, state: State, stdin: str | None) -> None:
        self.block(named(node), state.copy())

    def _negated_command(self, node: Node, state: State, stdin: str | None) -> None:
        self.block(named(node), state)

    # Branches and loops

    def _branch(self, place: int, arms: Sequence[tuple[str, Sequence[Node], Truth]], state: State) -> None:
        """Arms in their order: (condition, what it does, whether it is taken). The first that is taken
        ends them; the last condition is "else", whose block may be empty."""
        before, ends = self.arms, []
        usual: State | None = None
        decided = False  # by a default: the servers of other arms are not meant
        for label, nodes, said in arms:
            if said.said is False and said.sure:
                continue
            arm, started = state.copy(), len(self.found)
            self.arms = (*before, (place, label))
            self.block(nodes, arm)
            ends.append((label, arm))
            if decided or (said.said is False and said.default):
                del self.found[started:]
            if usual is None and said.said and not arm.ended:
                usual = arm
            if said.said and said.sure:
                break
            decided = decided or bool(said.said and said.default)
        self.arms = before
        going_on = [(label, arm) for label, arm in ends if not arm.ended]
        if not going_on:
            state.ended = bool(ends)
            return
        state.join([one for one in going_on if one[1] is not usual], usual or going_on[-1][1])

    def _if_statement(self, node: Node, state: State, stdin: str | None) -> None:
        arms: list[tuple[str, Sequence[Node], Truth]] = []
        place = 0
        for clause in (node, *(one for one in node.children if one.type in ("elif_clause", "else_clause"))):
            condition, body = _clause(clause)
            if clause.type == "else_clause":
                arms.append(("else", body, Truth(True, False)))
                continue
            said = self.condition(condition, state)
            place = place or node.start_byte + 1
            arms.append((" ".join(map(text_of, condition)), body, said))
        if not any(label == "else" for label, _, _ in arms):
            arms.append(("else", [], Truth(True, False)))
        first = arms[0][0]
        arms = [(f"not {first}" if label == "else" else label, body, said) for label, body, said in arms]
        self._branch(place, arms, state)

    def condition(self, nodes: Sequence[Node], state: State) -> Truth:
        """Of the last command of a condition; the others, and the commands in it, are read as they come."""
        for one in nodes:
            if one.type not in ("test_command", "binary_expression"):
                self.statement(one, state.copy())
        return self.truth(nodes[-1], state) if nodes else UNKNOWN

    def truth(self, node: Node, state: State) -> Truth:
        if node.type == "list" and len(named(node)) == 2:
            left, right = (self.truth(one, state) for one in named(node))
            return both(left, right, every=any(text_of(one) == "&&" for one in node.children))
        return truth(node, self.expander(state))

    def _case_statement(self, node: Node, state: State, stdin: str | None) -> None:
        value = node.child_by_field_name("value")
        expander = self.expander(state)
        text = "" if value is None else expander.text(value)
        head = f"case {'' if value is None else text_of(value)}"
        known, arms = not unknowns(text), []
        sure, default = known and not expander.default, known and expander.default
        for item in (one for one in node.children if one.type == "case_item"):
            patterns = [self.expander(state).text(one) for one in item.children_by_field_name("value")]
            body = [one for one in named(item) if one not in item.children_by_field_name("value")]
            matches = any(fnmatchcase(without(text), one) for one in patterns)
            arms.append((f"{head} is {'|'.join(patterns)}", body, Truth(matches, sure, default)))
        if not any(label == f"{head} is *" for label, _, _ in arms):
            arms.append((f"{head} is none of them", [], Truth(True, False)))
        self._branch(node.start_byte + 1, arms, state)

    def _list(self, node: Node, state: State, stdin: str | None) -> None:
        """``a && b``, ``a || b``: a test decides, or is read both ways; a command is taken to succeed."""
        inner = named(node)
        if len(inner) != 2:
            self.block(inner, state)
            return
        left, right = inner
        every = any(text_of(one) == "&&" for one in node.children)
        if not _is_test(left):
            self.statement(left, state, stdin)
            ended, state.ended = state.ended, False
            if every:
                self.statement(right, state)
            else:
                self.statement(right, state.copy())
            state.ended = ended or (state.ended and every)
            return
        said = self.truth(left, state)
        for one in _commands_of(left):
            self.statement(one, state)
        said = said if every else said.negated()
        label = text_of(left) if every else f"not {text_of(left)}"
        arms = [(label, [right], said), (f"not {label}".replace("not not ", ""), [], Truth(True, False))]
        self._branch(node.start_byte + 1, arms, state)

    def _for_statement(self, node: Node, state: State, stdin: str | None) -> None:
        variable, body = node.child_by_field_name("variable"), node.child_by_field_name("body")
        expander = self.expander(state)
        given = node.children_by_field_name("value")
        words = [word for one in given for word in expander.fields(one)]
        if not given and state.arguments is not None:
            words = list(state.arguments)
        for word in words[:64] or (
            [] if given and not words else [unknown("$" + text_of(variable))] if variable else []
        ):
            if variable is not None:
                state.put(text_of(variable), Variable((word,)))
            if body is not None:
                self.block(named(body), state)
            state.ended = False

    def _c_style_for_statement(self, node: Node, state: State, stdin: str | None) -> None:
        """``for ((i = 0; i < 4; i++))`` where its numbers are known; else once."""
        start, condition, body = (
            node.child_by_field_name(name) for name in ("initializer", "condition", "body")
        )
        if start is not None and start.type == "variable_assignment":
            self.assign(start, state)
        name = "" if start is None else text_of(start.children[0])
        for turn in range(64):
            said = None if condition is None else self.expander(state).number(condition)
            if said == 0 or (said is None and turn):
                return
            self.block(named(body) if body is not None else [], state)
            words = state.words(name)
            if not words or not words[0].isdigit():
                return
            state.put(name, Variable((str(int(words[0]) + 1),)))

    def _while_statement(self, node: Node, state: State, stdin: str | None) -> None:
        """Its body once, for what it starts; what it sets is not known, so it sets nothing."""
        condition = [one for one in node.children_by_field_name("condition") if one.is_named]
        for one in condition:
            if not _is_test(one):
                self.statement(one, state.copy())
        said = self.condition(condition, state.copy()) if condition else UNKNOWN
        body = node.child_by_field_name("body")
        if body is not None and not (said.said is False and said.sure):
            self.block(named(body), state if said.said and said.sure else state.copy())
        state.ended = False

    # Texts that stand for a value

    def output(self, node: Node, expander: Expander) -> str | None:
        """Output of commands, as far as it is known; None where it is not."""
        if node.type in ("command_substitution", "compound_statement", "subshell", "do_group"):
            parts = [self.output(one, expander) for one in named(node)]
            return None if None in parts or not parts else "\n".join(one for one in parts if one)
        if node.type == "list" and len(named(node)) == 2:
            return self._output_of_list(node, expander)
        if node.type == "redirected_statement":
            body = node.child_by_field_name("body")
            text, _ = _redirected(node.children_by_field_name("redirect"), expander, None)
            if text is not None and body is not None and text_of(body) == "cat":
                return text
            return None if body is None else self.output(body, expander)
        if node.type == "test_command":
            return ""
        words = self._words(node, expander) if node.type == "command" else []
        return self._output_of(words, expander) if words else None

    def _output_of(self, words: list[str], expander: Expander) -> str | None:
        """Of a simple command."""
        state, name = expander.state, words[0]
        if name == "cat" and len(words) == 2:
            return state.files.get(words[1])
        if name in ("cd", "true", ":"):
            return ""
        if name not in state.functions or self.depth >= _DEPTH:
            return printed(words)
        inner = state.copy()
        inner.arguments = tuple(words[1:])
        self.depth += 1
        found = self.output(state.functions[name], self.expander(inner, expander.world))
        self.depth -= 1
        return found

    def _output_of_list(self, node: Node, expander: Expander) -> str | None:
        left, right = named(node)
        every = any(text_of(one) == "&&" for one in node.children)
        if not _is_test(left):
            first = self.output(left, expander)
            second = self.output(right, expander) if every else ""
            return None if first is None or second is None else first + second
        said = truth(left, expander)
        if said.said is None:
            return None
        taken = said.said == every
        if not said.sure:
            taken = expander.choose(text_of(left), said.said) == every
        return self.output(right, expander) if taken else ""


_STATEMENTS = frozenset(
    """command pipeline list redirected_statement if_statement for_statement while_statement subshell
    compound_statement case_statement""".split()
)


def _is_test(node: Node) -> bool:
    if node.type == "list":
        return all(map(_is_test, named(node)))
    if node.type == "negated_command":
        return _is_test(named(node)[-1])
    if node.type == "compound_statement":
        return text_of(node).startswith("((")
    return node.type == "test_command" or (
        node.type == "command" and text_of(node).partition(" ")[0] in ("test", "[", "true", "false")
    )


def _commands_of(node: Node) -> Iterator[Node]:
    """The commands of a list of tests that are none."""
    for one in named(node) if node.type == "list" else []:
        if one.type in ("compound_statement", "variable_assignment") and not _is_test(one):
            yield one


def _clause(node: Node) -> tuple[list[Node], list[Node]]:
    """(condition, body) of ``if``, ``elif`` and ``else``."""
    condition: list[Node] = []
    body: list[Node] = []
    seen = node.type == "else_clause"
    for one in node.children:
        if one.type == "then":
            seen = True
        elif one.type in ("elif_clause", "else_clause"):
            break
        elif one.is_named and one.type != "comment":
            (body if seen else condition).append(one)
    return condition, body


def _heredoc(redirect: Node, expander: Expander) -> str:
    start = next((text_of(one) for one in redirect.children if one.type == "heredoc_start"), "")
    body = next((one for one in redirect.children if one.type == "heredoc_body"), None)
    if body is None:
        return ""
    text = text_of(body) if start[:1] in "'\"\\" and start else expander.body(body)
    strip = any(one.type == "<<-" for one in redirect.children)
    return "\n".join(row.lstrip("\t") for row in text.split("\n")) if strip else text


def _redirected(
    redirects: Sequence[Node], expander: Expander, text: str | None
) -> tuple[str | None, str | None]:
    """(the text that a command is given, the file that its output goes to)."""
    target = None
    for redirect in redirects:
        if redirect.type == "heredoc_redirect":
            text = _heredoc(redirect, expander)
        elif redirect.type == "herestring_redirect":
            text = expander.text(named(redirect)[-1])
        for one in (redirect, *redirect.children):
            target = _target(one, expander) or target
    return text, target


def _target(redirect: Node, expander: Expander) -> str | None:
    """The file that a redirection writes."""
    if redirect.type != "file_redirect" or not any(one.type in (">", ">>") for one in redirect.children):
        return None
    if any(one.type == "file_descriptor" for one in redirect.children):
        return None
    place = redirect.child_by_field_name("destination")
    return None if place is None else expander.text(place)


def _written(words: Sequence[str], target: str | None) -> str | None:
    """The file that ``tee`` writes, else where the output goes."""
    if "tee" in words[:3]:
        named_files = [one for one in words[words.index("tee") + 1 :] if not one.startswith("-")]
        return named_files[0] if named_files else target
    return None if target == "/dev/null" else target


def _assigned(
    name: str, index: str | None, value: Node | None, adds: bool, expander: Expander
) -> Words | None:
    old = expander.lookup(name) if adds or index is not None else None
    if value is not None and value.type == "array":
        words = tuple(word for one in named(value) for word in expander.fields(one))
        return (old or ()) + words if adds else words
    text = "" if value is None else expander.text(value)
    if index is not None:
        place = int(index) if index.isdigit() else len(old or ())
        kept = list(old or ())
        kept[place : place + 1] = [text]
        return tuple(kept)
    if adds:
        return ((old or ("",))[0] + text, *(old or ())[1:])
    return (text,)


def _entries(node: Node, name: str, index: str | None, expander: Expander) -> dict[str, str]:
    """Key → word of an associative array after an assignment to it, or to one of its entries."""
    target, value = node.children[0], node.child_by_field_name("value")
    adds = index is not None or any(text_of(one) == "+=" for one in node.children[:3])
    found = dict(zip(expander.keys(name) or (), expander.lookup(name) or (), strict=False)) if adds else {}
    if index is not None:
        found[expander.key(target, name, index) or ""] = "" if value is None else expander.text(value)
        return found
    for one in named(value) if value is not None else ():
        entry = _ENTRY.fullmatch(expander.text(one))
        if entry is not None:
            found[entry[1]] = entry[2]
    return found


def _set(runner: _Runner, words: list[str], state: State) -> None:
    if words[1:3] == ["-o", "allexport"] or re.fullmatch(r"-\w*a\w*", (words[1:2] or [""])[0]):
        state.all_exported = True
    elif words[1:2] == ["+a"] or words[1:3] == ["+o", "allexport"]:
        state.all_exported = False
    if "--" in words:
        state.arguments = tuple(words[words.index("--") + 1 :])


def _shift(runner: _Runner, words: list[str], state: State) -> None:
    number = int(words[1]) if len(words) > 1 and words[1].isdigit() else 1
    if state.arguments is not None:
        state.arguments = state.arguments[number:]


def _source(runner: _Runner, words: list[str], state: State) -> None:
    if not runner.script(words, state, state, None) and len(words) > 1 and not _is_venv(words[1]):
        state.missing = [*state.missing, shown(words[1])]


def _is_venv(path: str) -> bool:
    return PurePosixPath(shown(path)).name in ("activate", ".bashrc", ".profile", "conda.sh", "env_vars.sh")


def _eval(runner: _Runner, words: list[str], state: State) -> None:
    if runner.depth < _DEPTH:
        runner.depth += 1
        runner.block(named(parse(" ".join(words[1:]))), state)
        runner.depth -= 1


def _exit(runner: _Runner, words: list[str], state: State) -> None:
    state.ended = True


def _read(runner: _Runner, words: list[str], state: State) -> None:
    for name in words[1:]:
        if name.isidentifier():
            given = value_of(name)
            state.put(name, Variable((unknown(f"${name}") if given is None else given,)))


def _nothing(runner: _Runner, words: list[str], state: State) -> None:
    """A command that only says, or handles names of others."""


_BUILTINS: Mapping[str, Callable[[_Runner, list[str], State], None]] = {
    "set": _set, "shift": _shift, "source": _source, ".": _source, "eval": _eval, "exit": _exit,
    "return": _exit, "break": _exit, "continue": _exit, "read": _read, ":": _nothing,
}  # fmt: skip
