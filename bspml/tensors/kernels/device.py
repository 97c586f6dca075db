"""Decide whether kernels written in Triton run: on a CUDA device, where one replaces many launches.

A batch's miner and loss are some hundred operations on small matrices; on a GPU each costs its
launch, some 20 microseconds, whatever it computes.  Where Triton is installed (torch brings it
for CUDA on Linux) one kernel does the work of many; everywhere else torch's operations do, with
the same results to rounding.

Opt-in, by BSPML_TRITON=1 in the environment: the kernels are compared with torch's operations in
Triton's interpreter, but have not yet run on a device.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

Result = TypeVar("Result")
SWITCH = "BSPML_TRITON"  # environment variable
_state: dict[str, bool] = {}


class Mining(NamedTuple):
    """What decides, beside the weights, which pairs of a matrix are mined.

    Attributes:
        same_rows: row i is column i: the diagonal holds self pairs.
        inverted: larger is closer.
        epsilon: the margin.
    """

    same_rows: bool
    inverted: bool
    epsilon: float


def runs_triton(*tensors: Tensor) -> bool:
    """Tell whether all tensors are on a CUDA device and Triton's kernels work there.

    False while torch compiles the caller: it makes kernels of its own.
    """
    return (
        _usable()
        and not torch.compiler.is_compiling()
        and all(t.is_cuda and type(t) is Tensor for t in tensors)
    )


def runs_pair_kernels(values: Tensor) -> bool:
    """Tell whether the pair kernels can take this batch or matrix: float32, and not empty."""
    return values.dtype == torch.float32 and values.numel() > 0 and runs_triton(values)


def _usable() -> bool:
    if "usable" not in _state:
        wanted = os.environ.get(SWITCH) == "1"
        _state["usable"] = wanted and importlib.util.find_spec("triton") is not None
    return _state["usable"]


def kernel(name: str) -> Callable[..., Any]:
    """Return a function of a module of kernels, which is imported at the first call only.

    Those modules need Triton; `by_kernel` is told where they do not import.

    Args:
        name: "module.function" within `bspml.tensors.kernels`.
    """
    module, function = name.split(".")

    def launch(*args: Any) -> Any:
        return getattr(importlib.import_module(f"{__package__}.{module}"), function)(*args)

    return launch


def by_kernel(
    kernel: Callable[..., Result], otherwise: Callable[..., Result], *args: Any
) -> Result:
    """Call a Triton kernel; if it fails, warn once and use torch's operations from then on.

    Triton compiles a kernel at its first call, for which it needs a C compiler.  Training must
    also work on a machine without one.  After a failure `runs_triton` is False for the rest of the
    process, so the kernel is not tried again.

    Args:
        kernel: does the work in one launch.
        otherwise: the same by torch's operations.
        *args: arguments of either.

    Returns:
        What `kernel` returns, or `otherwise` after a failure.

    Raises:
        torch.cuda.OutOfMemoryError: from the kernel; torch's operations would need no less.
    """
    try:
        return kernel(*args)
    except torch.cuda.OutOfMemoryError:
        raise
    except Exception as err:
        _state["usable"] = False
        warnings.warn(
            f"Triton's kernels do not run here ({type(err).__name__}: {str(err)[:200]}); torch's "
            f"own operations are used, which is slower. Unset {SWITCH} to silence this.",
            stacklevel=2,
        )
        return otherwise(*args)
