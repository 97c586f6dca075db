"""From a network and a data set to embeddings."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset
from tqdm import tqdm

from bspml.distributed import computed_by_rows
from bspml.errors import InputError, UserError
from bspml.shapes import Float, Tensor
from bspml.tensors.arguments import check_kind
from bspml.tensors.checks import FLOATS, as_device, check_whole
from bspml.tensors.modes import in_eval_mode
from bspml.tensors.row_checks import embedded_rows
from bspml.tensors.row_index import index_of

# Bytes of inputs that a CPU passes through the network at a time: two photographs of 224 pixels.
# What a convolutional network makes of more exceeds what the C library keeps for the next batch
# (64 MiB): it goes back to the system after every layer and comes again page by page, filled with
# zeros, which costs more time than the network itself.
_PASS = 5 * 2**18
_THREAD_PASS = _PASS // 2  # of each thread, for which the C library keeps less


def embed(
    model: nn.Module,
    data: Tensor | Dataset | InputBatches,
    batch_size: int = 256,
    device: torch.device | str | None = None,
    num_workers: int = 0,
    progress: bool | Callable[[int], object] = False,
    output_device: torch.device | str = "cpu",
) -> Float[Tensor, "N D"]:
    """Return embeddings of all samples, in order, in evaluation mode and without gradients.

    Every module's train or eval mode is restored afterwards, also after an error.

    Args:
        model: maps a batch of inputs to (B, D).
        data: tensor (N, ...) of inputs, or a data set whose items are inputs or tuples that start
            with the input (labels and indices after it are ignored).  A tensor is sliced: faster
            for sets in memory, such as `Glyphs(...).images`.  Or `InputBatches` of a loader, whose
            batches are taken as they come.  Float64, numpy's own, is taken in the kind of the
            model's parameters where none of them is float64.
        batch_size: rows per forward pass.
        device: where `model` lives; default: where its first parameter is.
        num_workers: of the loader, for a data set.
        progress: True shows a bar on stderr; or a function that is told the rows of each batch.
        output_device: where the embeddings are wanted.  On the network's own accelerator they stay
            there, no batch is waited for, and this returns before the device is done; on the CPU
            every batch is waited for.

    Returns:
        (N, D) float32 on `output_device`.

    To a CUDA device batches travel through pinned memory.

    Raises:
        InputError: no samples, `model` does not return real (B, D), or an argument of another kind.
        UserError: whatever `data` raises, also when a worker does.
    """
    check_kind(model, "model", nn.Module, "a torch.nn.Module")
    told = "True, False or a function that is told the rows of each batch"
    check_kind(progress, "progress", (bool, Callable), told)
    loads = hasattr(data, "__getitem__") or isinstance(data, InputBatches | IterableDataset)
    if not loads or isinstance(data, Mapping) or index_of(data) is not None:  # frame[i]: a column
        raise InputError(
            f"`data` must be a tensor or a data set; got {type(data).__name__}. Give the rows of a "
            "table as a tensor, and a loader as `InputBatches(loader)`."
        )
    first = next(model.parameters(), torch.empty(0))
    kinds = {p.dtype for p in model.parameters() if p.dtype in FLOATS}  # lazy ones have theirs, too
    device = first.device if device is None else as_device(device)
    output_device = as_device(output_device, "output_device")
    pinned, num_workers = device.type == "cuda", check_whole(num_workers, "num_workers", low=0)
    batches = _batches(data, check_whole(batch_size, "batch_size"), num_workers, pinned)
    parts = []
    with in_eval_mode(model), torch.no_grad():
        hidden = progress is not True or sys.stderr is None
        bar = tqdm(batches, "embed", unit="batch", file=sys.stderr, disable=hidden)
        for inputs in bar:
            check_kind(inputs, "data", Tensor, "inputs, or tuples that start with one, as tensors")
            if kinds and inputs.dtype == torch.float64 not in kinds:
                inputs = inputs.to(*kinds) if len(kinds) == 1 else inputs.float()
            if pinned and inputs.device.type == "cpu":
                inputs = inputs.pin_memory()  # as it is, if the loader has pinned it
            for part in inputs.split(_rows_per_pass(inputs, device)):
                out = model(part.to(device, non_blocking=True))
                parts.append(embedded_rows(out, len(part)).to(output_device))
            if callable(progress):
                progress(len(inputs))
    if not parts:
        raise InputError("`data` must hold at least one sample; got none.")
    return torch.cat(parts)


def embed_by_ranks(
    model: nn.Module,
    data: Any,
    batch_size: int = 256,
    device: torch.device | str = "cpu",
    num_workers: int = 0,
    key: Any = 0,
    batches: Callable[[slice], InputBatches] | None = None,
) -> Float[Tensor, "N D"]:
    """Return what `embed` does, each rank of a group embedding its share of the rows.

    Args:
        model: as for `embed`.
        data: a tensor, or whatever is sized and indexable; its items may be dicts, too.
        batch_size: rows per forward pass.
        device: where `model` lives.
        num_workers: of the loader, for a data set.
        key: where the input stands in an item that is a tuple, list or dict.
        batches: returns those of some rows, where they are not made of `data` here.

    Returns:
        (N, D) float32, the same on every rank: on the device where that is a GPU, else on the CPU.
    """
    device = torch.device(device)
    # On a CUDA device statistics and evaluation go on where the network computed; other
    # accelerators lack the float64 that these sum in.
    home = device if device.type == "cuda" else torch.device("cpu")

    def compute(rows: slice) -> Tensor:
        part: Any = data[rows] if isinstance(data, Tensor) else _InputsOf(data, rows, key)
        part = part if batches is None else batches(rows)
        return embed(model, part, batch_size, device, num_workers, output_device=home)

    return computed_by_rows(len(data), compute, batch_size, home)


def embed_by_threads(
    model: nn.Module, data: Any, count: Callable[[int], object] | None = None
) -> Float[Tensor, "N D"]:
    """Return what `embed` does on the CPU, each thread reading and embedding samples of its own.

    Threads that share every layer wait for each other at its end, hundreds of times a sample, and
    where others use the machine one of them is mostly late; and all but one rest while the one
    reads.  Here none waits.  The embeddings are the same up to rounding.

    Args:
        model: as for `embed`, on the CPU; threads share it.
        data: N > 0 items, tensors or tuples that start with one, which threads may ask for.
        count: told the rows of each pass, in the caller's thread.

    Returns:
        (N, D) float32.

    Example:
        >>> embed_by_threads(nn.Flatten(1), [torch.eye(2), torch.ones(2, 2)])
        tensor([[1., 0., 0., 1.],
                [1., 1., 1., 1.]])
    """
    threads = torch.get_num_threads()

    def read(row: int) -> Tensor:
        item = data[row]
        return item[0] if isinstance(item, list | tuple) else item

    at_a_time = _rows_per_pass(read(0)[None], torch.device("cpu"), _THREAD_PASS)

    def compute(start: int) -> Tensor:
        rows = range(start, min(start + at_a_time, len(data)))
        with torch.no_grad():
            return embedded_rows(model(torch.stack([read(row) for row in rows])), len(rows))

    parts = []
    pool = ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,))
    try:
        with in_eval_mode(model):
            for part in pool.map(compute, range(0, len(data), at_a_time)):
                parts.append(part)
                if count is not None:
                    count(len(part))
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(threads)  # of the threads that start later
    return torch.cat(parts)


class _InputsOf(Dataset):
    """The inputs of some rows of a data set, without labels and what else its items hold."""

    def __init__(self, data: Any, rows: slice, key: Any) -> None:
        self.data, self.rows, self.key = data, range(len(data))[rows], key

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, row: int) -> Any:
        item = self.data[self.rows[row]]
        return item[self.key] if isinstance(item, tuple | list | Mapping) else item


def _rows_per_pass(inputs: Tensor, device: torch.device, size: int = _PASS) -> int:
    """How many rows of a batch go through the network at a time: on a CPU a few photographs."""
    if device.type != "cpu":
        return len(inputs)
    return max(1, size * len(inputs) // max(1, inputs.numel() * inputs.element_size()))


def _batches(data: Any, batch_size: int, num_workers: int, pinned: bool) -> Any:
    """Input batches in order."""
    if isinstance(data, Tensor):
        return data.split(batch_size) if len(data) else ()
    if isinstance(data, InputBatches):
        return data
    # A generator of its own: a loader draws a seed when it starts, even if nothing is shuffled.
    rng = torch.Generator()
    # Without workers `embed` pins: items may lie on the device already, which a loader cannot pin.
    pinned = pinned and num_workers > 0
    loader = DataLoader(data, batch_size, num_workers=num_workers, generator=rng, pin_memory=pinned)
    return InputBatches(loader)


def _first(batch: Any) -> Any:
    return batch[0] if isinstance(batch, list | tuple) else batch


class InputBatches:
    """The inputs of a loader's batches, without labels and what else follows them.

    Args:
        loader: of some rows, in order.
        inputs_of: returns the (B, ...) inputs of one of its batches.
    """

    def __init__(self, loader: DataLoader, inputs_of: Callable[[Any], Tensor] = _first) -> None:
        self._loader, self._inputs_of = loader, inputs_of

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[Tensor]:
        try:
            for batch in self._loader:
                yield self._inputs_of(batch)
        except UserError as err:
            # A worker's error comes with its whole traceback as the text; the last line is ours.
            kind = f"{type(err).__name__}: "
            if not self._loader.num_workers or kind not in str(err):
                raise
            raise type(err)(str(err).rpartition(kind)[2].strip()) from err
