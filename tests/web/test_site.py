"""The page itself: the same bytes as CPython, in Chromium, offline, for everybody."""

from __future__ import annotations

import functools
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kvplan.api.reporting import report_of
from kvplan.api.simulating import simulate
from kvplan.cli.web import answered
from kvplan.files.launch.shell.grammar import _parser
from kvplan.record import replace
from kvplan.report.full.html import report_page
from kvplan.report.simulate_html import simulation_page
from kvplan.simulation.results import HourNeeds
from tests.web.questions import line_of, questions
from tests.web.site import AXE, QUIET, ROOT, SITE, built, chromium, served

pytestmark = pytest.mark.browser
LONG = 180_000
"""Milliseconds: a machine under load takes long to start Python."""
ASK = Path(__file__).with_name("ask.mjs")
CHAT = ROOT / "examples" / "plans" / "chat-llama-3.3-70b-4xh100.yaml"
FAILS = ROOT / "tests" / "cli" / "golden" / "inputs" / "plans" / "rag.yaml"
TRACE = ROOT / "examples" / "traces" / "chat-sessions.jsonl.gz"


def test_the_same_bytes_as_cpython(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("no node here")
    site, asked = built(), questions(200)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KVPLAN_CONFIG", "")
    monkeypatch.setitem(sys.modules, "tree_sitter", None)  # no browser has the grammar of scripts
    _parser.cache_clear()
    lines = "\n".join(map(line_of, asked))
    words = [node, str(ASK), str(site)]
    done = subprocess.run(words, input=lines, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-1000:]
    there = done.stdout.splitlines()
    assert len(there) == len(asked)
    for (what, given), found in zip(asked, there):
        assert found == answered(what, json.dumps(given)), (what, given)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    sync = pytest.importorskip("playwright.sync_api", reason="playwright: extra test-browser")
    program = chromium()
    with sync.sync_playwright() as play:
        found = play.chromium.launch(executable_path=program, args=list(QUIET))
        yield found
        found.close()


@pytest.fixture(scope="module")
def visit(browser: Any) -> Iterator[tuple[Any, Any, str, list[str], list[str]]]:
    """(context, page, address, what was asked for, what went wrong), once everything has loaded."""
    with served(built()) as address:
        context = browser.new_context()
        page, asked, wrong = context.new_page(), [], []
        page.set_default_timeout(LONG)
        page.on("request", lambda request: asked.append(request.url))
        page.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.goto(address)
        page.wait_for_selector("body[data-whole][data-planned]")
        yield context, page, address, asked, wrong
        context.close()


def typed(page: Any, **fields: str) -> None:
    """Fill the form and wait for the answer and its plan."""
    for name, value in fields.items():
        if page.input_value(f"#{name}") == value:
            continue  # nothing is typed
        before = page.get_attribute("body", "data-answered")
        page.fill(f"#{name}", value)
        page.wait_for_function("before => document.body.dataset.answered !== before", arg=before)
    page.wait_for_function("() => document.body.dataset.planned === document.body.dataset.answered")


def shown(page: Any) -> str:
    return f"{page.inner_text('#state')}: {page.inner_text('#said')}"


def said(found: dict[str, Any]) -> str:
    return f"{found['verdict']}: {found['answer']}"


def wanted(**fields: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(answered("answer", json.dumps([fields])))
    return found


FORM = {"gpu": "h200-sxm-141gb", "requests": "1"}


def test_it_answers_while_somebody_types(visit: Any) -> None:
    page = visit[1]
    typed(page, model="llama-3.1-8b", tokens="16k")
    there = wanted(model="llama-3.1-8b", tokens="16k", **FORM)
    assert shown(page) == said(there)
    assert page.inner_text("#command") == there["command"]
    assert page.query_selector_all("#memory svg")
    assert page.query_selector_all("#lengths svg")
    exact = [one.get_attribute("value") for one in page.query_selector_all("#lines data")]
    assert str(there["figures"]["kv_pool_bytes"]) in exact
    assert "model: llama-3.1-8b" in page.inner_text("#plan")
    assert "vllm serve" in page.inner_text("#start")
    typed(page, tokens="x")
    assert page.inner_text("#state") == "No answer"
    typed(page, tokens="32k")


def test_the_address_is_the_question(visit: Any) -> None:
    context, page, address, *_ = visit
    typed(page, model="gpt-oss-120b", tokens="8k")
    link = page.evaluate("location.href")
    assert link.startswith(address + "#model=gpt-oss-120b")
    other = context.new_page()
    other.set_default_timeout(LONG)
    other.goto(link)
    other.wait_for_selector("body[data-answered]")
    assert shown(other) == shown(page)
    other.close()


def test_what_is_pasted_is_asked(visit: Any) -> None:
    page = visit[1]
    page.click("summary:has-text('Paste')")
    page.fill(
        "#pasted", "vllm serve Qwen/Qwen3-32B --tensor-parallel-size 2 --gpu-memory-utilization 0.85 --foo 3"
    )
    before = page.get_attribute("body", "data-answered")
    page.click("#take")
    page.wait_for_function("before => document.body.dataset.answered !== before", arg=before)
    assert "--gpu-memory-utilization 0.85" in page.inner_text("#command")
    assert "--foo" in page.inner_text("#notes")
    config = {"model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 8, "num_attention_heads": 32,
              "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256,
              "max_position_embeddings": 8192, "architectures": ["LlamaForCausalLM"]}  # fmt: skip
    page.fill("#pasted", json.dumps(config))
    page.click("#take")
    page.wait_for_function("() => document.getElementById('command').textContent.includes('./config.json')")
    assert page.inner_text("#state") in ("Yes", "No")


def _pressed(page: Any, selector: str) -> None:
    before = page.get_attribute("body", "data-answered")
    page.click(selector)
    page.wait_for_function("before => document.body.dataset.answered !== before", arg=before)


def test_a_change_and_a_suggestion_are_buttons(visit: Any) -> None:
    page = visit[1]
    typed(page, model="qwen3-32b", gpu="h200-sxm-141gb", tokens="32k", more="")
    (wider,) = [
        one for one in wanted(model="qwen3-32b", tokens="32k", **FORM)["changes"] if "--tp" in one["words"]
    ]
    _pressed(page, f"#changes button:has-text('{wider['words']}')")
    assert page.input_value("#gpus") == "2"
    assert f"holds {wider['requests']} requests" in page.inner_text("#said")
    typed(page, gpus="1", more="", gpu="l40s")
    assert page.inner_text("#state") == "No"
    _pressed(page, "#helps button")
    assert page.inner_text("#state") in ("Yes", "Likely")
    typed(page, gpu="h200-sxm-141gb", model="qwen3-33b")
    _pressed(page, "#helps button:has-text('qwen3-32b')")
    assert page.input_value("#model") == "qwen3-32b"


def test_tabs_share_the_fields(visit: Any) -> None:
    page = visit[1]
    typed(page, model="qwen3-8b", gpu="l40s", tokens="4k", more="")
    _pressed(page, "#tab-plan")
    assert "Qwen3-8B: 1 × l40s-48gb serves" in page.inner_text("#screen")
    assert page.is_hidden("#kv_cache_dtype")
    assert "tab=plan" in page.evaluate("location.hash")
    _pressed(page, "#tab-size")
    assert page.is_visible("#memory svg")


def test_a_picture_is_saved(visit: Any) -> None:
    page = visit[1]
    with page.expect_download() as waiting:
        page.click("#save")
    assert Path(waiting.value.path()).read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("wide", [390, 1280])
def test_the_answer_is_above_the_fold_and_nothing_is_wider_than_the_window(visit: Any, wide: int) -> None:
    page = visit[1]
    typed(page, model="qwen3-32b", gpu="h200-sxm-141gb", tokens="32k")
    page.set_viewport_size({"width": wide, "height": 800})
    page.evaluate("scrollTo(0, 0)")
    for part in ("#state", "#said", "#memory svg"):
        box = page.query_selector(part).bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= wide
        assert box["y"] + box["height"] <= 800, part
    assert page.evaluate("document.documentElement.scrollWidth") <= wide
    sizes = page.evaluate(
        "[...document.querySelectorAll('svg text')].map(one => one.getBoundingClientRect().height)"
    )
    assert min(sizes) >= 12


def test_nothing_is_asked_of_anybody_else(visit: Any) -> None:
    _, _, address, asked, wrong = visit
    assert [url for url in asked if not url.removeprefix("blob:").startswith(address)] == []
    assert wrong == []


def test_a_link_runs_nothing(visit: Any) -> None:
    context, _, address, *_ = visit
    page = context.new_page()
    page.set_default_timeout(LONG)
    page.goto(address + "#model=%3Cimg%20src%3Dx%20onerror%3D%22document.title%3D1%22%3E&gpu=h100")
    page.wait_for_function("() => document.getElementById('state').textContent === 'No answer'")
    assert page.query_selector_all("img, iframe, object") == []
    assert page.title().startswith("kvplan")
    page.close()


def axe(page: Any, url: str, scheme: str) -> list[str]:
    """What axe finds that is serious or worse."""
    page.emulate_media(color_scheme=scheme)
    page.goto(url)
    if url.startswith("http"):
        page.wait_for_selector("body[data-planned]")
    page.evaluate(AXE.read_text(encoding="utf-8"))
    found = page.evaluate("axe.run()")
    return [
        f"{one['id']}: {one['nodes'][0]['html'][:120]}" for one in found["violations"]
        if one["impact"] in ("serious", "critical")
    ]  # fmt: skip


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everybody_can_use_the_page(visit: Any, scheme: str) -> None:
    context, _, address, *_ = visit
    page = context.new_page()
    page.set_default_timeout(LONG)
    assert axe(page, address, scheme) == []
    page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everybody_can_read_a_report(browser: Any, tmp_path: Path, scheme: str) -> None:
    if not AXE.is_file():
        pytest.skip("axe-core is not there: make site")
    page = browser.new_page()
    for name, text in reports().items():
        file = tmp_path / f"{name}.html"
        file.write_text(text, encoding="utf-8")
        assert axe(page, file.as_uri(), scheme) == [], name
    page.close()


@functools.cache
def reports() -> dict[str, str]:
    """Pages that kvplan writes: a plan that passes, one that fails, both, a simulation with hours."""
    passes, fails = report_of([CHAT], gpus=["h100", "h200"]), report_of([FAILS], gpus=())
    simulated = simulate(
        "llama-3.1-8b", gpu="h100", trace=TRACE, first=60, replicas=2, max_model_len=16384, ttft=0.05,
        helps=False,
    )  # fmt: skip
    hours = tuple(HourNeeds(hour, 9, hour % 3 or None, hour % 4 or None) for hour in range(1, 24))
    return {
        "passes": report_page(passes),
        "fails": report_page(fails),
        "both": report_page([*passes, *fails]),
        "simulation": simulation_page(replace(simulated.outcome, hours=hours), where="1 × h100"),
    }


@pytest.mark.parametrize("wide", [390, 768, 1280])
def test_a_report_fits_the_window(browser: Any, tmp_path: Path, wide: int) -> None:
    """Nothing is wider than the window, no word of a picture is cut or smaller than 12 pixels."""
    page = browser.new_page(viewport={"width": wide, "height": 800})
    for name, text in reports().items():
        file = tmp_path / f"{name}.html"
        file.write_text(text, encoding="utf-8")
        page.goto(file.as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") <= wide, name
        assert page.evaluate(LABELS) == [], name
    page.close()


LABELS = """() => [...document.querySelectorAll('svg')].flatMap(svg => {
  const all = svg.getBoundingClientRect();
  return [...svg.querySelectorAll('text')].filter(text => {
    const box = text.getBoundingClientRect(), scale = all.width / svg.viewBox.baseVal.width;
    return box.left < all.left - 1 || box.right > all.right + 1 || box.top < all.top - 1
      || box.bottom > all.bottom + 1 || parseFloat(getComputedStyle(text).fontSize) * scale < 12;
  }).map(text => text.textContent);
})"""
"""Words of pictures that are cut, or smaller than can be read."""


def test_it_works_without_a_network(browser: Any) -> None:
    """After the first visit the server may go away."""
    context = browser.new_context()
    page = context.new_page()
    page.set_default_timeout(LONG)
    with tempfile.TemporaryDirectory() as folder:
        copy = shutil.copytree(SITE, Path(folder) / "site") if built() else Path()
        with served(copy) as address:
            page.goto(address)
            page.evaluate("navigator.serviceWorker.ready.then(() => true)")
            page.wait_for_selector("body[data-answered]")
            page.wait_for_function(
                "async () => (await (await caches.open((await caches.keys())[0])).keys()).length > 10"
            )
            before = shown(page)
    page.reload()
    page.wait_for_selector("body[data-planned]")
    assert shown(page) == before != ""
    context.close()
