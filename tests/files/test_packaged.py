"""Cards and GPU specs as they come with kvplan: read without PyYAML as the strict reader reads them, from a
wheel's packed file as from the folders."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

import pytest

from kvplan.errors import KvplanError
from kvplan.files import datafiles
from kvplan.files.datafiles import data_dir, packaged_slugs, read_packaged
from kvplan.files.yaml.packaged import located, read
from kvplan.files.yaml.strict import load_yaml

FOLDERS = ("model_cards", "gpu_specs")
ROOT = Path(__file__).resolve().parents[2]
BITS = [*" :#-{}[],\"'\n|>&*!?@%\t0~=\\é\r", "  ", "\n\n", "- ", "yes", "null", "1_0", ".5", "\n  ", "0x1"]
BITS += ['"\n', "...", "---\n", ": ", "\n...\n", "\x85", "\ufffd", " #", "2026-01-02"]


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_file_is_in_the_narrow_form(folder: str) -> None:
    for slug in packaged_slugs(folder):
        text = read_packaged(folder, slug).decode()
        strict = load_yaml(text, name=slug).data
        assert repr(read(text)) == repr(strict), slug


def _changed(text: str, random: Random) -> str:
    for _ in range(random.randint(1, 2)):
        at = random.randrange(len(text))
        if random.random() < 0.8:
            text = text[:at] + random.choice(BITS) + text[at + (random.random() < 0.4) :]
        else:
            text = text[:at] + text[at + random.randint(1, 6) :]
    return text


@pytest.mark.laws
@pytest.mark.parametrize("seed", range(4))
def test_what_is_read_is_read_as_the_strict_reader_does(seed: int) -> None:
    """Whatever happens to a file, it is read alike or left to the strict reader."""
    random = Random(seed)
    files = [
        read_packaged(folder, slug).decode()
        for folder in FOLDERS
        for slug in random.sample(packaged_slugs(folder), 40)
    ]
    files = [text for text in files if len(text) < 4000]
    understood = 0
    for _ in range(100):
        text = _changed(random.choice(files), random)
        found = read(text)
        if found is not None:
            understood += 1
            assert repr(load_yaml(text, name="changed").data) == repr(found), text
    assert understood > 20


def test_what_is_not_is_left_to_it() -> None:
    with pytest.raises(KvplanError) as caught:
        located(b"a: {b: 1}\na: 2\n", "twice.yaml")
    assert caught.value.code == "yaml-duplicate-key"
    assert "twice.yaml:2:1" in caught.value.format()
    with pytest.raises(KvplanError) as caught:
        located(b"a: \xff\n", "bytes.yaml")
    assert caught.value.code == "yaml-encoding"


@pytest.fixture
def build_hook(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The hook of the wheel's build, with a stand-in for hatchling's base class."""
    interface = ModuleType("hatchling.builders.hooks.plugin.interface")
    interface.BuildHookInterface = type(  # type: ignore[attr-defined]
        "BuildHookInterface", (), {"__class_getitem__": classmethod(lambda cls, _: cls)}
    )
    monkeypatch.setitem(sys.modules, interface.__name__, interface)
    spec = importlib.util.spec_from_file_location("pack_data", ROOT / "packaging" / "pack_data.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    hook = module.PackData()
    hook.root = str(ROOT)
    return hook


def test_a_wheel_has_the_same_files(build_hook: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {
        folder: [(slug, read_packaged(folder, slug)) for slug in packaged_slugs(folder)] for folder in FOLDERS
    }
    data: dict[str, Any] = {"force_include": {}}
    build_hook.initialize("standard", data)
    for source, target in data["force_include"].items():
        place = tmp_path / target.removeprefix("kvplan/_data/")
        place.parent.mkdir(exist_ok=True)
        place.write_bytes(Path(source).read_bytes())
    build_hook.finalize("standard", data, "")
    beside = {
        path.name for folder in FOLDERS for path in data_dir(folder).iterdir() if path.suffix != ".yaml"
    }
    assert {path.name for path in tmp_path.glob("*/*")} == beside | {datafiles.PACKED}

    datafiles._packed.cache_clear()
    monkeypatch.setattr(datafiles, "data_dir", lambda name: tmp_path / name)
    assert {
        folder: [(slug, read_packaged(folder, slug)) for slug in packaged_slugs(folder)] for folder in FOLDERS
    } == before
    with pytest.raises(KvplanError) as caught:
        read_packaged("gpu_specs", "no-such-gpu")
    assert caught.value.code == "unreadable-file"
    datafiles._packed.cache_clear()


def test_an_editable_install_is_left_alone(build_hook: Any) -> None:
    data: dict[str, Any] = {"force_include": {}}
    build_hook.initialize("editable", data)
    build_hook.finalize("editable", data, "")
    assert data == {"force_include": {}}
