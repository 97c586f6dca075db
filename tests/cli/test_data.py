"""`bspml data check`: sentences, exit codes, and a help page without torch."""

import json
import subprocess
import sys

import pytest
from PIL import Image

from helpers.commands import run


@pytest.fixture
def tree(tmp_path):
    """Two training and two test images in class folders."""
    for i, name in enumerate(("train/a/1.jpg", "train/a/2.jpg", "test/b/1.jpg", "test/b/2.jpg")):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (9, 9), (200, 60 * i, 10)).save(tmp_path / name)
    return tmp_path


def test_a_sound_set_exits_with_0(tree, capsys):
    code, out, err = run(capsys, "data", "check", "folder", "--root", tree)
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "train: 2 images of 1 class",
        "test: 2 images of 1 class",
        "a folder of images is complete: every image opens and has its end.",
    ]


def test_a_set_without_files_promises_nothing_of_images(capsys):
    code, out, _ = run(capsys, "data", "check", "glyphs")
    assert code == 0
    assert out.splitlines()[-1] == "glyphs is complete."


def test_each_fault_is_a_line_and_the_code_is_2(tree, capsys):
    content = (tree / "test/b/1.jpg").read_bytes()
    (tree / "test/b/1.jpg").write_bytes(content[:-20])
    Image.new("L", (9, 9)).save(tree / "train/a/2.jpg")
    code, out, _ = run(capsys, "data", "check", "folder", "--root", tree, "--decode-all")
    assert code == 2
    lines = out.splitlines()
    assert lines[2].startswith("problem: 1 image is truncated in ")
    assert "test/b/1.jpg" in lines[2]
    assert lines[3] == "note: 1 image is greyscale and will be read as RGB: train/a/2.jpg."
    assert lines[4].startswith("a folder of images cannot be used like this.")


def test_json_says_everything(tree, capsys):
    (tree / "test/b/1.jpg").write_bytes(b"")
    code, out, _ = run(capsys, "data", "check", "folder", "--root", tree, "--json")
    found = json.loads(out)
    assert code == 2
    assert found["ok"] is False
    assert found["splits"]["train"] == {"images": 2, "classes": 1}
    assert found["problems"][0]["kind"] == "truncated"
    assert found["problems"][0]["files"] == ["test/b/1.jpg"]


def test_a_set_that_is_not_there_says_where_to_get_it(tmp_path, capsys):
    code, out, err = run(capsys, "data", "check", "sop", "--root", tmp_path)
    assert (code, err) == (2, "")
    assert "problem: " in out
    assert out.count("lifted_struct") == 1


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["cubb", "--root", "x"], "did you mean `cub`?"),
        (["cub"], "`root` must name the folder of CUB-200-2011"),
    ],
)
def test_mistakes_are_one_line_on_stderr(capsys, argv, message):
    code, out, err = run(capsys, "data", "check", *argv)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


def test_help_does_not_import_torch():
    code = (
        "import sys; from bspml.cli import main\n"
        "assert main(['data', '--help']) == 0 and main(['data', 'check', '--help']) == 0\n"
        "assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "--decode-all" in done.stdout
