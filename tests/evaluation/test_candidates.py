"""Candidates among themselves against a full sort of all products."""

import numpy as np
import pytest
import torch

from bspml.evaluation import candidates, neighbours
from bspml.evaluation.candidates import propose_among
from bspml.evaluation.neighbours import ranked_neighbours
from bspml.tensors.unit_rows import grid_unit_rows


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(candidates, "_BLOCK", 32)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("order", ["drawn", "along a curve", "copies"])
def test_candidates_are_the_largest_of_all_products(small_blocks, threads, order):
    draw = torch.Generator().manual_seed(0)
    rows = torch.randint(-9, 10, (203, 6), generator=draw).float()  # so products are whole
    if order == "along a curve":
        rows = rows.cumsum(0) % 97
    if order == "copies":
        rows[103:] = rows[:100].clone()
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        scores, columns = propose_among(rows, 20)
    finally:
        torch.set_num_threads(before)
    products = rows @ rows.T
    largest = products.sort(1, descending=True).values[:, :20]
    assert torch.equal(scores.sort(1, descending=True).values, largest)
    assert torch.equal(products.gather(1, columns.long()), scores)
    assert all(len(set(row)) == 20 for row in columns.tolist())


@pytest.mark.parametrize(("asked", "among"), [(500, 1), (300, 1), (200, 0)])
def test_most_of_the_rows_are_searched_among_themselves_and_few_are_not(
    small_blocks, monkeypatch, asked, among
):
    calls = []

    def counted(*arguments):
        calls.append(arguments)
        return propose_among(*arguments)

    monkeypatch.setattr(neighbours, "propose_among", counted)
    draw = torch.Generator().manual_seed(1)
    x = grid_unit_rows(torch.randint(-2, 3, (500, 5), generator=draw).double())  # ties, copies
    own = torch.randperm(500, generator=draw)[:asked]
    found = [
        torch.cat([part for _, part in ranked_neighbours(x[own], x, 7, own, backend, 90)])
        for backend in ("faiss", "torch")
    ]
    assert torch.equal(*found)
    assert len(calls) == among
    assert not np.any(found[0].numpy() == own[:, None].numpy())


def test_what_would_need_much_memory_is_searched_by_blocks(monkeypatch):
    x = grid_unit_rows(torch.randn(400, 4, generator=torch.Generator().manual_seed(2)))
    assert neighbours._is_among(400, x, 30)
    monkeypatch.setattr(neighbours, "_BLOCK_BYTES", 8 * 30 * 400 - 1)
    assert not neighbours._is_among(400, x, 30)
