"""Groups of copies: who is in one, and which picture stands for many labels."""

import numpy as np
import torch

from bspml.statistics.copies.copy_groups import copy_groups, list_copy_groups
from bspml.statistics.copies.duplicates import find_duplicates
from bspml.tensors.unit_rows import grid_unit_rows


def clean(seed, num_classes=20, members=10):
    rng = np.random.default_rng(seed)
    codes = np.repeat(np.arange(num_classes), members)
    x = 3 * rng.standard_normal((num_classes, 32))[codes]
    return x + rng.standard_normal(x.shape), codes


def table_of(x, codes):
    return find_duplicates(grid_unit_rows(torch.as_tensor(x)), codes)


def test_one_picture_under_twenty_labels_is_a_placeholder():
    x, codes = clean(0)
    x[::10] = x[0]
    table = table_of(x, codes)
    (group,) = list_copy_groups(table, codes)
    assert group.samples.tolist() == list(range(0, 200, 10))
    assert (len(group), len(group.label_counts), group.kind) == (20, 20, "exact")
    assert group.placeholder
    number = copy_groups(table, 200)
    assert (number[::10] == 0).all()
    assert number[[1, 9, 11, 199]].tolist() == [1, 9, 10, 180]  # in order of first samples


def test_two_placeholders_and_a_plain_copy_are_three_groups():
    x, codes = clean(1, 100, 4)
    x[::4], x[1::8] = x[0], x[1]
    x[3] = x[2]
    groups = list_copy_groups(table_of(x, codes), codes)
    assert [(len(g), len(g.label_counts), g.placeholder) for g in groups] == [
        (100, 100, True),
        (50, 50, True),
        (2, 1, False),
    ]


def test_a_near_copy_makes_its_group_near():
    x, codes = clean(2)
    x[50] = x[0]
    x[100] = x[0] + 0.01
    table = table_of(x, codes)
    (group,) = list_copy_groups(table, codes)
    assert (group.samples.tolist(), group.kind) == ([0, 50, 100], "near")
    assert group.placeholder  # three labels


def test_without_pairs_everyone_is_alone():
    x, codes = clean(3)
    table = table_of(x, codes)
    assert copy_groups(table, 200).tolist() == list(range(200))
    assert list_copy_groups(table, codes) == ()
