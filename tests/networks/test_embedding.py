import copy

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from bspml.errors import DataError, InputError
from bspml.networks import build_network, embed, embed_by_ranks
from bspml.networks.embedding import embed_by_threads
from helpers.draws import pixels

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


class Pairs(Dataset):
    def __init__(self, x, extra):
        self.x, self.extra = x, extra

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return (self.x[i], *([i] * self.extra)) if self.extra else self.x[i]


class Items(list, Dataset):
    pass


def test_embeddings_of_tensors_and_data_sets_are_those_of_one_evaluation_pass():
    net = build_network("small-conv", 16)
    x = pixels(11, 1, 24, 24)
    net.eval()
    expected = net(x).detach()
    net.train()
    for data in (x, TensorDataset(x), Pairs(x, 0), Pairs(x, 1), Pairs(x, 2)):
        out = embed(net, data, batch_size=4)
        torch.testing.assert_close(out, expected, rtol=1e-4, atol=1e-5)
        assert out.dtype == torch.float32
        assert out.device.type == "cpu"
        assert not out.requires_grad


def test_by_ranks_the_input_is_found_in_any_item_and_each_rank_takes_whole_batches(monkeypatch):
    net, x = nn.Linear(3, 2), pixels(11, 3)
    expected = embed(net, x, batch_size=4)
    for data, key in (
        (x, 0),
        (Pairs(x, 0), 0),
        (Pairs(x, 2), 0),
        (Items({"row": i, "image": row} for i, row in enumerate(x)), "image"),
        (Items(enumerate(x)), 1),
    ):
        assert torch.equal(embed_by_ranks(net, data, 4, key=key), expected)
    shares = []

    def by_two(n, compute, block, device):
        assert (n, block, device) == (11, 4, torch.device("cpu"))
        shares.extend([compute(slice(0, 8)), compute(slice(8, 11))])
        return torch.cat(shares)

    monkeypatch.setattr("bspml.networks.embedding.computed_by_rows", by_two)
    assert torch.equal(embed_by_ranks(net, Pairs(x, 1), 4), expected)
    assert [len(share) for share in shares] == [8, 3]


def test_the_result_can_be_used_by_autograd():
    out = embed(build_network("small-conv", 4), pixels(3, 1, 24, 24))
    weight = torch.ones(4, requires_grad=True)
    (out @ weight).sum().backward()
    torch.testing.assert_close(weight.grad, out.sum(0))


def test_embed_leaves_model_and_global_state_as_they_were():
    net = build_network("small-conv", 4)
    net.train()
    net.blocks[1].eval()  # a frozen part stays frozen
    modes = [m.training for m in net.modules()]
    before = copy.deepcopy(net.state_dict())
    state = torch.get_rng_state()
    embed(net, pixels(6, 1, 24, 24), batch_size=4)
    assert [m.training for m in net.modules()] == modes
    assert all(torch.equal(before[k], v) for k, v in net.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state)
    with pytest.raises(InputError):
        embed(net, pixels(6, 1, 4, 4))
    assert [m.training for m in net.modules()] == modes


def test_half_precision_outputs_come_back_as_float32():
    net = nn.Linear(3, 2).to(torch.bfloat16)
    assert embed(net, pixels(4, 3).to(torch.bfloat16)).dtype == torch.float32


@pytest.mark.parametrize("kind", [torch.float64, torch.bfloat16, torch.float32])
def test_doubles_are_taken_in_the_kind_of_the_parameters(kind):
    net, x = nn.Linear(3, 2).to(kind), torch.randn(5, 3, dtype=torch.float64)
    right = net(x.to(kind)).detach().float()
    assert all(torch.equal(embed(net, data), right) for data in (x, TensorDataset(x)))
    assert torch.equal(embed(nn.Identity(), x), x.float())  # which has none


def test_doubles_are_floats_where_parameters_are_of_several_kinds_or_lazy():
    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Linear(3, 4).bfloat16(), nn.LazyLinear(2)
            self.packed = nn.Parameter(torch.zeros(2, dtype=torch.uint8), requires_grad=False)

        def forward(self, x):
            assert x.dtype == torch.float32
            return self.last(self.first(x.bfloat16()).float())

    x = torch.randn(5, 3, dtype=torch.float64)
    assert embed(Mixed(), x).shape == (5, 2)
    assert embed(nn.LazyLinear(2), x).shape == (5, 2)
    whole = nn.EmbeddingBag(7, 2)
    assert embed(whole, torch.tensor([[0, 1], [2, 6]])).shape == (2, 2)


def test_a_model_without_parameters_runs_on_the_cpu():
    assert torch.equal(embed(nn.Flatten(), torch.ones(3, 2, 2)), torch.ones(3, 4))


def test_progress_is_shown_on_stderr_only_when_asked(capsys):
    net, x = nn.Flatten(), torch.ones(3, 2, 2)
    embed(net, x)
    assert capsys.readouterr() == ("", "")
    embed(net, x, batch_size=1, progress=True)
    out, err = capsys.readouterr()
    assert out == ""
    assert "embed" in err
    assert "3/3" in err


def test_embed_refuses_nothing_and_shapes_that_are_not_rows():
    net = nn.Flatten()
    for empty in (torch.empty(0, 2, 2), TensorDataset(torch.empty(0, 2, 2))):
        with pytest.raises(InputError, match="`data` must hold at least one sample"):
            embed(net, empty)
    with pytest.raises(InputError, match=r"\(B, D\) = \(3, D\); got \(3, 2, 2\)"):
        embed(nn.Identity(), torch.ones(3, 2, 2))
    with pytest.raises(InputError, match="`batch_size` must be a whole number"):
        embed(net, torch.ones(3, 2), batch_size=0)
    for wrong, message in (
        ({"device": "gpu"}, "`device` must be cpu, cuda, cuda:N or mps; got 'gpu'"),
        ({"output_device": "gpu"}, "`output_device` must be cpu"),
        ({"num_workers": -1}, "`num_workers` must be a whole number"),
    ):
        with pytest.raises(InputError, match=message):
            embed(**{"model": net, "data": TensorDataset(torch.ones(3, 2)), **wrong})


def test_embed_refuses_what_has_no_rows_of_inputs():
    square = pd.DataFrame(np.eye(3, dtype=np.float32)[[1, 2, 0]])  # its [i] is a column
    for data in (square, square[0], {0: torch.ones(2)}, DataLoader(torch.ones(3, 2)), iter("ab")):
        with pytest.raises(InputError, match="`data` must be a tensor or a data set; got"):
            embed(nn.Flatten(), data)
    for items in ([{"x": torch.ones(2)}] * 3, [("a", 1)] * 3):
        with pytest.raises(InputError, match="tuples that start with one, as tensors; got"):
            embed(nn.Flatten(), items)


def test_progress_can_be_a_function_that_counts(capsys):
    seen = []
    embed(nn.Flatten(), torch.ones(5, 2, 2), batch_size=2, progress=seen.append)
    assert seen == [2, 2, 1]
    assert capsys.readouterr() == ("", "")


def test_a_loader_leaves_the_global_generator_alone():
    before = torch.get_rng_state()
    embed(nn.Flatten(), TensorDataset(torch.ones(3, 2, 2)))
    assert torch.equal(torch.get_rng_state(), before)


class Damaged(Dataset):
    def __len__(self):
        return 3

    def __getitem__(self, i):
        if i == 1:
            raise DataError("b.png: is missing.")
        return torch.ones(2)


@pytest.mark.parametrize("workers", [0, 1])
def test_errors_of_the_data_keep_their_words(workers):
    with pytest.raises(DataError) as caught:
        embed(nn.Flatten(), Damaged(), num_workers=workers)
    assert str(caught.value) == "b.png: is missing."


class Elsewhere(nn.Module):
    """Embeddings on a device without memory: whoever fetches them from there fails."""

    def forward(self, x):
        return torch.empty(len(x), 3, dtype=torch.bfloat16, device="meta")


def test_embeddings_stay_on_the_device_they_are_wanted_on():
    out = embed(Elsewhere(), torch.ones(5, 2), batch_size=2, output_device="meta")
    assert (out.device.type, out.dtype, tuple(out.shape)) == ("meta", torch.float32, (5, 3))
    with pytest.raises(NotImplementedError, match="meta"):
        embed(Elsewhere(), torch.ones(5, 2), batch_size=2)


@needs_gpu
@pytest.mark.parametrize("workers", [0, 1])
def test_a_gpu_gives_the_cpu_s_embeddings_wherever_the_data_lie(workers):
    net, x = build_network("small-conv", 16), pixels(11, 1, 24, 24)
    expected = embed(net, x, 4)
    net.cuda()
    # No worker process can read the device.
    on_device = [] if workers else [x.cuda(), TensorDataset(x.cuda())]
    for data in (x, x.pin_memory(), TensorDataset(x), Pairs(x, 1), *on_device):
        for device in ("cpu", "cuda"):
            out = embed(net, data, 4, num_workers=workers, output_device=device)
            assert out.device.type == device
            torch.testing.assert_close(out.cpu(), expected, rtol=1e-2, atol=1e-2)


@needs_gpu
def test_no_batch_waits_for_a_gpu_that_keeps_the_embeddings():
    net, x = build_network("small-conv", 16).cuda(), pixels(11, 1, 24, 24)
    for data in (x, TensorDataset(x)):
        embed(net, data, 4, output_device="cuda")
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")
        try:
            embed(net, data, 4, output_device="cuda")
        finally:
            torch.cuda.set_sync_debug_mode("default")


class Sizes(nn.Module):
    """Remembers how many rows each pass had."""

    def __init__(self):
        super().__init__()
        self.rows = []

    def forward(self, x):
        self.rows.append(len(x))
        return x.mean((2, 3))


def test_a_cpu_passes_few_photographs_and_many_small_pictures_at_a_time():
    for size, rows in ((224, [2, 2, 1]), (24, [5]), (700, [1] * 5)):
        net, x, seen = Sizes(), pixels(5, 3, size, size), []
        torch.testing.assert_close(
            embed(net, x, batch_size=5, progress=seen.append), x.mean((2, 3))
        )
        assert (net.rows, seen) == (rows, [5])


class Alone(Sizes):
    """Notes how many threads a layer is shared by."""

    def forward(self, x):
        assert torch.get_num_threads() == 1
        assert not self.training
        return super().forward(x)


def test_threads_embed_rows_of_their_own_in_order():
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        for size, rows in ((224, [1] * 7), (96, [5, 2])):
            net, x, seen = Alone(), pixels(7, 3, size, size), []
            for data in (x, Pairs(x, 2)):
                out = embed_by_threads(net, data, seen.append)
                torch.testing.assert_close(out, x.mean((2, 3)))
            assert seen == rows * 2
            assert sorted(net.rows, reverse=True) == sorted(rows * 2, reverse=True)
            assert net.training
            assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


def test_an_error_in_a_thread_comes_as_it_is_and_stops_the_others():
    read = []

    class Damaged(Pairs):
        def __getitem__(self, i):
            read.append(i)
            if i == 2:
                raise DataError("2.jpg: cannot be read")
            return super().__getitem__(i)

    threads = torch.get_num_threads()
    with pytest.raises(DataError, match=r"^2\.jpg: cannot be read$"):
        embed_by_threads(Sizes(), Damaged(pixels(1, 3, 224, 224).expand(900, -1, -1, -1), 0))
    assert len(read) < 900
    assert torch.get_num_threads() == threads
