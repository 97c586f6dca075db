"""Pandas objects at every door where two row-wise arguments meet: one index, or none."""

import numpy as np
import pandas as pd
import pytest

import bspml
from bspml.data.labels.decisions import apply_decisions
from bspml.errors import InputError
from bspml.statistics.confusions import plausible_confusions

X = pd.DataFrame(np.random.default_rng(0).normal(size=(40, 4)), index=np.arange(40) + 3)
Y = pd.Series(np.arange(40) % 4, index=X.index)
ONES = pd.Series(np.ones(40), index=X.index)
MIXED = X.sample(frac=1, random_state=0).index


def updated(rows, _):
    curriculum = bspml.SelfPacedCurriculum(bspml.SampleWeights(Y), preset="paper", age=9.0)
    return curriculum.update(rows)


CALLS = {
    "audit": lambda rows, _: bspml.audit(rows, Y),
    "its names": lambda _, numbers: bspml.audit(X, Y, numbers.astype(str)),
    "evaluate": lambda rows, _: bspml.evaluate(rows, Y, (1,)),
    "pair statistics": lambda _, numbers: bspml.pair_statistics(X, Y, sample_weights=numbers),
    "contrastive statistics": lambda rows, _: bspml.contrastive_statistics(rows, Y),
    "neighbour statistics": lambda rows, _: bspml.neighbour_statistics(rows, Y),
    "confusions": lambda _, numbers: plausible_confusions(
        X, bspml.contrastive_statistics(X, Y), numbers
    ),
    "a weight problem": lambda _, numbers: bspml.WeightProblem(numbers, numbers, Y, 1.0),
    "noise": lambda rows, _: bspml.noise.instance_dependent(Y, 0.1, rows),
    "known noise": lambda _, numbers: bspml.noise.from_labels(numbers.astype(int), Y // 9 + 1),
    "a curriculum": updated,
    "the truth": lambda _, numbers: bspml.SelfPacedCurriculum(
        bspml.SampleWeights(Y), is_noisy=numbers > 2
    ),
    "rows to sample": lambda _, numbers: bspml.PKSampler(Y, 2, 2).set_rows(numbers > 0),
    "weights": lambda _, numbers: bspml.SampleWeights(Y).update(numbers),
    "decisions": lambda _, numbers: apply_decisions(Y, [], numbers),
    "names of decided": lambda _, numbers: apply_decisions(Y, [], names=numbers.astype(str)),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_rows_of_another_order_are_refused(call):
    call(X, ONES)
    call(X.to_numpy(), ONES.to_numpy())
    with pytest.raises(InputError, match=r"indices differ at \d+ of 40 rows.*reset_index"):
        call(X.loc[MIXED], ONES.loc[MIXED])


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("labels", ["Int64", "string", "category", "string[pyarrow]"])
def test_tables_of_any_dtype_are_judged_measured_and_weighed_alike(labels):
    codes = np.arange(200) % 8
    rows = np.eye(8)[codes] + 0.1 * np.random.default_rng(0).normal(size=(200, 8))
    frame = pd.DataFrame(rows, columns=list("abcdefgh"))
    features = frame if labels == "category" else frame.astype({"a": "Float64"})
    given = pd.Series(codes).astype(labels)
    names = pd.Series([f"{row}.jpg" for row in range(200)], dtype="string")
    report = bspml.audit(features, given, names=names)
    plain = bspml.audit(rows, codes, names=names.tolist())
    np.testing.assert_array_equal(report.wrong_probability, plain.wrong_probability)
    assert report.names.tolist() == plain.names.tolist()
    assert bspml.evaluate(features, given).map_at_r == bspml.evaluate(rows, codes).map_at_r
    assert len(bspml.SampleWeights(given)) == 200
