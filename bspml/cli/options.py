"""The options of every command, told once: their types, names, defaults and helps.

A command of `bspml` is one of these records: its docstring is the help of the command, its fields
are the arguments and options, and an instance is what the command's work is handed.  Nothing here
imports torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

Seed = Annotated[int | None, typer.Option(help="Seed of everything random.")]
Device = Annotated[str | None, typer.Option(help="auto, cpu, cuda, cuda:N or mps.")]
Workers = Annotated[int | None, typer.Option(help="Processes that load images.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, only the result.")]
Output = Annotated[str | None, typer.Option("--output", "-o", help="File to write.")]


@dataclass(frozen=True)
class TrainOptions:
    """Train an embedding while noisy samples lose their weight."""

    config: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[CONFIG.yaml] [key=value ...]",
            help="Experiment file and settings over it; without any, the main job: glyphs with "
            "30 % wrong labels, plain multi-similarity beside BSPML.",
        ),
    ] = None
    resume: Annotated[
        str | None,
        typer.Option(metavar="RUN", help="Go on with an interrupted run."),
    ] = None
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", help="Run folder to make [default: runs/NAME]."),
    ] = None
    seed: Seed = None
    device: Device = None
    workers: Workers = None
    json: Json = False
    quiet: Quiet = False


@dataclass(frozen=True)
class EvaluateOptions:
    """Recall@K, MAP@R, R-precision, NMI and AMI of a run or of embeddings you have."""

    what: Annotated[str, typer.Argument(metavar="RUN_OR_EMBEDDINGS", help="Run folder, or file.")]
    labels: Annotated[
        str | None,
        typer.Argument(help="Their labels (.npy, .npz, .csv, .parquet, .txt), if not inside."),
    ] = None
    gallery: Annotated[
        str | None,
        typer.Option(help="Embeddings to search in; default: the queries without themselves."),
    ] = None
    gallery_labels: Annotated[str | None, typer.Option(help="Labels of the gallery.")] = None
    ks: Annotated[
        str | None,
        typer.Option(help="The K of Recall@K; default: the run's own, of files 1,2,4,8,16,32."),
    ] = None
    method: Annotated[str, typer.Option(help="Of a run: bspml or multi-similarity.")] = "bspml"
    seed: Seed = None
    device: Device = None
    json: Json = False


@dataclass(frozen=True)
class EmbedOptions:
    """Embed images or features with a trained network; writes .npz: embeddings, labels, names."""

    run: Annotated[str, typer.Argument(metavar="RUN", help="Run folder.")]
    what: Annotated[
        str,
        typer.Argument(
            metavar="WHAT",
            help="Folder of images, train or test, or features for a run that takes them.",
        ),
    ] = "test"
    output: Output = None
    method: Annotated[str, typer.Option(help="bspml or multi-similarity.")] = "bspml"
    json: Json = False


@dataclass(frozen=True)
class NoiseOptions:
    """Put wrong labels into a label file; the true ones and the flags are kept beside them."""

    labels: Annotated[str, typer.Argument(help="File of labels.")]
    kind: Annotated[str, typer.Option(help="Kind of noise.")] = "symmetric"
    rate: Annotated[float, typer.Option(help="Share of labels to change.")] = 0.3
    per_class: Annotated[bool, typer.Option(help="The same share of every class.")] = False
    keep_original: Annotated[
        bool, typer.Option("--keep-original", help="A drawn label may come out as it was.")
    ] = False
    by_chance: Annotated[
        bool, typer.Option("--by-chance", help="Draw each sample with probability RATE.")
    ] = False
    output: Output = None
    seed: Seed = None
    json: Json = False


@dataclass(frozen=True)
class ReportOptions:
    """Make report.html again from what a run or an audit left behind."""

    run: Annotated[str, typer.Argument(metavar="RUN", help="Folder of a run or of an audit.")]
    json: Json = False


@dataclass(frozen=True)
class AuditOptions:
    """How many labels are wrong, which, and what they should be; needs no training."""

    what: Annotated[
        str,
        typer.Argument(
            metavar="EMBEDDINGS",
            help="Embeddings (.npy, .npz, .csv, .parquet), a folder of images with --backbone, a "
            "run folder, or the folder of an earlier audit.",
        ),
    ]
    labels: Annotated[
        str | None,
        typer.Argument(help="Labels (.npy, .npz, .csv, .parquet, .txt), if not in EMBEDDINGS."),
    ] = None
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", help="Folder to write [default: NAME-audit]."),
    ] = None
    apply: Annotated[
        str | None,
        typer.Option(metavar="DECISIONS.csv", help="Put the page's decisions into the labels."),
    ] = None
    fail_above: Annotated[
        float | None,
        typer.Option(
            metavar="RATE",
            help="Exit with 3 if the best estimate is above this, with 2 if nothing can be judged.",
        ),
    ] = None
    images: Annotated[
        str | None,
        typer.Option(metavar="FOLDER", help="Images for the page; names are files in it."),
    ] = None
    names: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Names, and texts, of the samples (.txt, .csv, .npz)."),
    ] = None
    backbone: Annotated[
        str | None,
        typer.Option(help="For images: efficientnet-lite0, torchvision:MODEL or timm:MODEL."),
    ] = None
    weights: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="State dict of a torchvision or timm backbone."),
    ] = None
    seed: Seed = None
    device: Device = None
    workers: Workers = None
    json: Json = False
    quiet: Quiet = False

    @property
    def hushed(self) -> bool:
        """Whether stderr shows no progress."""
        return self.quiet or self.json


@dataclass(frozen=True)
class CheckOptions:
    """Say what is missing, damaged or miscounted, and where to get the data set."""

    name: Annotated[
        str,
        typer.Argument(
            help="cub, cars196, in-shop, sop, omniglot, cifar10, cifar100, glyphs, folder, table "
            "or features."
        ),
    ]
    root: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="Folder of the data set; of a table, the file."),
    ] = None
    decode_all: Annotated[
        bool, typer.Option("--decode-all", help="Decode every image, not only its header.")
    ] = False
    subset: Annotated[
        bool, typer.Option("--subset", help="Fewer images than published are no problem.")
    ] = False
    json: Json = False
    quiet: Quiet = False
