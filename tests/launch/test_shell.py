"""The shell's grammar: the words that a server is given, and what never becomes a fault of kvplan's."""

from __future__ import annotations

import contextlib
import copy
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from kvplan.api.launching import import_launches
from kvplan.errors import KvplanError
from kvplan.files.launch.read import launches_of, launches_of_text
from kvplan.files.launch.shell import run
from kvplan.files.launch.shell.grammar import plain_words
from kvplan.files.launch.starts import starts_in
from kvplan.files.launch.unknown import shown
from tests.launch.test_files import FILES, NAMES

WORDS = [
    ('A=(-tp 2)\nA+=(--x "a b")\nvllm serve m "${A[@]}"', "m|-tp|2|--x|a b"),
    ('A=(1 2 3)\nvllm serve m --x ${A[1]} --n ${#A[@]} --all "${A[*]}"', "m|--x|2|--n|3|--all|1 2 3"),
    ('declare -a A\nvllm serve m "${A[@]}"', "m"),
    ('X="-tp 2"\nvllm serve m $X "$X"', "m|-tp|2|-tp 2"),
    ('E=\nvllm serve m $E "$E"', "m|"),
    ("vllm serve m --x ${A:-1} ${B-2} ${C:=3} $C ${D:+4} ${E:-${F:-5 6}}", "m|--x|1|2|3|3|5|6"),
    ("A=\nvllm serve m --x ${A:-1}${A-2} ${A:+3}", "m|--x|1"),
    ("P=/a/b.gguf\nvllm serve ${P##*/} ${P%.gguf} ${P/b/c}", "b.gguf|/a/b|/a/c.gguf"),
    ("P=/a/b.gguf\nvllm serve ${P:0:2} ${P^^}", "/a|/A/B.GGUF"),
    ("N=3\nvllm serve m $((N * 2 + (8 >> 1))) $((N > 2 ? 7 : 9))", "m|10|7"),
    ('vllm serve m $(echo -n "-tp 2") "$(basename /x/y.sh .sh)" $(seq 2 3)', "m|-tp|2|y|2|3"),
    ("vllm serve m $(nproc) `hostname` $HOST", "m|$(nproc)|`hostname`|$HOST"),
    ("vllm serve 'a $X' \"b\\$\" c\\ d $'e\\tf' g\"h\"'i'", "a $X|b$|c d|e\tf|ghi"),
    ("set -- a b\nvllm serve \"$@\" $# ${1}", "a|b|2|a"),
    ('f() { vllm serve "$2" "$1"; }\nf a "b c"', "b c|a"),
    ("X=1\n(X=2)\n{ X=3; }\nvllm serve m $X", "m|3"),
    ("X=1 Y=2\nvllm serve m $X $Y", "m|1|2"),
    ("if true; then X=1; else X=2; fi\nvllm serve m $X", "m|1"),
    ("X=1\n[ $X -eq 1 ] && Y=2 || Y=3\nvllm serve m $Y", "m|2"),
    ("bash -lc -- 'vllm serve m \"$@\"' x a b", "m|a|b"),
    ("for ((i=0; i<3; i++)); do L+=\" $i\"; done\nvllm serve m $L", "m|0|1|2"),
    ("while [ $# -gt 0 ]; do shift; done\nvllm serve m", "m"),
    ("cat <<E | bash\nvllm serve m\nE", "m"),
    ("eval \"vllm serve m -tp ${X:-2}\"", "m|-tp|2"),
    ("sudo -E env A=1 nice -n 5 vllm serve m > x 2>&1 &", "m"),
    ("vllm serve <your-model> -tp 2", "<your-model>|-tp|2"),
    ('f() { vllm serve "$1" "${@:2}"; }\nf m -tp 2', "m|-tp|2"),
    ('A=(a b c)\nvllm serve m "${A[@]:1}" ${!A[@]}', "m|b|c|0|1|2"),
    ("M=a\nf() { local M=${M}b; X=1; }\nf\nvllm serve $M $X", "a|1"),
    ('f() { vllm serve "${1:-m}" "${2:-n}"; }\ng() { f "$@"; }\ng "$@"', "m|n"),
    ('if [ $# -ne 1 ]; then exit 1; fi\nvllm serve "$1"', "$1"),
    ("X=/a\nvllm serve m ${X/#a/b}", "m|${X/#a/b}"),
    ("vllm serve m {1..3} '{1..3}'", "m|1|2|3|{1..3}"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "words"), WORDS, ids=[text for text, _ in WORDS])
def test_words_are_those_of_the_shell(text: str, words: str) -> None:
    [start] = starts_in(text)
    assert [shown(word) for word in start.words] == words.split("|")


NO_START = [
    "pkill -f 'vllm serve'", "docker rm -f llama-server", "docker build -t vllm .", "echo vllm serve x",
    "cmake --target llama-server -j", "cat <<E\nvllm serve x\nE", "X='vllm serve x'", "which llama-server",
    "log() { echo $*; }\nlog vllm serve x", "if false; then vllm serve x; fi", "exit 0\nvllm serve x",
    "docker run --entrypoint sleep vllm/vllm-openai inf", "docker logs vllm-openai", "# vllm serve x",
    "docker run vllm/vllm-openai python3 -m http.server", 'printf "vllm serve %s" x',
    "git clone x/llama-server",
]  # fmt: skip


@pytest.mark.parametrize("text", NO_START)
def test_a_name_alone_starts_nothing(text: str) -> None:
    assert starts_in(text) == []


def test_a_branch_is_said() -> None:
    [start] = starts_in('T=2\nif [ "$1" = big ]; then T=8; fi\nvllm serve m -tp $T')
    assert start.words == ("m", "-tp", "2")
    assert [(label, other.words) for label, other in start.others] == [
        ('[ "$1" = big ] (T=8)', ("m", "-tp", "8"))
    ]
    first, second = starts_in("if [ $A = 1 ]; then vllm serve a; else vllm serve b; fi")
    assert (first.words, second.words) == (("a",), ("b",))
    assert "one of 2 servers" in first.notes[0]
    [only] = starts_in("if [ ${A:-1} = 1 ]; then vllm serve a; else vllm serve b; fi")
    assert only.words == ("a",)


def test_another_engine_is_said() -> None:
    [start] = starts_in("pip install lmdeploy\nlmdeploy serve api_server x &\nvllm serve m")
    assert start.notes == ("LMDeploy is started too, and kvplan has no rules for it",)
    [start] = starts_in("pip install lmdeploy\nvllm serve m")
    assert start.notes == ()


def test_what_is_exported_is_given() -> None:
    [start] = starts_in("export A=1 B\nB=2\nC=3\nD=4 vllm serve m")
    assert dict(start.environment) == {"A": "1", "B": "2", "D": "4"}


def test_files_beside_alone_are_read(tmp_path: Path) -> None:
    inside = tmp_path / "a"
    inside.mkdir()
    (tmp_path / "out.env").write_text("M=outside\n", encoding="utf-8")
    (inside / "in.env").write_text("M=Qwen/Qwen3-8B\n", encoding="utf-8")
    for name, found in (("./in.env", True), ("../out.env", False), (str(tmp_path / "out.env"), False)):
        (inside / "s.sh").write_text(f'. {name}\nvllm serve "$M"\n', encoding="utf-8")
        [launch] = launches_of(str(inside / "s.sh"))
        assert (launch.unnamed is None) is found
        if launch.unnamed is not None:
            assert name in launch.unnamed.message


_SIGNS = """
    " vllm serve m -tp $A ${B:-2} "$@" ( ) { } [ ] [[ ]] if then else fi for in do done while case
    esac ;; ; && || | & > < << <<E E <<< ` $( $(( )) ' " \\ # = A= A+= f() ! ${A[@]} ${A%%x} ${#A}
    {1..9} $'x' export local eval source set -- shift exit return ${A/a/b} ${!A}
"""
_PIECES = st.sampled_from([*_SIGNS.split(), "\n", "\t", "é", "\0"])


@given(st.lists(_PIECES, max_size=40))
@settings(max_examples=400, deadline=None)
def test_any_text_is_read_or_refused(pieces: list[str]) -> None:
    with contextlib.suppress(KvplanError):
        launches_of_text("vllm serve x/y\n" + " ".join(pieces))


def test_a_text_without_an_end_is_read() -> None:
    """Loops, calls of itself, and nesting end."""
    for text in (
        "f() { f; }\nf\nvllm serve m", "while true; do vllm serve m; done",
        "for a in {1..900}; do for b in {1..900}; do for c in {1..900}; do x; done; done; done\nvllm serve m",
        "X=$X$X\n" * 60 + "vllm serve m", "X=ab\n" + "X=$X$X\n" * 60 + "vllm serve $X", "(" * 300,
        "if x; then " * 200, "$(" * 200 + "x" + ")" * 200, 'eval "$0"\n. ./s.sh',
        "\n".join(f"if [ $A{n} ]; then B+=x; fi" for n in range(40)) + "\nvllm serve m $B",
    ):  # fmt: skip
        with contextlib.suppress(KvplanError):
            launches_of_text(text)


LEAVES: list[object] = [None, True, -1, 2.5, "", "x", "$X", "${A:-", "'", [], ["x"], {}, {"a": [1]}, 10**30]


def _leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in pairs:
        yield from _leaves(one, (*path, key))


def _with(document: Any, path: tuple[Any, ...], value: object) -> Any:
    changed = copy.deepcopy(document)
    inner = changed
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return changed


@pytest.mark.parametrize("name", [one for one in NAMES if one.endswith((".yaml", ".yml"))])
def test_each_leaf_may_be_anything(name: str) -> None:
    document = yaml.safe_load((FILES / name).read_text(encoding="utf-8"))
    for path in _leaves(document):
        for value in LEAVES if path else ():
            changed = _with(document, path, value)
            with contextlib.suppress(KvplanError):
                import_launches("x.yaml", text=yaml.safe_dump(changed), broken=[])


@pytest.mark.parametrize("name", [one for one in NAMES if not one.endswith((".yaml", ".yml"))])
def test_each_line_may_be_torn(name: str, tmp_path: Path) -> None:
    text, chance = (FILES / name).read_text(encoding="utf-8"), random.Random(name)
    target = tmp_path / Path(name).name
    for _ in range(25):
        at, length = chance.randrange(len(text)), chance.randrange(1, 12)
        sign = chance.choice(["", "'", '"', "(", "$(", "${", "\\", "[", "\n", "<<E"])
        torn = f"{text[:at]}{sign}{text[at + length :]}"
        target.write_text(torn, encoding="utf-8")
        with contextlib.suppress(KvplanError):
            import_launches(str(target), broken=[])


_plain_word = st.one_of(
    st.text("abzAZ019_./:@%+,^-", min_size=1, max_size=8).map(lambda text: text.replace("-a", "-a=")),
    st.text('ab 1{}[]$`*?~#!;&|<>()\\"', max_size=8).map(lambda text: f"'{text}'"),
    st.text("ab 1{}[]*?~#;&|<>()'=", max_size=8).map(lambda text: f'"a{text}b"'),
)
"""Without what the grammar loses: blanks at the ends of a string in double quotes, a word of equals signs."""


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from(("vllm", "python", "bash", "cd", "exec", "export", "sudo", "docker")),
    st.lists(st.lists(_plain_word, min_size=1, max_size=3).map("".join), max_size=6),
    st.sampled_from((" ", "  ", " \\\n  ", "\t")),
)
def test_a_command_without_shell_in_it_is_read_as_the_grammar_reads_it(
    first: str, words: list[str], between: str
) -> None:
    """The page has no grammar: there such a command alone is read."""
    text = between.join((first, *words))
    plain = run.read(text, {"A": "1"}, beside=lambda path: None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "plain_words", lambda text: None)
        whole = run.read(text, {"A": "1"}, beside=lambda path: None)
    if not whole.broken:
        assert plain == whole


def test_a_plain_command_needs_no_grammar() -> None:
    assert plain_words("vllm serve a/b \\\n  --tp 2 --x='{\"a\": 1}'") == [
        "vllm",
        "serve",
        "a/b",
        "--tp",
        "2",
        '--x={"a": 1}',
    ]
    for other in (
        "A=1 vllm serve x",
        "vllm serve $MODEL",
        "vllm serve x &",
        "a; b",
        "if x",
        "cat <<E",
        "a\nb",
        "",
    ):
        assert plain_words(other) is None
