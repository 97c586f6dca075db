"""`check_dataset`: every fault gets a sentence that names its files."""

import os

import numpy as np
import pytest
from PIL import Image

from bspml.data.checking import check_dataset
from bspml.errors import InputError
from helpers.published_trees import image_at, write_lines


@pytest.fixture
def birds(cub_tree):
    """A CUB of four classes with four images each, and its image folder."""
    base = cub_tree(per_class=4)
    names = [line.split()[1] for line in (base / "images.txt").read_text().splitlines()]
    return base, names


def truncate(path, share=0.5):
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])


def kinds(report):
    return [problem.kind for problem in report.problems]


def test_a_sound_subset_is_fine(birds):
    report = check_dataset("cub", birds[0], subset=True)
    assert report.ok
    assert report.splits == {"train": (8, 2), "test": (8, 2)}
    assert report.files_seen == 16
    assert report.notes == ()


@pytest.mark.parametrize("share", [0.2, 0.5, 0.99])  # in its header, tables or pixels
def test_one_missing_one_truncated_one_grey(birds, share):
    base, names = birds
    (base / "images" / names[0]).unlink()
    truncate(base / "images" / names[1], share)
    image_at(base / "images" / names[2], mode="L")
    report = check_dataset("cub", base)
    assert kinds(report) == ["counts", "missing", "truncated"]
    counts, missing, truncated = report.problems
    assert "the train split lists 8 images instead of 5,864" in counts.sentence
    assert missing.sentence == (
        f"1 image is missing in {base / 'images'}: {names[0]}. Unpack the archive again."
    )
    assert missing.files == (names[0],)
    assert truncated.sentence.startswith(f"1 image is truncated in {base / 'images'}: {names[1]} (")
    assert truncated.sentence.endswith(". Replace it.")
    assert report.notes == (f"1 image is greyscale and will be read as RGB: {names[2]}.",)


def test_empty_foreign_and_special_files_are_told_apart(birds):
    base, names = birds
    (base / "images" / names[0]).write_bytes(b"")
    (base / "images" / names[1]).write_bytes(b"<html>not found</html>")
    (base / "images" / names[2]).unlink()
    os.mkfifo(base / "images" / names[2])
    report = check_dataset("cub", base, subset=True)
    assert kinds(report) == ["truncated", "unreadable"]
    assert report.problems[0].files == (names[0],)
    assert "it is empty" in report.problems[0].sentence
    assert report.problems[1].files == (names[1], names[2])
    assert report.problems[1].sentence.startswith("2 images are unreadable")
    assert report.problems[1].sentence.endswith("Replace them.")


def test_a_file_with_something_behind_its_end_is_no_problem(birds):
    base, names = birds
    path = base / "images" / names[0]
    path.write_bytes(path.read_bytes() + b"\0" * 500)
    assert check_dataset("cub", base, subset=True).ok


@pytest.mark.parametrize("kind", ["gif", "bmp", "tiff"])
def test_files_that_do_not_say_where_they_end_are_decoded(tmp_path, kind):
    noise = np.random.default_rng(0).integers(0, 255, (40, 40, 3), dtype=np.uint8)
    for name in (f"a.{kind}", f"b.{kind}"):
        Image.fromarray(noise).save(tmp_path / name)
    rows = [f"a.{kind},a,train", f"b.{kind},b,test"]
    write_lines(tmp_path / "labels.csv", ["path,label,split", *rows])
    assert check_dataset("table", tmp_path).ok
    truncate(tmp_path / f"a.{kind}", 0.8)
    (problem,) = check_dataset("table", tmp_path).problems
    assert (problem.kind, problem.files) == ("unreadable", (f"a.{kind}",))


def test_damage_inside_shows_when_everything_is_decoded(tmp_path):
    path = image_at(tmp_path / "a.png", size=(40, 40))
    image_at(tmp_path / "b.png")
    content = bytearray(path.read_bytes())
    content[content.index(b"IDAT") + 8] ^= 0xFF
    path.write_bytes(content)
    write_lines(tmp_path / "labels.csv", ["path,label,split", "a.png,a,train", "b.png,b,test"])
    assert check_dataset("table", tmp_path).ok
    report = check_dataset("table", tmp_path, decode_all=True)
    assert kinds(report) == ["unreadable"]
    assert report.problems[0].files == ("a.png",)


def test_an_image_listed_twice_in_a_table_is_told(tmp_path):
    image_at(tmp_path / "a.png")
    for split in ("train", "test"):
        rows = ["a.png,a,train", f"a.png,a,{split}", "b.png,b,test"]
        write_lines(tmp_path / "labels.csv", ["path,label,split", *rows])
        (problem,) = check_dataset("table", tmp_path).problems
        assert "lists 1 image more than once, such as a.png" in problem.sentence


def test_a_box_that_leaves_its_image_is_noted(birds):
    base, names = birds
    lines = (base / "bounding_boxes.txt").read_text().splitlines()
    lines[0], lines[1] = "1 2.0 1.0 661.0 5.0", "2 2.0 1.0 10.5 9.0"  # half a pixel is rounding
    (base / "bounding_boxes.txt").write_text("\n".join(lines) + "\n")
    report = check_dataset("cub", base, subset=True)
    assert report.ok
    assert report.notes == (f"1 box leaves its image and will be cut at the border: {names[0]}.",)


def test_sets_that_are_grey_throughout_are_not_remarkable(tmp_path):
    for folder in ("a", "b"):
        image_at(tmp_path / folder / "1.png", mode="1")
    assert check_dataset("folder", tmp_path).notes == ()


def test_a_box_without_a_pixel_is_told_from_one_that_leaves(birds):
    base, _ = birds
    lists = base / "bounding_boxes.txt"
    _first, _second, *rest = lists.read_text().splitlines()
    lists.write_text("\n".join(["1 nan 1.0 6.0 5.0", "2 2.0 1.0 -6.0 5.0", *rest]) + "\n")
    notes = check_dataset("cub", base, subset=True).notes
    assert any("2 boxes hold no pixel of their image" in note for note in notes)
    assert not any("cut at the border" in note for note in notes)


def test_boxes_lie_in_the_upright_picture(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    for name in ("a.jpg", "b.jpg"):
        Image.new("L", (40, 20)).save(tmp_path / name, exif=exif)
    rows = ["path,label,split,x1,y1,x2,y2", "a.jpg,x,train,0,20,20,40", "b.jpg,y,test,0,0,40,20"]
    (tmp_path / "labels.csv").write_text("\n".join(rows))
    notes = check_dataset("table", tmp_path).notes
    assert "1 box leaves its image and will be cut at the border: b.jpg." in notes


def test_a_link_to_itself_does_not_hide_its_neighbours(birds):
    base, names = birds
    image = base / "images" / names[0]
    image.unlink()
    image.symlink_to(image.name)
    report = check_dataset("cub", base)
    (missing,) = [problem for problem in report.problems if problem.kind == "missing"]
    assert missing.files == (names[0],)


def test_a_subset_without_any_image_of_a_split_is_no_subset(birds):
    base, names = birds
    for name in names[8:]:  # of classes 101 and 102
        (base / "images" / name).unlink()
    report = check_dataset("cub", base, subset=True)
    assert [problem.kind for problem in report.problems] == ["missing"]
    assert "No image of test is there" in report.problems[0].sentence


def test_lists_without_a_line_are_no_subset(birds):
    base, _ = birds
    for name in ("images.txt", "image_class_labels.txt"):
        (base / name).write_text("")
    report = check_dataset("cub", base, subset=True)
    assert "No image is listed for train and test" in report.problems[0].sentence
    assert not report.ok


@pytest.mark.parametrize(
    ("before", "said"), [("", "there is no such path in"), ("/", "cannot be read")]
)
def test_a_folder_whose_name_no_disk_takes_is_a_problem_and_no_fault(before, said):
    report = check_dataset("cub", before + "a" * 5000)
    assert [problem.kind for problem in report.problems] == ["lists"]
    assert said in report.problems[0].sentence


def test_long_lists_are_cut_in_the_sentence_only(birds):
    base, names = birds
    for name in names[:7]:
        (base / "images" / name).unlink()
    problem = check_dataset("cub", base).problems[1]
    assert problem.files == tuple(names[:7])
    assert "... (7 in all)" in problem.sentence
    assert names[4] in problem.sentence
    assert names[5] not in problem.sentence
    noted = check_dataset("cub", base, subset=True)
    assert noted.ok
    assert noted.notes == ("A subset: 7 images of those listed are not there.",)


def test_lists_that_cannot_be_read_are_the_problem(tmp_path):
    report = check_dataset("cub", tmp_path)
    assert kinds(report) == ["lists"]
    assert "images.txt, image_class_labels.txt, images are missing" in report.problems[0].sentence
    assert "Caltech" not in report.problems[0].sentence  # said once, as the source
    assert "Caltech" in report.source
    assert report.as_dict()["problems"][0]["kind"] == "lists"


def test_progress_sees_every_image(birds):
    seen = []

    def watch(findings, total):
        seen.append(total)
        for finding in findings:
            seen.append(finding.path)
            yield finding

    check_dataset("cub", birds[0], subset=True, progress=watch)
    assert seen == [16, *birds[1]]


def test_features_are_checked_by_reading_them(tmp_path):
    report = check_dataset("features", tmp_path)
    assert kinds(report) == ["lists"]
    with pytest.raises(InputError, match="`name` must be one of"):
        check_dataset("imagenet", tmp_path)


def test_values_that_no_picture_can_have_are_found_without_decoding_all(tmp_path):
    for name, top in (("a/0", 200), ("a/1", 1), ("b/0", 1), ("b/1", 1)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        values = np.linspace(0, top, 64, dtype=np.float32).reshape(8, 8)
        Image.fromarray(values).save(tmp_path / f"{name}.tiff")
    problems = [one.sentence for one in check_dataset("folder", tmp_path).problems]
    assert len(problems) == 1
    assert "1 image is unreadable" in problems[0]
    assert "its values span 0 to 200; expected 0 to 1" in problems[0]
