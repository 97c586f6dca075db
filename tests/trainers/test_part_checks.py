"""Parts of an AlternatingTrainer of another kind are refused by name, before the first step."""

import pytest

import bspml
from bspml.errors import InputError
from bspml.trainers.part_checks import check_parts
from bspml.trainers.patience import Patience
from bspml.trainers.schedules import lr_schedule


class Watch:
    def on_step(self, trainer, step, steps, loss):
        pass

    def on_round(self, trainer, record):
        pass


@pytest.mark.parametrize(
    ("name", "part", "message"),
    [
        (
            "trainer",
            None,
            "a pytorch-metric-learning trainer, .*; got NoneType",
        ),
        ("sampler", [1], "a PKSampler; got list"),
        ("sampler", bspml.PKSampler, "a PKSampler; got the class PKSampler"),
        ("curriculum", "auto", "a SelfPacedCurriculum, a FixedCurriculum or None; got str"),
        ("embed", None, r"a function that returns the \(N, D\) embeddings .*; got NoneType"),
        ("embed_rows", 3, r"a function of \(n,\) rows .*; got int"),
        ("evaluate", 3, "a function or None; got int"),
        ("observer", print, r"an object with on_step\(trainer, step, steps, loss\) and on_round"),
        ("observer", Watch, "got the class Watch"),
        ("schedule", "cosine", r"what lr_schedule\(...\) returns, or None; got str"),
        ("averaged", 0.9, r"what average_weights\(trunk\) returns, or None; got float"),
        ("patience", 3, "a Patience or None; got int"),
    ],
)
def test_a_part_of_another_kind_is_refused(name, part, message):
    with pytest.raises(InputError, match=f"`{name}` must be .*{message}"):
        check_parts(**{name: part})


def test_parts_of_the_right_kind_pass():
    optional = ("curriculum", "embed_rows", "evaluate", "observer", "schedule", "averaged")
    check_parts(**dict.fromkeys((*optional, "patience")))
    check_parts(
        sampler=bspml.PKSampler([0, 0, 1, 1], 2, 2),
        embed=print,
        observer=Watch(),
        schedule=lr_schedule("cosine"),
        patience=Patience(2, len),
    )
