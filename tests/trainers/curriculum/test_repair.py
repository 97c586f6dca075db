"""Labels repaired by a network that never saw them."""

import pytest
import torch

from bspml.errors import CheckpointError, InputError
from bspml.trainers.curriculum import SelfPacedCurriculum
from bspml.trainers.curriculum.repair import Repair
from bspml.weights.state import SampleWeights
from helpers.draws import around_centres

CLASSES, EACH = 8, 30
N = CLASSES * EACH


def noisy(share=0.4, seed=0):
    """Embeddings (N, 16) around the centres of their true classes, true and given labels."""
    generator = torch.Generator().manual_seed(seed)
    true = torch.arange(N) % CLASSES
    embeddings = around_centres(true, 16, spread=0.5, seed=seed)
    wrong = torch.rand(N, generator=generator) < share
    shift = torch.randint(1, CLASSES, (N,), generator=generator)
    return embeddings, true, torch.where(wrong, (true + shift) % CLASSES, true)


def known(share=0.4):
    """A repair whose table knows the wrong labels, after two passes of training on the others."""
    embeddings, true, given = noisy(share)
    weights = SampleWeights(given)
    weights.update((given == true).double())
    repair = Repair(weights, seed=0)
    repair.hold_out()
    kept = (weights.weights > 0) & ~repair.held_out
    while not repair.is_due:
        repair.trained(kept, under_weights=True)
    return repair, embeddings, true, given


def test_suspects_are_trained_under_the_class_that_they_show():
    repair, embeddings, true, given = known()
    wrong = given != true
    count = repair.repair(embeddings)
    weights = repair.weights
    assert count == int(weights.repaired.sum()) > 0.8 * int(wrong.sum())
    kept = weights.weights > 0
    assert (weights.current_codes == true)[kept].float().mean() > 0.95
    assert not (weights.repaired & ~wrong).any()
    assert (repair.is_done, bool(repair.held_out.any())) == (True, False)
    assert repair.left_out == pytest.approx(1 - float(kept.float().mean()))


def test_what_the_network_saw_and_what_a_person_decided_stays():
    repair, embeddings, true, given = known()
    wrong = (given != true).nonzero()[:, 0]
    seen, decided = wrong[:5], wrong[5:10]
    repair.trained_on[seen] = True
    repair.weights.fix(decided, [0.0] * 5)
    repair.repair(embeddings)
    assert not repair.weights.repaired[torch.cat([seen, decided])].any()
    assert repair.weights.repaired.any()


def test_held_out_samples_are_some_of_every_class_and_come_back():
    repair, embeddings, _, _ = known()
    held = repair.held_out.clone()
    codes = repair.weights.codes
    assert (repair.weights.weights[held] > 0).all()
    for code in range(CLASSES):
        kept = (repair.weights.weights > 0) & (codes == code)
        assert 1 <= int(held[kept].sum()) <= int(kept.sum()) / 8 + 0.5
    repair.repair(embeddings)
    assert (repair.weights.weights[held] > 0).float().mean() > 0.9


def test_an_eighth_of_few_kept_labels_is_held_out_at_most():
    weights = SampleWeights(torch.arange(N) % CLASSES)
    weights.update((torch.arange(N) < 9 * CLASSES).double())  # 9 of 30 of every class
    repair = Repair(weights, seed=0)
    repair.hold_out()
    assert int(repair.held_out.sum()) == CLASSES  # not 3 of each, as an eighth of the suspects is


def test_embeddings_that_show_nothing_repair_nothing():
    repair, embeddings, _, _ = known()
    before = repair.weights.weights.clone()
    noise = torch.randn(embeddings.shape, generator=torch.Generator().manual_seed(5))
    assert repair.repair(noise) == 0
    assert torch.equal(repair.weights.weights, before)
    assert repair.is_done


def test_the_order_of_the_samples_does_not_matter():
    repair, embeddings, _, given = known()
    order = torch.randperm(N, generator=torch.Generator().manual_seed(2))
    weights = SampleWeights(given[order])
    weights.update(repair.weights.weights[order].double())
    other = Repair(weights, seed=0)
    other.trained_on, other.held_out = repair.trained_on[order], repair.held_out[order]
    repair.repair(embeddings)
    other.repair(embeddings[order])
    same = repair.weights.current_codes[order] == weights.current_codes
    assert same.float().mean() > 0.99  # a probability at the very bar may fall on either side


def test_the_names_of_the_classes_do_not_matter():
    repair, embeddings, _, given = known()
    names = torch.randperm(CLASSES, generator=torch.Generator().manual_seed(3))
    weights = SampleWeights(names[given])
    weights.update(repair.weights.weights.double())
    other = Repair(weights, seed=0)
    other.hold_out()
    assert torch.equal(other.held_out, repair.held_out)
    other.trained_on = repair.trained_on
    assert repair.repair(embeddings) == other.repair(embeddings)
    assert torch.equal(names[repair.weights.current_codes], weights.current_codes)
    assert torch.equal(repair.weights.weights, weights.weights)


def test_a_saved_repair_goes_on():
    repair, embeddings, _, given = known()
    weights = SampleWeights(given)
    weights.load_state_dict(repair.weights.state_dict())
    other = Repair(weights, seed=0)
    other.load_state_dict(repair.state_dict())
    assert other.is_due
    assert repair.repair(embeddings) == other.repair(embeddings)
    assert torch.equal(weights.current_codes, repair.weights.current_codes)
    short = Repair(SampleWeights([0, 1]), seed=0)
    with pytest.raises(CheckpointError, match="another data set"):
        short.load_state_dict(repair.state_dict())


def rounds(curriculum, embeddings, count):
    records = []
    for _ in range(count):
        curriculum.training_mask()
        records.append(curriculum.update(embeddings))
    return records


def test_the_curriculum_repairs_after_some_rounds():
    embeddings, true, given = noisy()
    weights = SampleWeights(given)
    curriculum = SelfPacedCurriculum(weights, repair="confident", is_noisy=given != true)
    records = rounds(curriculum, embeddings, 8)
    phases = [r.phase for r in records]
    assert phases[0] == "features"
    place = phases.index("repair")
    assert phases.count("repair") == 1
    assert {r.num_repaired for r in records[:place]} == {0}
    assert records[place].num_repaired > 35
    # The given labels are still told apart, and what was repaired goes on being trained on.
    assert records[-1].detection_recall >= records[0].detection_recall > 0.5
    assert (weights.weights[weights.repaired] > 0).float().mean() > 0.9
    assert records[-1].noise_rate == records[0].noise_rate


def test_rows_held_out_are_not_trained_on_until_then():
    embeddings, _, given = noisy()
    curriculum = SelfPacedCurriculum(SampleWeights(given), repair="confident")
    curriculum.update(embeddings)
    held = curriculum._update.repair.held_out
    assert held.any()
    assert not (curriculum.training_mask() & held).any()
    assert torch.equal(curriculum.allowed_mask(), ~held)
    rounds(curriculum, embeddings, 6)
    assert curriculum.allowed_mask() is None


def test_a_curriculum_without_repair_changes_no_label():
    embeddings, _, given = noisy()
    weights = SampleWeights(given)
    records = rounds(SelfPacedCurriculum(weights), embeddings, 6)
    assert not weights.repaired.any()
    assert {r.num_repaired for r in records} == {None}


def test_a_curriculum_resumed_at_any_round_repairs_the_same():
    embeddings, _, given = noisy()
    whole = SelfPacedCurriculum(SampleWeights(given), repair="confident", seed=1)
    rounds(whole, embeddings, 8)
    for stop in (1, 3, 6):
        first = SelfPacedCurriculum(SampleWeights(given), repair="confident", seed=1)
        rounds(first, embeddings, stop)
        weights = SampleWeights(given)
        second = SelfPacedCurriculum(weights, repair="confident", seed=1)
        weights.load_state_dict(first.weights.state_dict())
        second.load_state_dict(first.state_dict())
        rounds(second, embeddings, 8 - stop)
        assert torch.equal(weights.current_codes, whole.weights.current_codes)
        assert torch.equal(weights.weights, whole.weights.weights)


def test_training_on_all_rows_unasked_is_refused():
    embeddings, _, given = noisy()
    curriculum = SelfPacedCurriculum(SampleWeights(given), repair="confident")
    curriculum.update(embeddings)
    with pytest.raises(InputError, match=r"train only on the rows of `curriculum\.training_mask"):
        curriculum.update(embeddings)


def test_the_paper_s_preset_repairs_nothing():
    with pytest.raises(InputError, match='`repair` belongs to preset="auto"'):
        SelfPacedCurriculum(SampleWeights([0, 1]), preset="paper", age=1.0, repair="confident")
