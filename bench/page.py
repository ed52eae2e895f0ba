"""``python -m bench.page``: the page's answers in Chromium, beside Pyodide starting by itself.

``make browser`` builds the site. Medians over alternating visits, each with nothing kept from the one before.
"""

from __future__ import annotations

from statistics import median
from time import perf_counter
from typing import Any

from bench.figures import Figure
from tests.web.site import QUIET, SITE, chromium, served

VISITS = 5
ASKED = "#model=qwen3-32b&gpu=h200&tokens=32768"
LENGTHS = ("8k", "16k", "24k", "4k", "12k")
FIRST_AIM, NEXT_AIM = "<= 3 s", "<= 100 ms"
BASELINE = "Pyodide starting by itself"
ALONE = """async address => {
  const {loadPyodide} = await import(address + 'pyodide/pyodide.mjs');
  const started = performance.now();
  const python = await loadPyodide({indexURL: address + 'pyodide/'});
  python.runPython('1 + 1');
  return performance.now() - started;
}"""
NEXT = """text => new Promise(resolve => {
  const field = document.getElementById('tokens'), started = performance.now();
  new MutationObserver((_, watcher) => { watcher.disconnect(); resolve(performance.now() - started); })
    .observe(document.body, {attributes: true, attributeFilter: ['data-answered']});
  field.value = text;
  field.dispatchEvent(new Event('input', {bubbles: true}));
})"""


def first(browser: Any, address: str) -> tuple[float, list[float]]:
    """Seconds from the address to the first answer, and those of the next answers."""
    page = browser.new_context().new_page()
    started = perf_counter()
    page.goto(address + ASKED)
    page.wait_for_selector("body[data-answered]")
    found = perf_counter() - started
    page.wait_for_selector("body[data-whole][data-planned]")
    page.wait_for_timeout(500)
    later = []
    for text in LENGTHS:
        later.append(page.evaluate(NEXT, text) / 1000)
        page.wait_for_function("() => document.body.dataset.planned === document.body.dataset.answered")
    page.context.close()
    return found, later


def alone(browser: Any, address: str) -> float:
    """Seconds in which Pyodide starts without anything of ours."""
    page = browser.new_context().new_page()
    page.goto(address + "icon.svg")
    found = float(page.evaluate(ALONE, address)) / 1000
    page.context.close()
    return found


def figures() -> list[Figure]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play, served(SITE) as address:
        browser = play.chromium.launch(executable_path=chromium(), args=list(QUIET))
        turns = [(first(browser, address), alone(browser, address)) for _ in range(VISITS)]
        browser.close()
    answer, start = median(one for (one, _), _ in turns), median(one for _, one in turns)
    later = median(one for (_, many), _ in turns for one in many)
    slowest = max(one for (_, many), _ in turns for one in many)
    said = f"{later * 1000:.0f} ms, slowest {slowest * 1000:.0f} ms"
    return [
        Figure("first answer", BASELINE, answer / start, FIRST_AIM, f"{answer:.2f} s against {start:.2f} s"),
        Figure("next answer", BASELINE, later / start, NEXT_AIM, said),
    ]


def main() -> None:
    for one in figures():
        print(f"{one.ratio:8.3f} ×  {one.what}  (baseline: {one.baseline}; {one.detail}; aim {one.aim})")


if __name__ == "__main__":
    main()
