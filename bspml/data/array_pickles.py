"""A reader of pickles that hold numbers, text, lists, dictionaries and arrays, and nothing else.

A pickle can run any code when it is opened, and data sets come from strangers.  Here no name in
the file reaches anything real: the few names an array is pickled with stand for small classes of
this module, which build the array from its bytes; any other name is refused.  numpy's own classes
are not let in, although they look harmless: `ndarray((1,), object, b"12345678")` is a pointer to
wherever the file wishes.
"""

from __future__ import annotations

import io
import pickle
import re
from math import prod
from typing import Any

import numpy as np


def loads(data: bytes) -> Any:
    """Return the value that is pickled in `data`; text of Python 2 as latin-1.

    Arrays may be of integers, floats or bools; an array of objects comes as a list.

    Raises:
        pickle.UnpicklingError: the file names anything but arrays, or is damaged.
    """
    try:
        return finished(_Unpickler(io.BytesIO(data), encoding="latin1").load())
    except pickle.UnpicklingError:
        raise
    # Damage shows as whatever the damaged opcode stumbles over.
    except (Exception, MemoryError, RecursionError) as err:
        raise pickle.UnpicklingError(str(err) or type(err).__name__) from err


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        # numpy 2 calls its core _core.
        stand_in = _STAND_INS.get((module.replace("numpy._core", "numpy.core"), name))
        if stand_in is None:
            raise pickle.UnpicklingError(f"it names {module}.{name}, which no data needs")
        return stand_in


class _Dtype:
    """Stands for `numpy.dtype(code, ...)`."""

    def __init__(self, code: Any, *_: Any) -> None:
        if not isinstance(code, str) or not re.fullmatch(r"[<>|=]?([biuf]\d|O8?)", code):
            raise pickle.UnpicklingError(f"it holds an array of {code!r:.40}")
        self.value = np.dtype(code)

    def __setstate__(self, state: Any) -> None:
        self.value = self.value.newbyteorder(state[1])  # "<", ">" or "|"; the rest is for structs


class _Array:
    """Stands for `_reconstruct(ndarray, (0,), "b")`, and takes the array's state."""

    def __init__(self, *_: Any) -> None:
        self.value: Any = None

    def __setstate__(self, state: Any) -> None:
        _, shape, dtype, fortran, data = state
        if dtype.value.hasobject:
            self.value = list(data)
            return
        data = _bytes(data)
        if len(data) != prod(shape) * dtype.value.itemsize:
            raise pickle.UnpicklingError(f"an array of shape {shape} has {len(data)} bytes")
        flat = np.frombuffer(data, dtype.value)
        self.value = flat.reshape(shape, order="F" if fortran else "C")


class _Scalar:
    """Stands for `scalar(dtype, data)`, one number of numpy's."""

    def __init__(self, dtype: _Dtype, data: Any) -> None:
        if dtype.value.hasobject:
            raise pickle.UnpicklingError("it holds an object")
        self.value = np.frombuffer(_bytes(data), dtype.value, count=1)[0]


class _ArrayType:
    """Stands for `numpy.ndarray`, which only ever is an argument."""

    def __init__(self, *_: Any) -> None:
        raise pickle.UnpicklingError("it makes an array in a way that numpy does not")


def _encode(text: str, encoding: str) -> bytes:
    """Stands for `_codecs.encode`, how Python 3 writes bytes in old protocols."""
    if not isinstance(text, str) or encoding != "latin1":
        raise pickle.UnpicklingError(f"it encodes text as {encoding!r:.40}")
    return text.encode("latin1")


def _bytes(data: Any) -> bytes:
    """Bytes as Python 2 wrote them, which come as text, or as Python 3 does."""
    return data.encode("latin1") if isinstance(data, str) else data


_STAND_INS: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): _Array,
    ("numpy.core.multiarray", "scalar"): _Scalar,
    ("numpy", "ndarray"): _ArrayType,
    ("numpy", "dtype"): _Dtype,
    ("_codecs", "encode"): _encode,
    ("__builtin__", "bytes"): lambda: b"",  # how Python 3 writes empty bytes in old protocols
}


# The same for `torch.load(weights_only=True)`, under both names of numpy's core.
TORCH_STAND_INS: list[Any] = [
    (stand_in, f"{module.replace('numpy.core', core)}.{name}")
    for (module, name), stand_in in _STAND_INS.items()
    for core in ("numpy.core", "numpy._core")
    if module.startswith("numpy")  # torch has its own of the others
]


def finished(value: Any) -> Any:
    """Return `value` with arrays in place of what stood for them; tuples become lists."""
    if isinstance(value, _Array | _Scalar | _Dtype):
        return finished(value.value)
    if isinstance(value, dict):
        return {finished(key): finished(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        # 50,000 labels: looked into only if one of them is more than a number or text.
        plain = all(isinstance(item, int | float | str) for item in value)
        return list(value) if plain else [finished(item) for item in value]
    return value
