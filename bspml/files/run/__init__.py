"""What a run leaves behind: its folder, one record per epoch, and the table of sample weights."""

from bspml.files.run.epochs import EpochRecord, RecordLog
from bspml.files.run.folder import RunFolder, read_json, write_json
from bspml.files.run.weights_table import (
    SUSPECT_BELOW,
    WeightsTable,
    read_weights,
    write_weights,
)

__all__ = [
    "SUSPECT_BELOW",
    "EpochRecord",
    "RecordLog",
    "RunFolder",
    "WeightsTable",
    "read_json",
    "read_weights",
    "write_json",
    "write_weights",
]
