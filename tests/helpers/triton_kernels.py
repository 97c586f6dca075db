"""How kernels written in Triton are tested: in its interpreter, compiled without a GPU, or on one.

The interpreter is chosen by an environment variable before Triton is imported, so without a GPU
the tests marked `here` run in a process of their own, which the fixture `interpreted` starts.
"""

import math
import os
from pathlib import Path

import pytest
import torch

GPU = torch.cuda.is_available()
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cuda" if GPU and not INTERPRETED else "cpu"
here = pytest.mark.skipif(not (GPU or INTERPRETED), reason="runs in a process of its own")
outside = pytest.mark.skipif(GPU or INTERPRETED, reason="the kernels run in this process")
compiler = pytest.mark.skipif(INTERPRETED, reason="the interpreter compiles nothing")
needs_gpu = pytest.mark.skipif(DEVICE == "cpu", reason="needs a GPU")
both_types = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])


def passes_in_the_interpreter(file, interpreted):
    """The tests of `file` are among those that ran there; one that fails fails the fixture."""
    assert any(f"{Path(file).name}::" in line and " PASSED" in line for line in interpreted)


def compiles(kernel, constants, pointer, cache, monkeypatch):
    """Compile for a GPU, which the compiler does not need; numbers must be float64.

    A number is a float32 in a kernel unless its annotation says other.  `pointer`: the type of the
    arrays; `cache`: an empty folder.
    """
    from triton import compile as compiled
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    monkeypatch.setenv("TRITON_CACHE_DIR", str(cache))
    signature = {}
    for parameter in kernel.params:
        unsaid = pointer if parameter.name.endswith("_ptr") else "i32"
        signature[parameter.name] = parameter.annotation_type or parameter.annotation or unsaid
    numbers = [name for name, kind in signature.items() if kind == "i32"]
    assert numbers in ([], ["n"])
    source = ASTSource(kernel, signature, constants)
    assert compiled(source, target=GPUTarget("cuda", 90, 32)).asm["cubin"]


def use_kernels(monkeypatch, *modules):
    """Let public functions use the kernels, whatever the device and switch, and hide no failure."""
    for module in modules:
        monkeypatch.setattr(module, "runs_triton", lambda *tensors: True)
        monkeypatch.setattr(module, "by_kernel", lambda kernel, otherwise, *args: kernel(*args))
        if hasattr(module, "_number_by_number"):  # on the CPU principal_branch would not ask
            monkeypatch.setattr(module, "_number_by_number", branch_kernel)


def branch_kernel(x, log_x=None):
    """W(x) and 1 + W(x) by the kernel."""
    from bspml.tensors.kernels import lambert_triton

    return lambert_triton.principal_branch(x, log_x)


def tolerance(dtype):
    """A unit in the last place of float32; in float64 a few, as every step has a rounding there."""
    return 1.2e-7 if dtype == torch.float32 else 1e-14


def close(values, expected, dtype, rtol=None):
    """`expected` is float64, from the CPU."""
    torch.testing.assert_close(
        values.cpu(),
        expected.to(dtype),
        rtol=rtol or tolerance(dtype),
        atol=4 * 5e-324 if dtype == torch.float64 else 3e-45,  # units of the subnormal numbers
        equal_nan=True,
    )


def draw_losses(dtype):
    """Three hundred ordinary losses, then the edges of float32, infinities and NaN."""
    losses = 20 * torch.rand(300, generator=torch.Generator().manual_seed(0)) - 4
    edges = [0.0, -0.0, 1e-38, -1e-38, 1e-3, 1e10, -1e10, 1e38, -1e38, 3.4e38, -3.4e38]
    edges += [math.inf, -math.inf, math.nan]
    return torch.cat([losses, torch.tensor(edges)]).to(dtype)
