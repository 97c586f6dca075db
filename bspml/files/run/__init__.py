"""What a run leaves behind: its folder, one record per epoch, and the table of sample weights."""

from bspml.files.run.epochs import (
    UNTRAINED as UNTRAINED,
    EpochRecord as EpochRecord,
    RecordLog as RecordLog,
)
from bspml.files.run.folder import (
    RunFolder as RunFolder,
    read_json as read_json,
    write_json as write_json,
)
from bspml.files.run.weights_table import (
    SUSPECT_BELOW as SUSPECT_BELOW,
    WeightsTable as WeightsTable,
    read_weights as read_weights,
    write_weights as write_weights,
)
