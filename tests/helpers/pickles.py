"""A pickle that shows whether it was executed."""

import os


class Bomb:
    """Makes the folder `marker` when it is unpickled without a check."""

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.mkdir, (str(self.marker),)
