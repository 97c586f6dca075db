"""Tables 1 and 2 of [Zhang 2023], in %, and the one way to ask for a number of them.

A published value may stand beside a measured one only where both are of the same data set: the
whole of it, its official split.  `published_set` decides that from a configuration.
"""

from __future__ import annotations

from collections.abc import Sequence

from bspml.experiment.config import Config

# Rows of the tables, by our names.
METHODS = (
    "contrastive-paper",
    "triplet-smooth",
    "margin",
    "fast-ap",
    "multi-similarity-paper",
    "rdml",
    "proxy-anchor",
    "snr",
    "bspml-paper",
)
_SHORT = ("R@1", "R@2", "R@4", "R@8", "R@16", "R@32", "NMI")
_COLUMNS = {
    "cub": _SHORT,
    "cars196": _SHORT,
    "in-shop": _SHORT,
    "sop": ("R@1", "R@8", "R@16", "R@32", "R@64", "R@128", "NMI"),
}

# Table 1: data set -> one line a method, in the order of METHODS, under the columns above.
_TABLE_1 = {
    "cub": """
        49.6 62.1 73.3 82.7 89.8 94.6 57.7
        42.0 54.5 66.4 77.6 86.5 92.7 52.3
        38.0 49.9 62.7 74.6 84.8 91.4 51.4
        42.9 55.0 67.3 78.0 86.8 92.9 52.7
        49.2 61.5 73.5 83.1 89.5 94.6 58.2
        43.5 56.8 69.1 80.1 88.5 93.9 53.1
        48.9 61.6 72.9 82.7 89.4 94.6 57.9
        47.8 61.5 72.9 82.6 89.3 94.3 56.4
        50.6 62.8 74.1 83.5 89.7 94.9 58.9
    """,
    "cars196": """
        56.4 67.9 77.2 85.7 91.3 95.6 51.8
        37.4 49.9 62.3 73.7 83.6 90.7 47.9
        42.8 54.6 66.5 77.7 86.7 93.1 49.4
        33.6 46.7 59.5 71.6 82.3 90.6 49.4
        58.1 70.2 80.0 87.5 92.6 96.1 54.4
        37.7 51.5 64.7 76.1 85.5 92.3 49.1
        58.5 70.4 80.2 87.4 92.7 96.5 54.6
        56.0 67.9 78.1 86.1 91.9 95.5 51.2
        59.6 71.4 80.3 87.6 92.9 96.4 55.4
    """,
    "in-shop": """
        73.1 80.9 86.8 90.8 93.4 95.5 82.9
        67.6 77.0 84.7 89.8 93.5 96.0 83.2
        55.7 66.5 75.9 83.2 88.9 93.0 80.1
        64.6 74.2 82.3 88.1 92.1 94.7 82.3
        73.4 80.7 86.4 90.6 93.4 95.3 84.7
        69.6 78.7 85.4 90.3 93.5 95.7 83.0
        74.2 81.2 86.9 91.0 93.7 95.5 85.0
        72.7 80.6 87.1 91.3 94.1 96.2 83.6
        75.0 82.1 87.8 91.6 94.2 96.0 85.9
    """,
    "sop": """
        65.0 79.5 83.1 86.2 88.7 91.1 88.3
        61.6 77.4 81.6 85.3 88.4 91.1 87.8
        51.4 69.9 75.3 80.4 84.8 88.7 86.2
        58.6 76.0 80.5 84.6 88.0 91.0 87.5
        65.8 79.4 83.0 86.2 89.2 91.7 88.6
        62.8 78.0 82.1 85.6 88.7 90.7 88.1
        66.3 80.2 83.3 86.2 88.7 90.9 88.7
        65.3 79.0 82.3 85.5 88.3 90.6 88.3
        66.3 80.9 84.4 87.5 90.1 92.5 89.1
    """,
}

# Table 2: data set -> noise rate -> Recall@1 and its deviation, in the order of METHODS.
_TABLE_2 = {
    "cub": {
        0.1: "48.26±0.21 39.69±0.17 37.72±0.18 41.57±0.13 48.46±0.16 41.59±0.15 48.31±0.12 "
        "45.95±0.19 50.08±0.18",
        0.2: "47.79±0.19 36.25±0.17 35.06±0.20 38.80±0.15 47.68±0.16 39.63±0.16 47.62±0.14 "
        "45.16±0.17 49.38±0.20",
        0.3: "46.25±0.24 33.92±0.20 34.36±0.18 37.10±0.15 46.25±0.14 37.57±0.16 46.66±0.15 "
        "44.43±0.21 48.74±0.19",
    },
    "cars196": {
        0.1: "55.24±0.26 36.58±0.18 40.24±0.18 32.33±0.12 57.11±0.15 37.09±0.16 57.84±0.15 "
        "55.04±0.17 58.78±0.18",
        0.2: "54.55±0.24 35.76±0.17 38.49±0.21 31.68±0.10 56.37±0.17 36.32±0.15 57.18±0.15 "
        "53.49±0.18 58.24±0.16",
        0.3: "52.94±0.22 34.81±0.19 37.67±0.17 31.04±0.10 55.14±0.18 35.55±0.15 56.06±0.16 "
        "51.51±0.20 57.38±0.19",
    },
    "in-shop": {
        0.1: "69.59±0.29 59.69±0.21 50.33±0.20 56.28±0.18 70.33±0.25 62.50±0.22 70.51±0.17 "
        "67.24±0.25 71.44±0.23",
        0.2: "63.34±0.27 53.20±0.18 45.74±0.21 52.03±0.13 65.68±0.20 57.73±0.20 66.38±0.17 "
        "60.36±0.23 67.91±0.25",
        0.3: "56.76±0.22 48.35±0.17 43.16±0.15 49.37±0.13 58.85±0.24 53.97±0.21 60.25±0.15 "
        "53.62±0.23 62.04±0.23",
    },
}


def published_set(config: Config) -> str | None:
    """The data set of the paper that this experiment is on, or None.

    None for any other data set, and for a part of one of the four: fewer classes or images, another
    split, or training classes held out.
    """
    data = config.data
    held_out = data.validation or config.validation_share > 0
    whole = not (data.incomplete or held_out or data.subset or data.classes != "official")
    return data.name if whole and data.name in _COLUMNS else None


def table_1(data_set: str | None) -> dict[str, dict[str, float]]:
    """{method: {"R@1": %, ..., "NMI": %}} on clean labels; {} where nothing is printed."""
    if data_set not in _TABLE_1:
        return {}
    lines = _TABLE_1[data_set].split("\n")[1:-1]
    rows = [[float(word) for word in line.split()] for line in lines]
    columns = _COLUMNS[data_set]
    return {
        method: dict(zip(columns, row, strict=True))
        for method, row in zip(METHODS, rows, strict=True)
    }


def table_2(data_set: str | None) -> dict[float, dict[str, tuple[float, float]]]:
    """{noise rate: {method: (Recall@1, deviation)}} in %; {} where nothing is printed."""
    printed = _TABLE_2.get(data_set or "", {})
    return {
        rate: {
            method: _pair(word.split("±"))
            for method, word in zip(METHODS, line.split(), strict=True)
        }
        for rate, line in printed.items()
    }


def _pair(words: Sequence[str]) -> tuple[float, float]:
    value, deviation = words
    return float(value), float(deviation)
