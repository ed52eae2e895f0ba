"""Reports to draw: ordinary ones, and hostile ones from Hypothesis."""

from __future__ import annotations

from hypothesis import strategies as st

from kvplan.errors import KvplanError, Mark
from kvplan.plans.findings import CheckedPlan, CheckReport, Fact, Finding, Severity

HOSTILE = "::error::x|`]]>` @team\n<script>%0A##[error]y,z:é😀\x1b[31m\\|"
WINDOWS = ".\\plans\\chat one.yaml"


def mark(path: str, line: int = 12, column: int = 3, end: int = 17) -> Mark:
    return Mark(path, line, column, end, "  tensor_parallel_size: 3")


def facts(requests: int, pool: int, gpus: int = 2, cost: int | None = None) -> tuple[Fact, ...]:
    made = (
        Fact("gpus", gpus, "gpus"),
        Fact("max_requests", requests, "requests"),
        Fact("kv_pool_bytes", pool, "bytes"),
    )
    return made if cost is None else (*made, Fact("cost_per_hour", cost, "millionths"))


PASSING = CheckedPlan(
    "chat", "plans/chat.yaml", None, facts=facts(60, 40 * 2**30, cost=7_980_000),
    summary="2 × h100-sxm-80gb hold 60 requests of 8,192 tokens", mark=mark("plans/chat.yaml", 1),
)  # fmt: skip
FAILING = CheckedPlan(
    "rag", "plans/rag.yaml", "prod",
    (
        Finding(
            "requests-do-not-fit", Severity.ERROR, "12 requests of 131,072 tokens do not fit: 9 do",
            "require.requests", ("the pool has 62.30 GiB", "a request takes 6.40 GiB"), ("gpus: 4",),
            mark("plans/rag.yaml"),
        ),
        Finding(
            "prefix-caching-off", Severity.WARNING, "prefixes are not kept", "serve",
            mark=mark("plans/rag.yaml", 9),
        ),
        Finding("environments-not-checked", Severity.NOTE, "the plan was checked as it stands"),
    ),
    facts(9, 62 * 2**30, 4), "4 × h100-sxm-80gb hold 9 requests of 131,072 tokens",
    mark=mark("plans/rag.yaml", 1),
)  # fmt: skip
UNREAD = CheckedPlan(
    "typo", "plans/typo.yaml", None,
    error=KvplanError(
        "unknown-flag", "vllm has no flag `max_seqs` that kvplan knows",
        where=Mark("plans/typo.yaml", 7, 3, 11, "  max_seqs: 3"), help="did you mean max_num_seqs?",
    ),
)  # fmt: skip
HOSTILE_PLAN = CheckedPlan(
    HOSTILE, WINDOWS, "`", (Finding("bad-gpu", Severity.ERROR, HOSTILE, HOSTILE, (HOSTILE,), (HOSTILE,)),),
    facts(1, 1), HOSTILE, mark=mark(WINDOWS),
)  # fmt: skip
BEFORE = (
    CheckedPlan("chat", "plans/chat.yaml", None, facts=facts(72, 48 * 2**30, cost=7_980_000)),
    CheckedPlan("gone", "plans/gone.yaml", None),
)
REPORT = CheckReport((PASSING, FAILING, UNREAD))
COMPARED = CheckReport((PASSING, FAILING), BEFORE)
HOSTILE_REPORT = CheckReport((HOSTILE_PLAN, PASSING), (HOSTILE_PLAN,))
EMPTY = CheckReport(())
REPORTS = {"report": REPORT, "compared": COMPARED, "hostile": HOSTILE_REPORT, "empty": EMPTY}

_text = st.text(max_size=20) | st.sampled_from(
    [
        HOSTILE,
        "```",
        "````",
        "a|b",
        "",
        " ",
        "\\",
        "::warning::",
        "]]>",
        "&amp;",
        "\r",
        "\x00",
        "%",
        "@x",
        "-->",
    ]
)
_number = st.integers(1, 10**6)
_marks = st.none() | st.builds(Mark, _text, _number, _number, _number, _text)
_findings = st.builds(
    Finding, st.sampled_from(["a-b", "c"]), st.sampled_from(list(Severity)), _text, st.none() | _text,
    st.lists(_text, max_size=2).map(tuple), st.lists(_text, max_size=2).map(tuple), _marks,
)  # fmt: skip
_errors = st.builds(
    lambda message, where, lines: KvplanError("some-error", message, where=where, detail=lines), _text,
    _marks | _text, st.lists(_text, max_size=2),
)  # fmt: skip
_plans = st.builds(
    CheckedPlan, _text, _text, st.none() | _text, st.lists(_findings, max_size=3).map(tuple),
    st.just(()) | st.just(facts(3, 2**30)), _text, st.none() | _errors, _marks,
)  # fmt: skip
reports = st.builds(
    CheckReport, st.lists(_plans, max_size=4).map(tuple), st.lists(_plans, max_size=2).map(tuple)
)
