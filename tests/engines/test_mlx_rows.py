"""Rows of MLX's caches after a prompt in steps of any size: the formula is the steps, one by one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kvplan.engines.mlx.rows import STEP, Course, chunked_rows, growing_rows
from kvplan.units import round_up
from tests.laws.sampling import sampled

courses = st.builds(
    lambda prompt, answer, step: Course(prompt, prompt + answer, step),
    st.integers(0, 5000),
    st.integers(0, 600),
    st.sampled_from((1, 3, 100, 255, 256, 257, 300, 513, 777)) | st.integers(1, 3000),
)


@sampled(60, 2000)
@given(courses)
def test_an_array_that_grows_by_uneven_steps(course: Course) -> None:
    rows = held = 0
    read = min(max(course.prompt - 1, 0), course.tokens)
    while held < read:
        added = min(course.step, read - held)
        if held + added > rows:
            rows = (held if held % STEP else rows) + round_up(added, STEP)
        held += added
    assert growing_rows(course) == rows + round_up(max(0, course.tokens - rows), STEP)


@sampled(60, 2000)
@given(courses, st.sampled_from((256, 512, 8192)))
def test_a_chunk_that_is_cut_before_every_step(course: Course, chunk: int) -> None:
    rows = held = done = 0
    read = min(max(course.prompt - 1, 0), course.tokens)
    while done < read:
        added = min(course.step, read - done)
        if held > chunk:
            rows = held = chunk
        if held + added > rows:
            rows = (held if held % STEP else rows) + round_up(added, STEP)
        held, done = held + added, done + added
    singles = course.tokens - read
    full = bool(singles) and held + singles - 1 > chunk
    last = rows + round_up(max(0, held + singles - rows), STEP)
    assert chunked_rows(course, chunk) == (chunk + STEP if full else last)


def test_the_steps_of_any_prompt_are_few() -> None:
    for step in (1, 777):
        assert growing_rows(Course(10**15, 10**15, step)) >= 10**15
        assert chunked_rows(Course(10**15, 10**15, step), 8192) == 8192 + STEP
