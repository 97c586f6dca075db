"""What the annotations of bspml promise is held to in every test: the checker itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, no_type_check

import pytest
import torch
from jaxtyping import TypeCheckError

from bspml.shapes import Float, Int, Tensor
from bspml.tensors.checks import check_number
from bspml.tensors.unit_rows import unit_rows
from helpers.typechecks import checked

if TYPE_CHECKING:
    from nowhere import Unknown


@checked
def rows(
    x: Float[Tensor, "N D"], labels: Int[Tensor, " N"], half: float = 0.5
) -> Float[Tensor, " N"]:
    return x[:, 0] if half else x[0]


@checked
def plain(count: int, unknown: Unknown = None) -> str:
    return "x" * count if count else 0


@checked
def steps(x: Float[Tensor, "N D"], count: int) -> Iterator[Tensor]:
    yield from x[:count]


@checked
@dataclass
class Batch:
    x: Float[Tensor, "B D"]
    labels: Int[Tensor, " B"]
    name: str = ""


def test_one_letter_is_one_number_in_arguments_and_result():
    x, labels = torch.zeros(3, 2), torch.zeros(3, dtype=torch.long)
    assert rows(x, labels, 1).shape == (3,)
    assert rows(x[:2], labels[:2]).shape == (2,)  # of another call: another number
    for wrong in ((x, labels[:2]), (x[0], labels), (x.long(), labels), (x, labels, "half")):
        with pytest.raises(TypeCheckError):
            rows(*wrong)
    with pytest.raises(TypeCheckError):
        rows(x, labels, half=0)  # returns (D,), and D is not N
    assert rows(x[:2], labels[:2], 0).shape == (2,)  # D is N


def test_without_letters_arguments_and_results_are_checked_too():
    assert (plain(2), plain(1, unknown=object())) == ("xx", "x")
    for call in (lambda: plain("2"), lambda: plain(0)):
        with pytest.raises(TypeCheckError):
            call()


def test_a_generator_is_checked_when_it_is_called():
    @checked
    def summed(x: Float[Tensor, "N D"], parts: Float[Tensor, "D K"]) -> Tensor:
        return sum(steps(parts, 2))  # its N is another

    assert summed(torch.ones(4, 3), torch.ones(3, 2)).tolist() == [2.0, 2.0]
    with pytest.raises(TypeCheckError):
        steps(torch.ones(3, 2), "2")


def test_a_dataclass_is_checked_when_it_is_made():
    batch = Batch(torch.zeros(3, 2), torch.zeros(3, dtype=torch.long))
    assert batch.name == ""
    for fields in ((batch.x, batch.labels[:2]), (batch.x, batch.labels, 3)):
        with pytest.raises(TypeCheckError):
            Batch(*fields)


def test_who_asks_for_no_check_has_none():
    @no_type_check
    def free(x: int):
        return x

    assert checked(free) is free
    assert checked(checked(rows)) is rows


def test_the_functions_of_bspml_are_checked():
    with pytest.raises(TypeCheckError):
        check_number(3, name=5)
    with pytest.raises(TypeCheckError):
        unit_rows(torch.zeros(3))
