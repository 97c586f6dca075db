"""Statistics keep float32 products exact where training allowed itself less."""

import threading

import numpy as np
import pytest
import torch

import bspml
from bspml import contrastive_statistics, pair_statistics
from bspml.tensors.precision import _holders, full_precision


@pytest.fixture(params=["high", "medium"])
def allowed(request):
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(request.param)
    yield request.param
    torch.set_float32_matmul_precision(before)


def test_inside_products_are_exact_and_afterwards_as_before(allowed):
    draw = torch.Generator().manual_seed(0)
    a = torch.randn(512, 512, generator=draw)
    with full_precision():
        assert float((a @ a - (a.double() @ a.double())).abs().max()) < 6e-5
        inside = [place.fp32_precision for place in _holders()]
        inside = inside or [torch.get_float32_matmul_precision()]
        assert set(inside) <= {"ieee", "highest"}
    assert torch.get_float32_matmul_precision() == allowed


def test_an_error_inside_puts_the_precision_back(allowed):
    with pytest.raises(ZeroDivisionError), full_precision():
        raise ZeroDivisionError
    assert torch.get_float32_matmul_precision() == allowed


@pytest.mark.skipif(not _holders(), reason="torch before 2.9 has one setting")
def test_it_works_beside_torchs_newer_settings():
    place = torch.backends.cuda.matmul
    before = place.fp32_precision
    place.fp32_precision = "tf32"
    try:
        with full_precision():
            assert place.fp32_precision == "ieee"
        assert place.fp32_precision == "tf32"
    finally:
        place.fp32_precision = before


@pytest.mark.parametrize("statistics", [pair_statistics, contrastive_statistics])
def test_statistics_do_not_depend_on_it(statistics):
    draw = torch.Generator().manual_seed(0)
    E, labels = torch.randn(256, 256, generator=draw), torch.arange(256) // 4
    expected = statistics(E, labels)
    torch.set_float32_matmul_precision("medium")
    try:
        found = statistics(E, labels)
    finally:
        torch.set_float32_matmul_precision("highest")
    for name, value in vars(expected).items():
        if isinstance(value, torch.Tensor):
            torch.testing.assert_close(
                getattr(found, name), value, rtol=0, atol=0, equal_nan=True, msg=name
            )


def test_a_thread_that_leaves_first_takes_nothing_from_the_others(allowed):
    before = [place.fp32_precision for place in _holders()]
    came, leave = threading.Event(), threading.Event()

    def other():
        with full_precision():
            came.set()
            leave.wait(10)

    thread = threading.Thread(target=other)
    with full_precision():
        thread.start()
        came.wait(10)
    assert {place.fp32_precision for place in _holders()} <= {"ieee"}  # the other is inside
    leave.set()
    thread.join()
    assert [place.fp32_precision for place in _holders()] == before
    assert torch.get_float32_matmul_precision() == allowed


def test_inside_autocast_is_off_and_tensors_are_made_on_the_cpu():
    """As with `torch.set_default_device("cuda")`; that of no data is here without a GPU."""
    a = torch.rand(4, 4)
    torch.set_default_device("meta")
    try:
        with torch.autocast("cpu", torch.bfloat16):
            with full_precision():
                assert (a @ a).dtype == torch.float32
                assert torch.ones(2).device.type == "cpu"
            assert (a @ a).dtype == torch.bfloat16
        assert torch.ones(2).device.type == "meta"
    finally:
        torch.set_default_device(None)


def test_an_audit_may_underflow():
    rng, labels = np.random.default_rng(0), np.repeat(np.arange(6), 10)
    x = rng.standard_normal((6, 8))[labels] + rng.standard_normal((60, 8))
    with np.errstate(under="raise"):
        found = bspml.audit(x, labels).wrong_probability
    np.testing.assert_array_equal(found, bspml.audit(x, labels).wrong_probability)


def test_public_functions_do_not_go_by_the_default_device():
    rng, labels = np.random.default_rng(0), np.repeat(np.arange(6), 10)
    x = rng.standard_normal((6, 8))[labels] + rng.standard_normal((60, 8))
    weights, start = bspml.SampleWeights(labels), np.ones(60)
    problem = bspml.WeightProblem(rng.random(60), rng.random(60), labels, age=1)

    def results():
        audited = bspml.audit(x, labels)
        judged = bspml.noise.instance_dependent(labels, 0.2, embeddings=x)
        found = bspml.evaluate(x, labels, ks=[1])
        statistics = bspml.contrastive_statistics(x, labels)
        solved = bspml.solve_weights(problem, start=start)
        bspml.SelfPacedCurriculum(weights)
        return (
            audited.wrong_probability.tolist(),
            np.asarray(judged.labels).tolist(),
            found.map_at_r,
            statistics.difficulty.tolist(),
            solved.weights.tolist(),
        )

    expected = results()
    torch.set_default_device("meta")
    try:
        found = results()
    finally:
        torch.set_default_device(None)
    assert found == expected
