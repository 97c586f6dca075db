"""The commands of `bspml` with their options; each imports its work, and torch, when called."""

from __future__ import annotations

import io
import sys
import warnings
from collections.abc import Sequence
from typing import Annotated

import typer

from bspml import __version__
from bspml.cli.exit_codes import INTERRUPTED, complain, exit_code, show_warning

app = typer.Typer(
    name="bspml",
    help="Deep metric learning that survives wrong labels.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

data_app = typer.Typer(
    help="Data sets on this machine.", no_args_is_help=True, rich_markup_mode=None
)
app.add_typer(data_app, name="data")

Seed = Annotated[int | None, typer.Option(help="Seed of everything random.")]
Device = Annotated[str | None, typer.Option(help="auto, cpu, cuda, cuda:N or mps.")]
Workers = Annotated[int | None, typer.Option(help="Processes that load images.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, only the result.")]
Output = Annotated[str | None, typer.Option("--output", "-o", help="File to write.")]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # Names of files need not be text, nor the terminal UTF-8: what cannot be shown is
            # escaped.
            stream.reconfigure(errors="backslashreplace")
    with warnings.catch_warnings():
        warnings.showwarning = show_warning  # type: ignore[assignment]  # fewer names
        try:
            code = app(args=None if argv is None else list(argv), standalone_mode=False)
            if sys.stdout is not None:  # closed by the caller
                sys.stdout.flush()  # here, not at exit: a full disk has a line of its own
        except BaseException as err:
            return exit_code(err)
    if code == INTERRUPTED:
        complain("interrupted", INTERRUPTED)
    return code if isinstance(code, int) else 0


def _version(show: bool | None) -> None:
    if show:
        print(f"bspml {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool | None,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = None,
) -> None:
    pass


@app.command()
def train(
    config: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[CONFIG.yaml] [key=value ...]",
            help="Experiment file and settings over it; without any, the main job: glyphs with "
            "30 % wrong labels, plain multi-similarity beside BSPML.",
        ),
    ] = None,
    resume: Annotated[
        str | None,
        typer.Option(metavar="RUN", help="Go on with an interrupted run."),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", help="Run folder to make [default: runs/NAME]."),
    ] = None,
    seed: Seed = None,
    device: Device = None,
    workers: Workers = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train an embedding while noisy samples lose their weight."""
    from bspml.cli.train import TrainOptions, run_train

    common = {"seed": seed, "device": device, "workers": workers}
    settings = [f"{key}={value}" for key, value in common.items() if value is not None]
    run_train(TrainOptions(config or [], settings, resume, output, json, quiet))


@app.command()
def evaluate(
    what: Annotated[str, typer.Argument(metavar="RUN_OR_EMBEDDINGS", help="Run folder, or file.")],
    labels: Annotated[
        str | None,
        typer.Argument(help="Their labels (.npy, .npz, .csv, .parquet, .txt), if not inside."),
    ] = None,
    gallery: Annotated[
        str | None,
        typer.Option(help="Embeddings to search in; default: the queries without themselves."),
    ] = None,
    gallery_labels: Annotated[str | None, typer.Option(help="Labels of the gallery.")] = None,
    ks: Annotated[
        str | None,
        typer.Option(help="The K of Recall@K; default: the run's own, of files 1,2,4,8,16,32."),
    ] = None,
    method: Annotated[str, typer.Option(help="Of a run: bspml or multi-similarity.")] = "bspml",
    seed: Seed = None,
    device: Device = None,
    json: Json = False,
) -> None:
    """Recall@K, MAP@R, R-precision, NMI and AMI of a run or of embeddings you have."""
    from bspml.cli.evaluate import EvaluateOptions, run_evaluate

    files = (labels, gallery, gallery_labels)
    run_evaluate(EvaluateOptions(what, *files, ks, method, seed or 0, device, json))


@app.command()
def embed(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Run folder.")],
    what: Annotated[
        str,
        typer.Argument(
            metavar="WHAT",
            help="Folder of images, train or test, or features for a run that takes them.",
        ),
    ] = "test",
    output: Output = None,
    method: Annotated[str, typer.Option(help="bspml or multi-similarity.")] = "bspml",
    json: Json = False,
) -> None:
    """Embed images or features with a trained network; writes .npz: embeddings, labels, names."""
    from bspml.cli.embed import run_embed

    run_embed(run, what, output, method, json)


@app.command()
def noise(
    labels: Annotated[str, typer.Argument(help="File of labels.")],
    kind: Annotated[str, typer.Option(help="Kind of noise.")] = "symmetric",
    rate: Annotated[float, typer.Option(help="Share of labels to change.")] = 0.3,
    per_class: Annotated[bool, typer.Option(help="The same share of every class.")] = False,
    keep_original: Annotated[
        bool, typer.Option("--keep-original", help="A drawn label may come out as it was.")
    ] = False,
    by_chance: Annotated[
        bool, typer.Option("--by-chance", help="Draw each sample with probability RATE.")
    ] = False,
    output: Output = None,
    seed: Seed = None,
    json: Json = False,
) -> None:
    """Put wrong labels into a label file; the true ones and the flags are kept beside them."""
    from bspml.cli.noise import NoiseOptions, run_noise

    flags = (per_class, keep_original, by_chance)
    run_noise(NoiseOptions(labels, kind, rate, *flags, output, seed or 0, json))


@app.command()
def report(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Folder of a run or of an audit.")],
    json: Json = False,
) -> None:
    """Make report.html again from what a run or an audit left behind."""
    from bspml.cli.report import run_report

    run_report(run, json)


@app.command()
def audit(
    what: Annotated[
        str,
        typer.Argument(
            metavar="EMBEDDINGS",
            help="Embeddings (.npy, .npz, .csv, .parquet), a folder of images with --backbone, a "
            "run folder, or the folder of an earlier audit.",
        ),
    ],
    labels: Annotated[
        str | None,
        typer.Argument(help="Labels (.npy, .npz, .csv, .parquet, .txt), if not in EMBEDDINGS."),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", help="Folder to write [default: NAME-audit]."),
    ] = None,
    apply: Annotated[
        str | None,
        typer.Option(metavar="DECISIONS.csv", help="Put the page's decisions into the labels."),
    ] = None,
    fail_above: Annotated[
        float | None,
        typer.Option(
            metavar="RATE",
            help="Exit with 3 if the best estimate is above this, with 2 if nothing can be judged.",
        ),
    ] = None,
    images: Annotated[
        str | None,
        typer.Option(metavar="FOLDER", help="Images for the page; names are files in it."),
    ] = None,
    names: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Names, and texts, of the samples (.txt, .csv, .npz)."),
    ] = None,
    backbone: Annotated[
        str | None,
        typer.Option(help="For images: efficientnet-lite0, torchvision:MODEL or timm:MODEL."),
    ] = None,
    weights: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="State dict of a torchvision or timm backbone."),
    ] = None,
    seed: Seed = None,
    device: Device = None,
    workers: Workers = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """How many labels are wrong, which, and what they should be; needs no training."""
    from bspml.cli.audit import run_audit
    from bspml.cli.audit_source import AuditOptions

    run_audit(
        AuditOptions(
            what, labels, output, apply, fail_above, images, names, backbone, weights, seed,
            device, workers, json, quiet,
        )
    )  # fmt: skip


@data_app.command("check")
def data_check(
    name: Annotated[
        str,
        typer.Argument(
            help="cub, cars196, in-shop, sop, omniglot, cifar10, cifar100, glyphs, folder, table "
            "or features."
        ),
    ],
    root: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="Folder of the data set; of a table, the file."),
    ] = None,
    decode_all: Annotated[
        bool, typer.Option("--decode-all", help="Decode every image, not only its header.")
    ] = False,
    subset: Annotated[
        bool, typer.Option("--subset", help="Fewer images than published are no problem.")
    ] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Say what is missing, damaged or miscounted, and where to get the data set."""
    from bspml.cli.data import run_check

    run_check(name, root, decode_all, subset, json, quiet)
