"""The loop of docs/distributed.md, as it stands there, on two processes and on one."""

import contextlib
import io
import re

import torch

from helpers.places import REPOSITORY

PAGE = REPOSITORY / "docs" / "distributed.md"
CASES = ("loop",)


def as_a_process(_case, _rank):
    (loop,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    torch.manual_seed(0)
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(compile(loop, str(PAGE), "exec"), {})
    return said.getvalue()


def test_the_loop_of_the_page_runs_and_one_rank_says_what_one_process_says(everyone):
    first, second = everyone(__file__, 2, "loop")
    assert re.fullmatch(r"noise rate 0\.\d+, MAW 0\.\d+\n", first)
    assert second == ""
    assert as_a_process("loop", 0) == first
