"""What is checked before an interrupted run goes on."""

from pathlib import Path

import pytest
import torch

from bspml.errors import CheckpointError, ConfigError, InputError, RunError
from bspml.experiment.config import Config, dump_config, load_config
from bspml.experiment.resuming import (
    check_ranks_agree,
    check_unchanged,
    has_checkpoint,
    load_method,
    load_states,
    method_state,
    restore_records,
    run_folder,
    set_threads,
)
from bspml.files import checkpoints
from bspml.files.run import UNTRAINED, EpochRecord, RecordLog, RunFolder

METHODS = ["bspml", "prism"]


@pytest.fixture
def folder(tmp_path):
    return RunFolder.create(tmp_path / "run")


@pytest.fixture(autouse=True)
def threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def state_of(method="bspml", rounds=1, records=1, config=None):
    trainer = {"position": {"round": rounds}}
    return method_state(method, trainer, config or Config(), records)


def save(folder, **changes):
    checkpoints.save(folder.checkpoint("bspml"), {**state_of(), **changes}, "f")


def log_of(folder, *methods):
    log = RecordLog(folder.records)
    for number, method in enumerate(methods):
        log.append(EpochRecord(method, number))
    return log


# --- one checkpoint -------------------------------------------------------------------------------


def test_a_state_is_read_back_with_the_threads_of_its_making(folder):
    torch.set_num_threads(1)
    save(folder)
    state = load_method(folder, "bspml", "f")
    assert (state["method"], state["records"], state["threads"]) == ("bspml", 1, 1)
    assert state["config"] == Config().model_dump(mode="json")
    assert has_checkpoint(folder, "bspml")
    assert not has_checkpoint(folder, "prism")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"records": -1}, r"\(`records` is -1\)"),
        ({"records": True}, r"\(`records` is True\)"),
        ({"threads": 0}, r"\(`threads` is 0\)"),
        ({"trainer": []}, r"\(`trainer` is \[\]\)"),
        ({"method": "prism"}, "is a checkpoint of 'prism', not of 'bspml'"),
    ],
)
def test_a_state_of_another_kind_is_refused(folder, change, message):
    save(folder, **change)
    with pytest.raises(CheckpointError, match=message):
        load_method(folder, "bspml")


def test_a_missing_key_is_named(folder):
    state = state_of()
    del state["trainer"]
    checkpoints.save(folder.checkpoint("bspml"), state)
    with pytest.raises(CheckpointError, match=r"\(`trainer` is missing\)"):
        load_method(folder, "bspml")


# --- configurations -------------------------------------------------------------------------------


def test_only_what_learns_nothing_may_change():
    saved = Config().model_dump(mode="json")
    free = ["training.epochs=99", "workers=1", "evaluation.ks=[5]", "device=cpu", "name=x"]
    check_unchanged(saved, load_config(None, free), Path("config.yaml"))
    for setting, shown in (("optimizer.lr=0.5", "0.5"), ("loss.alpha=7", "7"), ("seed=3", "3")):
        key = setting.partition("=")[0]
        with pytest.raises(ConfigError, match=rf"^config\.yaml: `{key}` is {shown}.*trained with"):
            check_unchanged(saved, load_config(None, [setting]), Path("config.yaml"))


def test_values_are_shown_as_yaml_writes_them():
    saved = Config().model_dump(mode="json")
    saved["data"]["augment"] = True
    with pytest.raises(ConfigError, match=r"`data\.augment` is null, .* trained with true so far"):
        check_unchanged(saved, Config(), Path("config.yaml"))


def test_a_key_that_only_the_checkpoint_has_is_a_difference():
    saved = {**Config().model_dump(mode="json"), "gone": 1}
    with pytest.raises(ConfigError, match="`gone` is null, but the run was trained with 1 so far"):
        check_unchanged(saved, Config(), Path("config.yaml"))


def test_a_key_that_came_after_the_checkpoint_had_its_default_then():
    saved = Config().model_dump(mode="json")
    del saved["training"]["prefetch"]
    check_unchanged(saved, Config(), Path("config.yaml"))
    with pytest.raises(ConfigError, match=r"`training\.prefetch` is 3, .* trained with 2 so far"):
        check_unchanged(
            saved, load_config(None, ["training.prefetch=3", "workers=1"]), Path("config.yaml")
        )
    saved["hyperparameters"] = {}
    given = ["training.methods=[rdml]", "hyperparameters.rdml.eta=2"]
    saved["training"]["methods"] = ["rdml"]
    with pytest.raises(ConfigError, match=r"`hyperparameters\.rdml\.eta` is 2, .* with null"):
        check_unchanged(saved, load_config(None, given), Path("config.yaml"))


def test_one_process_agrees_with_itself():
    check_ranks_agree(Config(), "f")


# --- records --------------------------------------------------------------------------------------


def test_records_after_the_last_checkpoint_are_cut(folder):
    log = log_of(folder, "bspml", "bspml", "bspml")
    states = {"bspml": state_of(rounds=2, records=2)}
    restore_records(log, folder, METHODS, states)
    assert [record.epoch for record in log.read()] == [0, 1]


def test_without_a_checkpoint_all_records_are_cut(folder):
    log = log_of(folder, "bspml")
    restore_records(log, folder, METHODS, {})
    assert log.read() == []


def test_records_of_a_method_that_was_taken_out_are_refused_and_stay(folder):
    log = log_of(folder, UNTRAINED, "bspml")
    with pytest.raises(CheckpointError, match="rounds of 'bspml', which is no method of this run"):
        restore_records(log, folder, ["prism"], {})
    assert len(log) == 2


def test_a_checkpoint_counts_the_records_up_to_its_own(folder):
    log = log_of(folder, "bspml", "prism", "prism")
    states = {"bspml": state_of(records=1), "prism": state_of("prism", rounds=2, records=3)}
    restore_records(log, folder, METHODS, states)
    assert len(log) == 3


@pytest.mark.parametrize(
    ("states", "message"),
    [
        ({"bspml": state_of(rounds=2, records=2)}, "written after 2 rounds, .* hold 1 of bspml"),
        (
            {"bspml": state_of(rounds=0, records=0), "prism": state_of("prism", 2, 2)},
            "written after 2 rounds, .* hold 1 of prism",
        ),
        ({"prism": state_of("prism", 1, 2)}, r"checkpoint-bspml\.pt: is missing, .* 1 rounds of b"),
    ],
    ids=["another number", "of another method", "a checkpoint is gone"],
)
def test_records_of_another_run_are_refused_and_stay(folder, states, message):
    log = log_of(folder, "bspml", "prism")
    with pytest.raises(CheckpointError, match=message):
        restore_records(log, folder, METHODS, states)
    assert len(log) == 2


def test_fewer_records_than_a_checkpoint_knows_are_refused(folder):
    with pytest.raises(RunError, match="holds 1 records, but the checkpoint was written after 2"):
        restore_records(log_of(folder, "bspml"), folder, METHODS, {"bspml": state_of(records=2)})


# --- the folder -----------------------------------------------------------------------------------


def refuse_nothing(saved, folder):
    pass


def test_a_new_run_writes_its_configuration_and_is_locked(folder):
    with run_folder(folder, Config(), METHODS, resume=False):
        assert load_config(folder.config) == Config()
        assert folder.lock.exists()
    assert not folder.lock.exists()


def test_a_received_run_with_a_link_in_it_does_not_go_on(folder, tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("mine")
    folder.weights.symlink_to(victim)
    with pytest.raises(RunError, match=r"weights\.csv: is a symbolic link"):
        run_folder(folder, Config(), METHODS, resume=True).__enter__()
    assert (victim.read_text(), folder.lock.exists()) == ("mine", False)


@pytest.mark.parametrize("saved", [False, True])
def test_a_mistake_discards_a_folder_without_a_checkpoint(folder, saved):
    def train():
        with run_folder(folder, Config(), METHODS, resume=False):
            if saved:
                save(folder)
            raise InputError("a mistake.")

    with pytest.raises(InputError):
        train()
    assert folder.path.exists() == saved


def test_states_are_those_of_the_methods_that_have_a_checkpoint(folder):
    with run_folder(folder, Config(), METHODS, resume=False):
        save(folder)
    states = load_states(folder, METHODS, Config(), "f", refuse_nothing)
    assert list(states) == ["bspml"]


def test_a_changed_setting_is_said_before_other_data(folder):
    with run_folder(folder, Config(), METHODS, resume=False):
        save(folder)
    other = load_config(None, ["noise.rate=0.1"])
    with pytest.raises(ConfigError, match=r"`noise\.rate` is 0\.1"):
        load_states(folder, METHODS, other, "g", refuse_nothing)
    with pytest.raises(CheckpointError, match="the data set changed since"):
        load_states(folder, METHODS, Config(), "g", refuse_nothing)


def test_a_kind_of_experiment_may_refuse_more(folder):
    def refuse(saved, folder):
        raise ConfigError(f"{saved['training']['epochs']} is enough.")

    with run_folder(folder, Config(), METHODS, resume=False):
        save(folder)
    with pytest.raises(ConfigError, match="is enough"):
        load_states(folder, METHODS, Config(), "f", refuse)


def test_a_configuration_that_was_cut_is_refused(folder):
    with run_folder(folder, Config(), METHODS, resume=False):
        pass
    text = folder.config.read_text()
    folder.config.write_text("".join(line for line in text.splitlines(True) if "seed" not in line))
    with pytest.raises(ConfigError, match="`seed` is missing, which every run writes"):
        load_states(folder, METHODS, Config(), "f", refuse_nothing)


def test_a_run_begun_before_a_key_existed_goes_on(folder):
    """Neither its file nor its checkpoint has the key; a file alone without it was cut."""
    older = Config().model_dump(mode="json")
    del older["training"]["prefetch"]
    with run_folder(folder, Config(), METHODS, resume=False):
        save(folder, config=older)
    text = folder.config.read_text()
    folder.config.write_text(text.replace("  prefetch: 2\n", ""))
    assert list(load_states(folder, METHODS, load_config(folder.config), "f", refuse_nothing))
    save(folder)
    with pytest.raises(ConfigError, match=r"`training\.prefetch` is missing, which every run"):
        load_states(folder, METHODS, Config(), "f", refuse_nothing)


# --- threads --------------------------------------------------------------------------------------


def test_threads_are_those_asked_for_else_of_the_checkpoint():
    said = []
    set_threads(2, True, {}, said.append)
    assert torch.get_num_threads() == 2
    set_threads(None, True, {}, said.append)
    assert torch.get_num_threads() == 1
    set_threads(2, False, {"bspml": {"threads": 1}}, said.append)
    assert torch.get_num_threads() == 1
    assert said == []


def test_more_threads_than_this_machine_has_are_cut_and_said():
    said = []
    set_threads(None, True, {"bspml": {"threads": 10**6}}, said.append)
    assert torch.get_num_threads() < 10**6
    assert said[0].startswith("bspml: saved with 1000000 threads, goes on with the ")


def test_other_test_samples_are_refused_and_older_checkpoints_have_no_word_on_them(folder):
    config = Config()
    folder.config.write_text(dump_config(config))

    def resumed(measured):
        return load_states(folder, ["bspml"], config, "f", lambda saved, folder: None, measured)

    save(folder, measured="then")
    assert resumed("then")["bspml"]["measured"] == "then"
    assert "bspml" in resumed(None)
    with pytest.raises(CheckpointError, match=r"bspml.*: was evaluated on other test samples"):
        resumed("now")
    save(folder, measured=None)
    assert "bspml" in resumed("now")
