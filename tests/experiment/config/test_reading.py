import os
import subprocess
import sys

import pytest
from hypothesis import given, strategies as st

from bspml.errors import ConfigError
from bspml.experiment.config import (
    Config,
    config_from_mapping,
    dump_config,
    load_config,
    load_experiment,
    shipped_configs,
)
from bspml.experiment.config.reading import parse_yaml
from helpers.places import REPOSITORY

CONFIGS = REPOSITORY / "bspml" / "experiment" / "configs"


@pytest.fixture
def write(tmp_path):
    def write(content):
        path = tmp_path / "x.yaml"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.yaml")), ids=lambda p: p.name)
def test_every_shipped_config_loads(path):
    assert isinstance(load_config(path), Config)


def test_every_shipped_config_has_a_name_that_a_file_of_the_users_may_take(monkeypatch, tmp_path):
    shipped = shipped_configs()
    assert {path.name for path in shipped.values()} == {p.name for p in CONFIGS.rglob("*.yaml")}
    assert {"glyphs", "finetune", "classification/digits"} < set(shipped)
    digits = load_experiment(None, ["task=classification"])
    assert load_experiment("classification/digits") == digits
    assert load_config("glyphs_paper") == load_config(CONFIGS / "glyphs_paper.yaml")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "glyphs").write_text("seed: 7")
    assert load_config("glyphs").seed == 7
    with pytest.raises(ConfigError, match=r"^glyps: no such file; did you mean `glyphs`\?$"):
        load_config("glyps")


def test_a_folder_of_a_shipped_name_is_no_config(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "glyphs").mkdir()
    assert load_config("glyphs") == Config()
    with pytest.raises(ConfigError, match=r"^\.: is a folder, not a YAML file"):
        load_config(".")


def test_the_shipped_glyphs_config_is_the_defaults_and_names_every_key():
    assert load_config(CONFIGS / "glyphs.yaml") == Config() == load_config()
    text = (CONFIGS / "glyphs.yaml").read_text()
    sections = Config().model_dump()
    assert len(sections) > 10
    for name, section in sections.items():
        keys = section if isinstance(section, dict) else (name,)
        assert all(f"{key}:" in text for key in keys)


def test_the_shipped_paper_config_holds_the_printed_settings():
    config = load_config(CONFIGS / "glyphs_paper.yaml")
    loss, sampler = config.loss, config.sampler
    assert (loss.alpha, loss.beta, loss.base, loss.epsilon) == (2, 50, 1, 0.1)
    assert (loss.weighting, loss.skip_zero) == ("paper", False)
    assert (sampler.classes_per_batch, sampler.samples_per_class) == (16, 4)
    assert config.network.embedding_size == 512


def test_a_dumped_config_loads_as_the_same(write):
    rooted = load_config(None, ['data.root="x\\N \\Ly é"', "data.ignore=[007]", "data.name=folder"])
    for config in (Config(), load_config(CONFIGS / "glyphs_paper.yaml"), rooted):
        assert load_config(write(dump_config(config))) == config


@given(st.text("0123456789eE._+truflnoys-", min_size=1, max_size=8), st.floats(1e-9, 1e9))
def test_names_and_numbers_survive_the_dump(name, lr):
    tree = {"name": f"0{name}", "optimizer": {"lr": lr}}  # names that YAML may take for numbers
    config = config_from_mapping(tree)
    assert config_from_mapping(parse_yaml(dump_config(config), "dump")) == config


def test_a_bare_exponent_is_a_number_and_yes_is_text(write):
    assert load_config(write("optimizer: {lr: 5e-6}")).optimizer.lr == 5e-6
    with pytest.raises(ConfigError, match="expected true or false; got 'yes'; write true"):
        load_config(write("loss: {skip_zero: yes}"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", r"x\.yaml: is empty; write `\{\}`"),
        ("# only a comment\n", r"x\.yaml: is empty"),
        ("- 1\n", "expected `key: value` lines; got a list"),
        ("glyphs", "expected `key: value` lines; got plain text"),
        ("seed: 1\nseed: 2\n", 'line 2: duplicate key "seed"; keep one of them'),
        ("loss:\n  alpha: 1\n  alpha: 2\n", 'line 3: duplicate key "alpha"'),
        ("loss:\n\talpha: 1\n", "line 2: a tab used as indentation"),
        (b"name: caf\xe9\n", "line 1 is not UTF-8"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "is not a text file"),
        (b"#" * (2 << 20), "is not a text file"),
        ("seed: {1", "line 1: is not valid YAML"),
        ("seed: 1\n---\nseed: 2", "line 2: is not valid YAML"),
        ("[" * 100_000, "nested too deeply"),
        ("a: &a [*a]", "nested too deeply"),
        (
            "a: &0 [1, 1]\n" + "".join(f"a{i}: &{i} [*{i - 1}, *{i - 1}]\n" for i in range(1, 60)),
            "holds more than 100000 values",
        ),
        ("name: !!python/object:os.system x", "could not determine a constructor"),
        ("name: !!int x", "is not valid YAML"),
        ("name: !!int 0x", "is not valid YAML"),
        ("name: a\x85b\n", r"holds U\+0085; write it as \\N in double quotes"),
        ("a: \x01", "is not valid YAML"),
    ],
)
def test_a_file_that_is_no_config_gets_one_line_with_its_name(write, content, message):
    path = write(content)
    with pytest.raises(ConfigError, match=message) as caught:
        load_config(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


def test_a_missing_file_names_its_neighbours_and_a_folder_is_said_to_be_one(tmp_path):
    with pytest.raises(ConfigError, match=r"no such file; .* has .*glyphs\.yaml"):
        load_config(CONFIGS / "glyph.yaml")
    with pytest.raises(ConfigError, match="nor is there a folder"):
        load_config(tmp_path / "no" / "x.yaml")
    with pytest.raises(ConfigError, match="is a folder"):
        load_config(tmp_path)


def test_a_small_file_of_astronomical_content_is_refused_at_once(write):
    levels = ["&a0 [x, x]"]
    levels += [f"&a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 30)]
    with pytest.raises(ConfigError, match="it holds more than 100000 values") as caught:
        load_config(write(f"loss: {{alpha: [{', '.join(levels)}]}}"))
    assert len(str(caught.value)) < 300


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "c.yaml")
    with pytest.raises(ConfigError, match=r"c\.yaml: is a pipe"):
        load_config(tmp_path / "c.yaml")


def test_a_byte_order_mark_is_no_fault(write):
    assert load_config(write(b"\xef\xbb\xbfseed: 3\n")).seed == 3


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("optimizer.lr=1e-3", 1e-3),
        ("optimizer.lr=5e-6", 5e-6),
        ("data.root=a=b", "a=b"),
        ("data.root=", None),
        ("data.root=null", None),
        ("evaluation.ks=[1, 10]", (1, 10)),
        ("evaluation.clustering=false", False),
        ("name='7'", "7"),
        ("seed=3", 3),
        ("optimizer.lr=+.5", 0.5),
        ("name=2024-05-01", "2024-05-01"),
        ("data.root=1_0", "1_0"),
        ("data.root=1_0.5", "1_0.5"),
        ("data.root=007", "007"),
        ("data.root=0b1", "0b1"),
        ("data.root=0x10", "0x10"),
        ("data.root=0o17", "0o17"),
        ("data.root=+1", "+1"),
        ("data.root=-0", "-0"),
        ('data.root="a\\Nb"', "a\x85b"),
    ],
)
def test_an_override_is_typed_by_yaml(text, value):
    config = load_config(overrides=[text])
    for key in text.split("=")[0].split("."):
        config = getattr(config, key)
    assert config == value


def test_overrides_win_over_the_file_and_the_last_one_wins(write):
    path = write("loss: {alpha: 3, beta: 40}\ncurriculum: {preset: paper}")
    config = load_config(path, ["loss.alpha=4", "loss.alpha=5", "curriculum.age=4"])
    assert (config.loss.alpha, config.loss.beta, config.curriculum.age) == (5, 40, 4)


def test_an_override_leaves_a_section_that_shares_a_yaml_alias_alone(write):
    path = write("data: &d {}\nnetwork: *d\n")
    assert load_config(path, ["data.image_size=32"]).data.image_size == 32


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("optimizer.lrr=1", "unknown key `optimizer.lrr`; did you mean `lr`?"),
        ("optimiser.lr=1", "unknown key `optimiser.lr`; did you mean `optimizer.lr`?"),
        ("lr=3", "unknown key `lr`; did you mean `optimizer.lr`?"),
        ("seed.x=1", "unknown key `seed.x`; `seed` holds a single value"),
        ("nosuch.key=3", "unknown key `nosuch.key`: no section `nosuch`; sections are data,"),
        ("traning.foo=3", "no section `traning`; did you mean `training`?"),
        ("hyperparametres.rdml.eta=2", "did you mean `hyperparameters`?"),
        ("loss=3", "`loss` is a section; set one key of it at a time, such as loss.alpha="),
        ("--lr", "expected key=value such as optimizer.lr=1e-3; got '--lr'"),
        ("=3", "expected key=value"),
        ("a..b=1", "expected key=value"),
        ("loss.alpha={", "`loss.alpha`: line 1: is not valid YAML"),
        ("loss.alpha=", "`loss.alpha`: expected a number in [1e-09, 1e+09]; got nothing"),
        ("seed=0x10", "expected a whole number from 0 to 4294967295; got '0x10'"),
        ("training.epochs=1_0", "expected a whole number from 1 to 1000000; got '1_0'"),
        ("optimizer.lr=0b1", "expected a number in [1e-09, 1e+09]; got '0b1'"),
        ("curriculum.age=4", "`curriculum.age` is 4.0, but nothing reads it while"),
        ("curriculum.age_growth=1.5", "leave it at 1.1, or set `curriculum.preset` to paper"),
        ("data.channels=2", "`data.channels` must be one of 1, 3; got 2"),
    ],
)
def test_a_bad_override_names_the_command_line(text, message):
    with pytest.raises(ConfigError) as caught:
        load_config(CONFIGS / "glyphs.yaml", [text])
    assert str(caught.value).startswith("command line: ")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "evaluation.ks=[0]",
            "`evaluation.ks.0`: expected a whole number from 1 to 1000000000; got 0",
        ),
        ("hyperparameters.rdml.eta=2", "`hyperparameters.rdml`: rdml is not among"),
        ("evaluation.ks=[]", "`evaluation.ks`: expected at least 1 value; got []"),
    ],
)
@pytest.mark.parametrize("file", [None, CONFIGS / "glyphs.yaml"])
def test_an_entry_of_an_override_is_one_mistake_of_the_command_line(file, text, message):
    with pytest.raises(ConfigError) as caught:
        load_config(file, [text])
    assert str(caught.value).startswith(f"command line: {message}")
    assert "more)" not in str(caught.value)


def test_a_fault_of_the_file_names_the_file_although_there_are_overrides(write):
    path = write("loss: {alpha: -1}")
    with pytest.raises(ConfigError, match=r"x\.yaml: `loss.alpha`: expected a number in"):
        load_config(path, ["loss.beta=3"])
    with pytest.raises(ConfigError, match=r"x\.yaml: `loss`: expected a section"):
        load_config(write("loss: 3"), ["loss.beta=3"])


def test_reading_configs_records_and_drawing_never_import_torch():
    code = (
        "import sys, bspml.experiment.config, bspml.files.run;"
        "import bspml.report.figures, bspml.report.tables;"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_pipe_is_refused_before_it_is_opened(tmp_path):
    os.mkfifo(tmp_path / "a.yaml")
    with pytest.raises(ConfigError, match=r"a\.yaml: is a pipe or a device"):
        load_config(tmp_path / "a.yaml")
