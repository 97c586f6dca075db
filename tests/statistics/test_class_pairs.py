"""Pairs within classes: each ordered pair exactly once, whatever the class sizes."""

import numpy as np
import pytest
import torch

from bspml.statistics.class_pairs import class_blocks


@pytest.mark.parametrize("sizes", [[1], [1, 1, 1], [3, 1, 4], [300, 2, 5], [2, 700, 1, 255, 3]])
def test_every_ordered_pair_of_a_class_comes_once(sizes):
    codes = torch.repeat_interleave(torch.arange(len(sizes)) * 2, torch.tensor(sizes))
    codes = codes[torch.randperm(len(codes), generator=torch.Generator().manual_seed(0))]
    E = torch.nn.functional.normalize(torch.randn(len(codes), 3).double())
    seen = torch.zeros(len(codes), len(codes), dtype=torch.int64)
    for rows, columns, S, pair in class_blocks(E, codes):
        seen[rows[:, None], columns] += pair.long()
        np.testing.assert_allclose(S, E[rows] @ E[columns].T, atol=1e-12)
    expected = (codes[:, None] == codes) & ~torch.eye(len(codes), dtype=torch.bool)
    assert torch.equal(seen, expected.long())


def test_a_class_wider_than_a_block_is_cut(monkeypatch):
    monkeypatch.setattr("bspml.statistics.class_pairs._WIDE", 7)
    codes = torch.tensor([0] * 20 + [1] * 3)
    E = torch.ones(23, 1)
    assert sum(int(pair.sum()) for *_, pair in class_blocks(E, codes)) == 20 * 19 + 3 * 2
    assert max(S.numel() for _, _, S, _ in class_blocks(E, codes)) <= 49
