from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from kvplan.errors import KvplanError
from kvplan.files.yaml import strict as strict_yaml
from kvplan.files.yaml.marks import Located, path_text
from kvplan.files.yaml.strict import MAX_BYTES, MAX_DEPTH, load_yaml, load_yaml_file


@pytest.fixture(params=["libyaml", "python"], autouse=True)
def loader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Every test runs with both of PyYAML's parsers."""
    if request.param == "python":
        monkeypatch.setattr(strict_yaml, "_LOADER", yaml.SafeLoader)
    elif not hasattr(yaml, "CSafeLoader"):
        pytest.skip("PyYAML is built without libyaml here")
    return str(request.param)


def failure(text: str | bytes) -> KvplanError:
    with pytest.raises(KvplanError) as caught:
        load_yaml(text, name="f.yaml")
    assert caught.value.help, "every error says what would mend it"
    assert caught.value.exit_code == 2
    return caught.value


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("1", 1),
        ("-7", -7),
        ("+7", 7),
        ("0", 0),
        ("0.5", 0.5),
        ("-1.25e-3", -0.00125),
        ("1.0e5", 1.0e5),
        ("true", True),
        ("false", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("hello", "hello"),
        ("80GiB", "80GiB"),
        ("0.33.0", "0.33.0"),
        ("y", "y"),
        ("nan", "nan"),
        ("8000:80", "8000:80"),
        ("'no'", "no"),
        ('"017"', "017"),
        ('"2026-01-02"', "2026-01-02"),
        ("1.5 GiB", "1.5 GiB"),
        ("-", None),
    ],
)
def test_words(word: str, value: Any) -> None:
    if word == "-":
        assert load_yaml("-", name="f").data == [None]
        return
    data = load_yaml(f"a: {word}", name="f").data
    assert data == {"a": value}
    assert type(data["a"]) is type(value)


@pytest.mark.parametrize(
    ("word", "code"),
    [
        *[(word, "yaml-boolean") for word in ("no", "No", "NO", "yes", "on", "Off", "True", "TRUE", "False")],
        *[(word, "yaml-number") for word in ("017", "0o17", "0x1F", "0b11", "09", "-017", "1_000", "1e5")],
        *[(word, "yaml-number") for word in ("1:30", "190:20:30", "1:30.5", ".5", "5.", "-.5e3", "1.0e999")],
        *[(word, "yaml-number") for word in (".inf", "-.Inf", ".nan", ".NaN", "1" * 41)],
        *[
            (word, "yaml-date")
            for word in ("2026-01-02", "2026-1-2", "2026-01-02T03:04:05Z", "2026-01-02 03:04")
        ],
        ("Null", "yaml-null"),
        ("!!str x", "yaml-tag"),
        ("!!python/object:os.system x", "yaml-tag"),
        ("!mine [1]", "yaml-tag"),
        ("! x", "yaml-tag"),
        ("&a 1", "yaml-alias"),
        ("&a [1]", "yaml-alias"),
    ],
)
def test_words_that_are_refused(word: str, code: str) -> None:
    error = failure(f"first: 1\na: {word}\n")
    assert error.code == code
    assert error.where is not None
    place, line, caret = error.where.split("\n")
    assert place == "f.yaml:2:4"
    assert line == f"2 | a: {word}"
    assert caret.startswith("  |    ^")


def test_help_says_how_to_write_what_was_meant() -> None:
    assert failure("a: no").help == ("write false for the boolean", 'write "no" for the text')
    assert failure("a: 0x1F").help[0] == "write 31"
    assert failure("a: 1e5").help[0] == "write 1.0e5 for the number"
    assert failure("a: -.5").help[0] == "write -0.5 for the number"
    assert failure("a: 5.").help[0] == "write 5.0 for the number"
    assert failure("a: 2026-01-02").help == ('write "2026-01-02" for the text',)


def test_the_whole_form_of_an_error() -> None:
    assert failure("gpu: h100\nunified: yes\n").format() == (
        "error[yaml-boolean]: `yes` is a boolean to some YAML readers and text to others\n"
        "  f.yaml:2:10\n"
        "  2 | unified: yes\n"
        "    |          ^^^\n"
        "help: write true for the boolean\n"
        'help: write "yes" for the text'
    )


@pytest.mark.parametrize(
    ("text", "code", "place"),
    [
        ("a: 1\nb:\n  c: 1\n  c: 2\n", "yaml-duplicate-key", "f.yaml:4:3"),
        ("a: 1\n'a': 2\n", "yaml-duplicate-key", "f.yaml:2:1"),
        ("{a: 1, a: 2}", "yaml-duplicate-key", "f.yaml:1:8"),
        ("1: x\n1: y\n", "yaml-duplicate-key", "f.yaml:2:1"),
        ("<<: {a: 1}\n", "yaml-merge-key", "f.yaml:1:1"),
        ("? [a]\n: 1\n", "yaml-key", "f.yaml:1:3"),
        ("? {a: 1}\n: 1\n", "yaml-key", "f.yaml:1:3"),
        ("true: 1\n", "yaml-key", "f.yaml:1:1"),
        ("1.5: 1\n", "yaml-key", "f.yaml:1:1"),
        ("null: 1\n", "yaml-key", "f.yaml:1:1"),
        ("no: 1\n", "yaml-boolean", "f.yaml:1:1"),
        ("a: 1\n---\nb: 2\n", "yaml-documents", "f.yaml:3:1"),
        ("a: [1, 2", "yaml-syntax", "f.yaml:1:9"),
        ("a: b: c\n", "yaml-syntax", "f.yaml:1:5"),
        ("a: 'x\n", "yaml-syntax", None),
        ("a: \x01\n", "yaml-encoding", "f.yaml:1:4"),
        (b"a: \xff\n", "yaml-encoding", "f.yaml:1:4"),
        (b"ok: 1\n\xff\xfea", "yaml-encoding", "f.yaml:2:1"),
        ("a: \ud800", "yaml-encoding", None),
    ],
)
def test_structure_that_is_refused(text: str | bytes, code: str, place: str | None, loader: str) -> None:
    error = failure(text)
    assert error.code == code
    if place is not None and not (text == "a: [1, 2" and loader == "libyaml"):
        assert error.where is not None
        assert error.where.split("\n")[0] == place


def test_tabs_have_their_own_help() -> None:
    error = failure("a:\n\tb: 1\n")
    assert error.code == "yaml-syntax"
    assert "tabs" in error.help[0]


def test_alias_bombs_stop_at_the_first_anchor() -> None:
    bomb = "a: &a [x, x]\n" + "".join(
        f"{chr(98 + i)}: &{chr(98 + i)} [*{chr(97 + i)}, *{chr(97 + i)}]\n" for i in range(20)
    )
    assert failure(bomb).code == "yaml-alias"
    assert failure("a: *x\n").code in {"yaml-alias", "yaml-syntax"}


def test_depth_is_limited() -> None:
    deep = "[" * MAX_DEPTH + "]" * MAX_DEPTH
    assert load_yaml(deep, name="f").data is not None
    assert failure("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1)).code == "yaml-too-deep"
    assert failure("[" * 100_000).code == "yaml-too-deep"
    assert failure("- " * 3_000).code == "yaml-too-deep"
    assert failure("- " * 100_000).code == "yaml-too-deep"


def test_size_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    assert failure("#" * (MAX_BYTES + 1)).code == "yaml-too-large"
    monkeypatch.setattr(strict_yaml, "MAX_NODES", 100)
    assert failure("[" + "1," * 200 + "]").code == "yaml-too-large"


def test_text_in_any_alphabet_and_a_byte_order_mark() -> None:
    assert load_yaml("a: größe 你好 🚀\n".encode("utf-8-sig"), name="f").data == {"a": "größe 你好 🚀"}


def test_carets_stand_under_wide_characters_and_tabs() -> None:
    where = failure("你好: no").where
    assert where == "f.yaml:1:5\n1 | 你好: no\n  |       ^^"
    where = failure("{'a\tb': no}").where
    assert where == "f.yaml:1:9\n1 | {'a\tb': no}\n  |    \t    ^^"


def test_long_lines_are_shown_as_a_window() -> None:
    where = failure("a: '" + "x" * 300 + "'\nb: ['" + "y" * 300 + "', no, '" + "z" * 300 + "']").where
    assert where is not None
    _, line, caret = where.split("\n")
    assert len(line) < 110
    assert line[caret.index("^") : caret.index("^") + 2] == "no"


def test_control_characters_are_not_passed_on_to_the_terminal() -> None:
    assert "\x1b" not in failure("a: \x1b[31m").format()


def test_half_a_surrogate_pair_never_gets_into_the_data() -> None:
    assert failure('a: "\\ud800"').code in {"yaml-encoding", "yaml-syntax"}


def test_nothing_at_all() -> None:
    located = load_yaml("# only a comment\n", name="f")
    assert located.data is None
    with pytest.raises(KvplanError, match="holds nothing"):
        located.mapping()
    with pytest.raises(KvplanError, match="holds a list"):
        load_yaml("- 1", name="f").mapping("a plan")
    assert load_yaml("---\na: 1\n...\n", name="f").data == {"a": 1}


def test_positions_of_keys_and_values() -> None:
    located = load_yaml("a: 1\nb:\n  - x\n  - c: [10, 20]\n", name="f.yaml")

    def at(*path: str | int, key: bool = False) -> str:
        return located.where(path, at_key=key).show().split("\n")[0]

    assert at() == "f.yaml:1:1"
    assert at("a") == "f.yaml:1:4"
    assert at("a", key=True) == "f.yaml:1:1"
    assert at("b", 1, "c", 1) == "f.yaml:4:13"
    assert at("b", 1, "absent") == "f.yaml:4:5"
    assert located.text(("b", 0)) == "x"
    assert located.node(("b", 7)) is None
    error = located.error("x", "y", ("b", 1, "c"), help="z")
    assert error.where == "f.yaml:4:8\n4 |   - c: [10, 20]\n  |        ^^^^^^^^"
    assert path_text(("b", 1, "c", 0)) == "b[1].c[0]"


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("a: 1\n", encoding="utf-8")
    assert load_yaml_file(path).data == {"a": 1}
    assert load_yaml_file(path, name="shown.yaml").name == "shown.yaml"
    for bad in (tmp_path / "absent.yaml", tmp_path):
        with pytest.raises(KvplanError) as caught:
            load_yaml_file(bad)
        assert caught.value.code in ("unreadable-file", "not-a-file")


def load_yaml_or_none(text: str | bytes) -> Located | None:
    try:
        return load_yaml(text, name="f")
    except KvplanError as error:
        error.format()
        return None


plain_data = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.text(st.characters(codec="utf-8"), max_size=12)
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text("abcdef_", min_size=1), inner, max_size=4)
    ),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None)
@given(plain_data)
def test_what_json_writes_is_read_back(data: Any) -> None:
    text = json.dumps(data, ensure_ascii=False)
    read = load_yaml_or_none(text)
    # Refused are 1e+16 (no point) and the control characters that YAML forbids.
    assert read is None or read.data == data


@settings(max_examples=300, deadline=None)
@given(st.text(st.sampled_from("ab:-[]{}'\"#&*!|>% \n\t?,019.eox~_"), max_size=40) | st.binary(max_size=30))
def test_any_input_is_data_or_a_kvplan_error(text: str | bytes) -> None:
    located = load_yaml_or_none(text)
    assert located is None or located.where()


@settings(max_examples=200, deadline=None)
@given(st.text(st.sampled_from("0123456789abefxinotyslu.:_+-"), min_size=1, max_size=10))
def test_a_word_means_the_same_to_pyyaml_or_is_refused(word: str) -> None:
    try:
        ours = load_yaml(f"a: {word}", name="f").data
    except KvplanError:
        return
    theirs = yaml.safe_load(f"a: {word}")
    if isinstance(ours, dict) and isinstance(ours["a"], float):
        assert ours["a"] == float(theirs["a"])  # PyYAML takes 1.0e5 (no sign) for text
    else:
        assert ours == theirs


def test_a_card_is_read_quickly(loader: str) -> None:
    if loader == "python":
        return  # the time is promised for libyaml only
    card = "\n".join(f"key{n}:\n  value: {n}\n  source: text {n}" for n in range(20))
    load_yaml(card, name="f")
    best = min(_timed(card) for _ in range(20))
    assert best < 0.003, f"60 lines took {best * 1000:.2f} ms"


def _timed(card: str) -> float:
    start = time.process_time()
    load_yaml(card, name="f")
    return time.process_time() - start


def test_pydantic_is_not_imported() -> None:
    modules = "kvplan.files.yaml.strict, kvplan.files.gpus.find"
    code = f"import sys, {modules}; sys.exit('pydantic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
