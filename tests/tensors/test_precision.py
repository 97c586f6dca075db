"""Statistics keep float32 products exact where training allowed itself less."""

import threading

import pytest
import torch

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
