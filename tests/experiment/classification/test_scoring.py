"""Accuracies and errors on every part of the data, by hand."""

import pytest
import torch

from bspml.experiment.classification.data import TaskData
from bspml.experiment.classification.scoring import final_row, predict, score


def data_of(targets, true, test_targets, held_out="test"):
    targets, true = torch.tensor(targets), torch.tensor(true)
    images = torch.zeros(len(targets), 1, 1, 1, dtype=torch.uint8)
    return TaskData(
        images=images,
        targets=targets,
        true_targets=true,
        is_noisy=targets != true,
        classes=("a", "b") if targets.dtype == torch.int64 else (),
        test_images=images[:1].expand(len(test_targets), 1, 1, 1),
        test_targets=torch.tensor(test_targets),
        held_out=held_out,
        fingerprint="",
    )


def logits(predicted):
    return torch.nn.functional.one_hot(torch.tensor(predicted), 3).float()


def test_accuracies_by_hand():
    # Given 0 0 1 1 1 1, true 0 0 1 0 0 0: the last three labels are wrong.
    data = data_of([0, 0, 1, 1, 1, 1], [0, 0, 1, 0, 0, 0], [0, 1, 1, 1])
    # Right, wrong, right; the first wrong label is reproduced, the second and third seen through.
    found = score(logits([0, 1, 1, 1, 0, 0]), logits([0, 1, 0, 0]), data, 1.0)
    assert found["held_out"] == 0.5
    assert found["clean"] == pytest.approx(2 / 3)
    assert found["noisy"] == pytest.approx(1 / 3)
    assert found["noisy_true"] == pytest.approx(2 / 3)
    assert found["given"] == pytest.approx(3 / 6)
    assert found["true"] == pytest.approx(4 / 6)
    assert found["hybrid"] == pytest.approx((2 + 4) / 10)
    assert "truncated" not in found


def test_without_noise_there_is_no_noisy_subset():
    data = data_of([0, 1], [0, 1], [0])
    found = score(logits([0, 1]), logits([0]), data, 1.0)
    assert found["noisy"] is found["noisy_true"] is None


def test_hybrid_is_over_test_images_and_all_training_images_as_the_papers_table_shows():
    # Table 6 of the IMAE paper, 0 % noise, 10,000 test and 50,000 training images: test and clean
    # subset as printed give the printed hybrid.
    for test, clean, hybrid in ((91.3, 100, 98.5), (89.2, 95.8, 94.7), (92.2, 99.8, 98.5)):
        assert (10 * test + 50 * clean) / 60 == pytest.approx(hybrid, abs=0.06)
    # With noise, test and clean subset alone would give far more than is printed: 72.6.
    assert (10 * 67.0 + 30 * 93.3) / 40 > 86


def test_hybrid_of_noisy_validation_images_is_no_figure():
    data = data_of([0, 1], [0, 1], [0], held_out="validation")
    assert score(logits([0, 1]), logits([0]), data, 1.0)["hybrid"] is None


def test_errors_of_a_regression_by_hand():
    data = data_of([0.0, 5.0], [0.0, 1.0], [2.0, 2.0])
    found = score(torch.tensor([0.5, 2.0]), torch.tensor([2.25, 7.0]), data, 1.0)
    assert found["held_out"] == (0.25 + 5) / 2
    assert found["truncated"] == (0.25 + 1) / 2
    assert (found["clean"], found["noisy"], found["noisy_true"]) == (0.5, 3.0, 1.0)


def test_best_is_the_best_epoch_and_the_rest_the_last_one():
    keys = ("clean", "noisy", "noisy_true", "given", "true", "hybrid", "truncated")
    history = [{"held_out": value} | dict.fromkeys(keys, value) for value in (0.5, 0.75, 0.25)]
    row = final_row(history, False, "test")
    assert (row["test, best %"], row["test %"], row["hybrid %"]) == (75, 25, 25)
    row = final_row(history, True, "validation")
    assert (row["validation MAE, best"], row["validation MAE"]) == (0.25, 0.25)


def test_predicting_uses_evaluation_mode_and_goes_back_to_training():
    class Net(torch.nn.Module):
        def forward(self, images):
            assert not self.training
            return images.flatten(1)

    images = torch.tensor([0, 255, 51], dtype=torch.uint8).view(3, 1, 1, 1)
    net = Net().train()
    out = predict(net, images, 2, torch.device("cpu"))
    torch.testing.assert_close(out, torch.tensor([[0.0], [1.0], [0.2]]))
    assert net.training
