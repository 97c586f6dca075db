"""The halves of a cross-fitted warm-up."""

import torch

from bspml.trainers.curriculum.halves import random_half


def test_every_class_is_halved_odd_ones_balancing_each_other_at_random_by_seed():
    codes = torch.tensor([2, 0, 1, 0, 1, 2, 0, 1, 2, 3])
    halves = [random_half(codes, seed) for seed in range(8)]
    for half in halves:
        assert int(half.sum()) == 5
        for code in range(4):
            size, inside = int((codes == code).sum()), int(half[codes == code].sum())
            assert abs(2 * inside - size) <= 1
    assert len({tuple(half.tolist()) for half in halves}) > 4
    assert torch.equal(random_half(codes, 3), halves[3])


def test_names_of_classes_and_groups_do_not_matter():
    generator = torch.Generator().manual_seed(0)
    codes, group = torch.randint(0, 7, (90,), generator=generator), torch.arange(90) // 2
    names, others = (torch.randperm(n, generator=generator) for n in (7, 45))
    assert torch.equal(random_half(names[codes], 1), random_half(codes, 1))
    renamed = random_half(names[codes], 1, others[group])
    assert torch.equal(renamed, random_half(codes, 1, group))
    assert torch.equal(random_half(codes, 1, 5 * group + 3), renamed)  # numbers with gaps


def test_what_belongs_together_lies_in_one_half():
    codes = torch.arange(300) % 5
    group = torch.cat([torch.arange(200), torch.arange(100)])  # the first hundred come twice
    half = random_half(codes, 1, group)
    assert torch.equal(half[:100], half[200:])
    assert int(half[:200].sum()) == 100
    assert torch.equal(random_half(codes, 1, torch.arange(300)), random_half(codes, 1))
