"""`kvplan export --to html`: the page says what the JSON of the other commands says, and asks for nothing."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from kvplan.api.reporting import FEW, PlanReport, report_of
from kvplan.cli import main
from kvplan.report.full.html import LIMIT, report_page
from kvplan.report.full.markdown import report_markdown, said
from kvplan.units import parse_bytes
from tests.report.check.reports import FAILING, HOSTILE_PLAN, PASSING, UNREAD
from tests.report.full.pages import check_pictures, read, rows, section, values, words

ROOT = Path(__file__).resolve().parents[3]
PLANS = ROOT / "examples" / "plans"
CHAT = str(PLANS / "chat-llama-3.3-70b-4xh100.yaml")
TRACE = str(PLANS / "chat-llama-3.1-8b-trace-h100.yaml")


@pytest.fixture(scope="module")
def chat() -> tuple[PlanReport, ...]:
    return report_of([CHAT])


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    main([*arguments, "--json"])
    return json.loads(capsys.readouterr().out)


def test_figures_are_those_of_the_other_commands(
    chat: tuple[PlanReport, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    tree = read(report_page(chat))
    (checked,) = printed(capsys, "check", CHAT)["plans"]
    shown = {one.get("data-name"): one.get("value") for one in section(tree, "Figures").iter("data")}
    assert shown == {fact["name"]: str(fact["value"]) for fact in checked["facts"]}
    budget = printed(capsys, "size", CHAT)["budget"]
    memory = [values(row) for row in rows(section(tree, "Memory of"))]
    wanted = [*(line["bytes"] for line in budget["lines"]), budget["kv_pool_bytes"], budget["unused_bytes"]]
    assert memory == [[str(amount)] for amount in (*wanted, budget["total_bytes"])]
    held = {row[0]: row[1:] for row in map(values, rows(section(tree, "Requests over length")))}
    facts = {fact["name"]: str(fact["value"]) for fact in checked["facts"]}
    assert held[facts["tokens"]] == [facts["max_requests"], facts["safe_max_requests"]]
    kinds = "h100,h200,b200,l40s,a100,mi300x"
    options = printed(capsys, "plan", CHAT, "--gpu", kinds, "--top", "6")["options"]
    there = {row[0].text: values(row) for row in rows(section(tree, "GPUs side by side"))}
    assert set(there) == {one["gpu"] for one in options}
    for one in options:
        figures = [str(one[name]) for name in ("gpus", "requests", "safe_requests", "kv_pool_bytes")]
        assert there[one["gpu"]][:4] == figures


def test_the_figure_that_fails_is_the_headline(capsys: pytest.CaptureFixture[str]) -> None:
    """And with it what speaks: the model, the engine, the GPUs; the start is a command."""
    path = ROOT / "tests" / "cli" / "golden" / "inputs" / "plans" / "rag.yaml"
    reports = report_of([path], gpus=())
    (checked,) = printed(capsys, "check", str(path))["plans"]
    wrong = next(one for one in checked["findings"] if one["severity"] == "error")
    tree = read(report_page(reports))
    (head,) = tree.iter("h1")
    assert words(head) == wrong["message"] + "."
    assert "bad" in (head.get("class") or "")
    about, held, state = (words(one) for one in next(tree.iter("header")).iter("p"))
    assert about == "rag · Qwen/Qwen3-32B · vLLM 0.32, one engine on 2 × h100-sxm-80gb"
    assert held.endswith("hold 10 requests of 32,768 tokens; safely 9.")
    assert state.startswith("The plan fails")
    titles = [words(one) for one in tree.iter("h2")]
    assert titles[:2] == ["Findings", "Figures"]
    assert "vllm serve Qwen/Qwen3-32B" in words(section(tree, "What is started"))
    assert "required: 40" in words(section(tree, "Requests over length"))
    assert f"**{said(words(head))}**" in report_markdown(reports)
    both = read(report_page([*reports, PlanReport(PASSING)]))
    assert words(head) in [words(one) for one in both.iter("p") if one.get("class") == "answer"]


def test_every_figure_has_its_source(chat: tuple[PlanReport, ...]) -> None:
    tree = read(report_page(chat))
    for title in ("Figures", "Memory of"):
        assert all(words(row[-1]) for row in rows(section(tree, title)))
    assert all(words(row[-1]) for row in rows(section(tree, "Memory optimizations")))


def test_every_picture_has_its_numbers_beside_it(chat: tuple[PlanReport, ...]) -> None:
    tree = read(report_page(chat))
    drawn = [one for one in tree.iter("section") if list(one.iter("svg"))]
    assert len(drawn) == 3
    for one in drawn:
        assert list(one.iter("table"))
    check_pictures(tree)


def test_the_json_has_what_the_page_shows(
    chat: tuple[PlanReport, ...], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    page = tmp_path / "out.html"
    data = printed(capsys, "export", CHAT, "--compare-gpus", "none", "--to", "html", "-o", str(page))
    assert page.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    (one,) = data["plans"]
    assert one["check"] == printed(capsys, "check", CHAT)["plans"][0]
    assert one["size"]["budget"] == printed(capsys, "size", CHAT)["budget"]
    assert one["plan"] is None
    assert one["lengths"] == [held._asdict() for held in chat[0].lengths]


def test_the_same_plan_gives_the_same_page(chat: tuple[PlanReport, ...]) -> None:
    assert report_page(chat) == report_page(report_of([CHAT]))


def test_a_simulation_is_in_it_where_it_is_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "out.html"
    assert (
        main(["export", TRACE, "--simulate", "--compare-gpus", "none", "--to", "html", "-o", str(page)]) == 0
    )
    capsys.readouterr()
    tree = read(page.read_text(encoding="utf-8"))
    for title, pictures in (("Simulated load over time", 3), ("Simulated latency", 2)):
        assert len(list(section(tree, title).iter("svg"))) == pictures
    check_pictures(tree)
    assert "preemption" in words(section(tree, "Memory optimizations"))


@pytest.mark.parametrize(
    "name",
    [
        "deepseek-v3-sglang-8xh200",
        "rtx-4090-llama.cpp-qwen3-8b",
        "hybrid-jamba-1.5-mini-2xh100",
        "llama-3.3-70b-fp8-trtllm-2xh200",
    ],
)
def test_every_engine(name: str) -> None:
    reports = report_of([PLANS / f"{name}.yaml"], gpus=())
    tree = read(report_page(reports))
    assert reports[0].left_out == ()
    assert rows(section(tree, "Memory of"))
    assert rows(section(tree, "Requests over length"))


def test_names_are_words_wherever_they_stand() -> None:
    reports = [PlanReport(one) for one in (PASSING, FAILING, UNREAD, HOSTILE_PLAN)]
    tree = read(report_page(reports))
    assert words(tree).count("<script>%0A##") >= 4
    assert "\x1b" not in words(tree)
    alone = read(report_page([PlanReport(HOSTILE_PLAN)]))
    title = alone.find(".//title")
    assert title is not None
    assert "<script>" in (title.text or "")
    text = report_markdown(reports)
    outside = re.sub(r"^(`{3,})text\n.*?^\1$", "", text, flags=re.DOTALL | re.MULTILINE)
    assert "<script>" not in outside
    assert "@team" not in re.sub(r"`[^`\n]*`", "", outside)  # in a code span nobody is called


def test_a_hostile_file_is_shown_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "a<b>&'\"onload=alert(1).yaml"
    file.write_text(
        "kvplan: plan/v1\nname: '<img src=x onerror=alert(1)>'\nmodel: llama-3.1-8b\nengine: vllm@0.33\n"
        "gpu: h100\ngpus: 1\nserve: {max_model_len: 8192}\n", encoding="utf-8",
    )  # fmt: skip
    page = tmp_path / "out.html"
    code = main(["export", str(file), "--compare-gpus", "none", "--to", "html", "-o", str(page)])
    capsys.readouterr()
    assert code in (0, 2)
    tree = read(page.read_text(encoding="utf-8"))
    assert [one.tag for one in tree.iter() if one.tag in ("img", "script")] == []
    assert file.name in words(tree)


def test_a_page_has_its_limit() -> None:
    """Plans without number, findings without end: what does not fit is counted, never cut in the middle."""
    many = [PlanReport(PASSING)] * 400 + [PlanReport(FAILING)] * 200
    text = report_page(many)
    assert len(text.encode()) <= LIMIT
    tree = read(text)
    assert re.search(r"\d+ plans not at all", words(tree))


def test_many_plans_are_shortened_first(chat: tuple[PlanReport, ...]) -> None:
    text = report_page([*chat] * 60)
    assert len(text.encode()) <= LIMIT
    tree = read(text)
    assert len(list(tree.iter("article"))) == 60
    assert re.search(r"\d+ plans in short", words(tree))


def test_other_kinds_are_planned_beside_a_few_plans_only(tmp_path: Path) -> None:
    plan = "kvplan: plan/v1\nname: p{}\nmodel: llama-3.2-1b\nengine: vllm@0.33\ngpu: l4\ngpus: 1\n"
    plan += "require: {{requests: 4, tokens: 4096}}\nserve: {{max_model_len: 8192}}\n"
    file = tmp_path / "plans.yaml"
    file.write_text("---\n".join(plan.format(number) for number in range(FEW + 1)), encoding="utf-8")
    assert all(one.kinds is None for one in report_of([file]))
    asked = report_of([file], gpus=["l4", "rtx-4090"])
    assert all(one.kinds is not None and len(one.kinds.options) == 2 for one in asked)


def test_exit_codes_are_those_of_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    golden = ROOT / "tests" / "cli" / "golden" / "inputs"
    for name in ("plans/chat.yaml", "plans/rag.yaml", "broken-plan.yaml", "refused-plan.yaml"):
        code = main(["check", str(golden / name)])
        page = tmp_path / "out.html"
        words_ = ["export", str(golden / name), "--compare-gpus", "none", "--to", "html", "-o", str(page)]
        assert main(words_) == code
        read(page.read_text(encoding="utf-8"))
    capsys.readouterr()


@pytest.mark.parametrize(("arguments", "said"), [
    ([CHAT, "--to", "markdown", "--image", "x"], "--image does not go with --to markdown"),
    ([CHAT, "--simulate"], "--simulate does not go with --to command"),
    ([CHAT, CHAT], "takes one plan"),
    ([CHAT, "--to", "markdown", "--compare-gpus", "h100,nosuch"], "nosuch"),
    (["no-such-plan.yaml", "--to", "markdown"], "no-such-plan.yaml"),
    (["-", "-", "--to", "markdown"], "once only"),
])  # fmt: skip
def test_refused(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["export", *arguments])
    out, err = capsys.readouterr()
    assert said in out + err
    assert code in (0, 2)


def test_a_page_that_cannot_be_written_leaves_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        main(
            [
                "export",
                CHAT,
                "--compare-gpus",
                "none",
                "--to",
                "html",
                "-o",
                str(tmp_path / "no" / "out.html"),
            ]
        )
        == 2
    )
    assert "cannot be written" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_markdown_has_the_same_figures(chat: tuple[PlanReport, ...]) -> None:
    text = report_markdown(chat)
    answer = next(one for one in read(report_page(chat)).iter("h1") if one.get("class") == "answer")
    assert f"**{said(words(answer))}**" in text
    for one in chat[0].lengths:
        assert re.search(rf"\| \**{one.tokens:,}\** \| \**{one.likely:,}\** \| \**{one.safe:,}\** \|", text)
    assert "<svg" not in text
    budget = chat[0].result.budget if chat[0].result is not None else None
    assert budget is not None
    shown = re.search(r"^\| KV cache \| ([\d.]+ GiB)", text, re.MULTILINE)
    assert shown is not None
    assert abs(parse_bytes(shown[1].replace(" ", "")) - budget.kv_pool_bytes) < 2**24
