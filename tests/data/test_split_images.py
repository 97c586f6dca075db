"""How images come out of a split, and that augmentation can be resumed."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from bspml.data.retrieval import RetrievalSplit
from bspml.data.transforms import Whole
from bspml.errors import DataError


def names(*labels):
    return np.array(labels, dtype=str)


def test_images_are_fractions_of_the_asked_size(photos):
    for channels in (1, 3):
        image = photos.images(8, channels)[0]
        assert image.shape == (channels, 8, 8)
        assert image.dtype == torch.float32
        assert 0 <= image.min() <= image.max() <= 1


def test_boxes_are_looked_at_if_asked(photos):
    """The right half of an image is bright, the left one dark."""
    whole = photos.images(8, 1, view=Whole(8))[0]
    inside = photos.images(8, 1, crop_boxes=True, view=Whole(8))[0]
    assert whole.min() < 0.2 < 0.28 < inside.min()


def test_boxes_in_shares_of_the_image_or_of_a_pixel_are_refused(photos):
    shares = np.tile([0.1, 0.2, 0.6, 1.0], (len(photos), 1))
    tiny = photos.boxes.copy()
    tiny[1, 2] = tiny[1, 0] + 1.5
    for boxes, words in ((shares, r"All boxes lie in 0 to 1: multiply"), (tiny, "1 box must be")):
        with pytest.raises(DataError, match=rf"below 2; the first is .*{words}|{words}.*below 2"):
            replace(photos, boxes=boxes).images(8, 1, crop_boxes=True)
        assert len(replace(photos, boxes=boxes).images(8, 1)) == len(photos)
    tiny[1, 2] = tiny[1, 0] + 2
    assert len(replace(photos, boxes=tiny).images(8, 1, crop_boxes=True)) == len(photos)


def test_augmented_views_do_not_depend_on_order_workers_or_earlier_epochs(photos):
    first = photos.images(8, augment=True, seed=5)
    first.set_epoch(3)
    expected = torch.stack([first[i] for i in range(6)])
    again = photos.images(8, augment=True, seed=5)
    for epoch in (0, 3):  # as after a resume, or not
        again.set_epoch(epoch)
        shown = torch.stack([again[i] for i in reversed(range(6))]).flip(0)
        assert torch.equal(shown, expected) == (epoch == 3)
    other = photos.images(8, augment=True, seed=6)
    other.set_epoch(3)
    assert not torch.equal(torch.stack([other[i] for i in range(6)]), expected)


def test_workers_that_live_on_see_the_epoch_change(photos):
    images = photos.images(8, augment=True)
    loader = DataLoader(images, batch_size=6, num_workers=1, persistent_workers=True)
    for epoch in (0, 1):
        images.set_epoch(epoch)
        (shown,) = list(loader)
        assert torch.equal(shown, torch.stack([images[i] for i in range(6)]))


def test_the_global_generator_is_left_alone(photos):
    images = photos.images(8, augment=True)
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002
    images[0]
    drawn = torch.rand(1), np.random.rand()  # noqa: NPY002
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002
    assert drawn == (torch.rand(1), np.random.rand())  # noqa: NPY002


def test_an_unreadable_image_names_its_file(photos, tmp_path):
    (tmp_path / "a/1.jpg").write_bytes(b"no image")
    with pytest.raises(DataError, match=r"a/1\.jpg: cannot be read"):
        photos.images(8)[1]


def test_pixels_in_memory_are_shown_as_they_are_where_they_fit():
    pixels = torch.arange(2 * 1 * 4 * 4, dtype=torch.uint8).reshape(2, 1, 4, 4)
    split = RetrievalSplit("train", names("a", "b"), pixels=pixels, content="tile")
    assert torch.equal(split.images(4, 1)[1], pixels[1].float() / 255)
    assert torch.equal(split.images(4, 3)[1], (pixels[1].float() / 255).expand(3, 4, 4))
    assert split.images(8, 1)[0].shape == (1, 8, 8)
    assert split.images(4, 1, augment=True)[0].shape == (1, 4, 4)
    colour = RetrievalSplit("train", names("a"), pixels=torch.ones(1, 3, 4, 4))
    torch.testing.assert_close(colour.images(4, 1)[0], torch.ones(1, 4, 4), atol=1e-3, rtol=0)


def test_no_index_beyond_the_split(photos):
    with pytest.raises(IndexError, match="index 6 is outside the 6 images"):
        photos.images(8)[6]
    assert torch.equal(photos.images(8)[-1], photos.images(8)[5])
