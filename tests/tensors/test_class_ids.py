import numpy as np
import pytest
import torch

from bspml.errors import DataError, InputError
from bspml.files.tables import read_labels
from bspml.tensors.checks import encode_labels
from bspml.tensors.class_ids import by_code, integral
from bspml.tensors.row_checks import check_class_ids


@pytest.mark.parametrize(
    ("dtype", "bits"), [("bfloat16", 8), ("float16", 11), ("float32", 24), ("float64", 53)]
)
def test_floats_are_ids_as_long_as_their_type_holds_every_whole_number(dtype, bits):
    last = torch.tensor([1.0 - 2.0**bits, 2.0**bits - 1], dtype=getattr(torch, dtype))
    assert integral(last, "labels").tolist() == [1 - 2**bits, 2**bits - 1]
    merged = torch.tensor([0, 2**bits + 1], dtype=torch.int64).to(last.dtype)
    assert merged[1] == 2**bits  # the neighbour's id
    said = rf"`labels` must be .* at row 1, where .*{dtype} leaves .* from 2\*\*{bits} on"
    kinds = [merged] if dtype == "bfloat16" else [merged, merged.numpy(), list(merged.numpy())]
    for values in kinds:
        with pytest.raises(InputError, match=said):
            encode_labels(values)
        with pytest.raises(InputError, match=said):
            check_class_ids(values if isinstance(values, torch.Tensor) else merged, 2)


def test_python_floats_and_files_are_no_exception(tmp_path):
    with pytest.raises(InputError, match=r"at row 0, where float64 leaves"):
        encode_labels([2.0**53, 1])
    assert encode_labels([2**53 + 1, 1.0]).classes.tolist() == [1, 2**53 + 1]
    with pytest.raises(InputError, match=r"must be \(\d,\)|shape \(N,\); got \(1, 2\)"):
        encode_labels(torch.tensor([[2.0**24, 1]]))
    np.save(tmp_path / "y.npy", np.array([1, 2**24], np.float32))
    with pytest.raises(DataError, match=r"y\.npy: `labels` must .* float32 leaves"):
        read_labels(tmp_path / "y.npy")


def test_positions_by_code_leave_negative_codes_out():
    found = by_code(np.array([2, -1, 0, 2]))
    assert {c: rows.tolist() for c, rows in found.items()} == {0: [2], 2: [0, 3]}
    assert by_code(np.array([], dtype=np.int64)) == {}
