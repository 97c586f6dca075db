"""The standard views: torchvision's sizes and distribution, but a pure function of the draws."""

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision import transforms as tv

from bspml.data.transforms import CentreCrop, RandomCrop, Whole, draws, standard_view
from bspml.errors import InputError


def picture(width, height, seed=0):
    rng = np.random.default_rng(seed)
    return Image.fromarray(rng.integers(0, 256, (height, width, 3), dtype=np.uint8))


@pytest.mark.parametrize("size", [(300, 200), (200, 300), (64, 64)])
def test_the_test_view_is_torchvisions_resize_256_and_centre_crop_224(size):
    image = picture(*size)
    expected = tv.Compose([tv.Resize(256), tv.CenterCrop(224)])(image)
    np.testing.assert_array_equal(np.asarray(CentreCrop(224)(image)), np.asarray(expected))


def test_the_random_view_is_torchvisions_for_the_same_part():
    image = picture(40, 30)
    crop = RandomCrop(16, mirror=False)
    top, left, height, width = crop.part(40, 30, draws(0, 0, 5))
    expected = tv.functional.resized_crop(image, top, left, height, width, [16, 16])
    np.testing.assert_array_equal(np.asarray(crop(image, draws(0, 0, 5))), np.asarray(expected))


def test_parts_are_distributed_as_torchvisions():
    """The same 20 quantiles of area and shape, within what 4,000 draws leave open."""
    rng, n = np.random.default_rng(0), 4000
    ours = np.array([RandomCrop(8).part(120, 90, rng)[2:] for _ in range(n)], dtype=float)
    image = torch.zeros(3, 90, 120)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        get = tv.RandomResizedCrop.get_params
        parts = [get(image, [0.08, 1], [3 / 4, 4 / 3])[2:] for _ in range(n)]
        theirs = np.array(parts, dtype=float)
    levels = np.linspace(0.05, 0.95, 19)
    for of in (lambda part: part.prod(1) / 10_800, lambda part: part[:, 1] / part[:, 0]):
        gap = np.abs(np.quantile(of(ours), levels) - np.quantile(of(theirs), levels))
        assert gap.max() < 0.04  # two standard errors of the widest quantile, about


def test_parts_lie_inside_images_of_any_shape():
    for width, height in ((1, 1), (1, 50), (50, 1), (7, 3), (1000, 10)):
        for i in range(50):
            top, left, h, w = RandomCrop(4).part(width, height, draws(1, 2, i))
            assert 0 <= top <= height - h
            assert 0 <= left <= width - w
            assert h >= 1 <= w


def test_half_of_the_views_are_mirrored_and_characters_never_are():
    left_is_dark = np.zeros((8, 8, 3), dtype=np.uint8)
    left_is_dark[:, 4:] = 255
    image = Image.fromarray(left_is_dark)

    def mirrored(view):
        shown = [np.asarray(view(image, draws(0, 0, i))).astype(int) for i in range(200)]
        return np.mean([s[:, 0].mean() > s[:, -1].mean() for s in shown])

    whole = {"scale": (1.0, 1.0), "ratio": (1.0, 1.0)}
    assert 0.4 < mirrored(RandomCrop(8, **whole)) < 0.6
    assert mirrored(RandomCrop(8, mirror=False, **whole)) == 0
    assert not standard_view(8, "character", augment=True).mirror


def test_tensors_and_pillow_images_are_seen_alike():
    image = picture(40, 30)
    tensor = torch.from_numpy(np.array(image)).permute(2, 0, 1)
    for view in (CentreCrop(16), Whole(16), RandomCrop(16)):
        one = np.asarray(view(image, draws(3, 1, 4))).astype(int)
        two = view(tensor, draws(3, 1, 4)).permute(1, 2, 0).numpy().astype(int)
        assert one.shape == two.shape == (16, 16, 3)
        assert np.abs(one - two).max() <= 2  # two resamplers round differently


def test_draws_depend_on_seed_epoch_and_sample_only():
    first = draws(1, 2, 3).random(4)
    np.testing.assert_array_equal(first, draws(1, 2, 3).random(4))
    for other in (draws(0, 2, 3), draws(1, 3, 3), draws(1, 2, 4)):
        assert not np.array_equal(first, other.random(4))


def test_unknown_contents_and_sizes_are_refused():
    with pytest.raises(InputError, match="`content` must be one of photo, tile, character"):
        standard_view(8, "painting")
    with pytest.raises(InputError, match="`image_size`"):
        standard_view(0)
    assert isinstance(standard_view(8, "tile"), Whole)
    assert isinstance(standard_view(8), CentreCrop)
