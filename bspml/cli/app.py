"""`bspml`: the commands, and what an error becomes.

Exit codes: 0 done; 1 a fault of ours; 2 the user's mistake (one line on stderr); 3 the audit found
more than --fail-above allows; 130 interrupted.
"""

from __future__ import annotations

import errno
import io
import os
import sys
import traceback
import warnings
from collections.abc import Sequence
from typing import Annotated, Any, Optional

import typer

from bspml import __version__
from bspml.errors import LostRankError, UserError

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

_INTERRUPTED = 130  # 128 + SIGINT, as shells count
_NO_ROOM = (errno.ENOSPC, errno.EFBIG, errno.EIO, getattr(errno, "EDQUOT", errno.ENOSPC))

Seed = Annotated[Optional[int], typer.Option(help="Seed of everything random.")]  # noqa: UP045
Device = Annotated[Optional[str], typer.Option(help="auto, cpu, cuda, cuda:N or mps.")]  # noqa: UP045
Workers = Annotated[Optional[int], typer.Option(help="Processes that load images.")]  # noqa: UP045
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, only the result.")]
Output = Annotated[Optional[str], typer.Option("--output", "-o", help="File to write.")]  # noqa: UP045


class InterruptedRun(Exception):  # noqa: N818  (not an error: typer would swallow KeyboardInterrupt)
    """Ctrl-C in the middle of work that can go on; the text says how."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # Names of files need not be text, nor the terminal UTF-8: what cannot be shown is
            # escaped.
            stream.reconfigure(errors="backslashreplace")
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning  # type: ignore[assignment]  # fewer names
        try:
            code = app(args=None if argv is None else list(argv), standalone_mode=False)
            if sys.stdout is not None:  # closed by the caller
                sys.stdout.flush()  # here, not at exit: a full disk has a line of its own
        except BaseException as err:
            return _exit_code(err)
    if code == _INTERRUPTED:
        _complain("interrupted", _INTERRUPTED)
    return code if isinstance(code, int) else 0


def _show_warning(message: Warning | str, *_where: Any) -> None:
    """A warning is for the user: no file, no line of ours, and of many processes one says it."""
    if _is_main_process():
        print(f"bspml: warning: {_one_line(str(message))}", file=sys.stderr)


def _exit_code(err: BaseException) -> int:
    if getattr(err, "said_elsewhere", False):  # by another process of the group
        return 2 if isinstance(err, UserError) else 1
    if isinstance(err, LostRankError):
        return _complain(_one_line(str(err)), 1)
    if isinstance(err, UserError):
        return _complain(_one_line(str(err)), 2)
    if isinstance(err, InterruptedRun | KeyboardInterrupt) or type(err).__name__ == "Abort":
        if not _is_main_process():  # all are interrupted, one says so
            return _INTERRUPTED
        return _complain(str(err) or "interrupted", _INTERRUPTED)
    if isinstance(err, BrokenPipeError) or isinstance(err.__context__, BrokenPipeError):
        # Raised by us, or by click, which makes an exit of it.
        # The reader (head, less) went away; Python would complain once more while closing stdout.
        sys.stdout = None
        return 0
    if isinstance(err, SystemExit) or type(err).__name__ == "Exit":
        code = getattr(err, "exit_code", getattr(err, "code", 0))
        return code if isinstance(code, int) else 1
    if type(err).__name__ == "NoArgsIsHelpError":
        print(err.format_message(), file=sys.stderr)  # type: ignore[attr-defined]
        return 2
    if hasattr(err, "format_message"):  # click's usage errors
        if not _is_main_process():  # all got the same arguments
            return 2
        return _complain(f"{_one_line(err.format_message())} (see `bspml --help`)", 2)
    if isinstance(err, OSError) and err.filename is None and err.errno in _NO_ROOM:
        sys.stdout = None
        return _complain(f"the output cannot be written ({err.strerror})", 2)
    traceback.print_exception(err)
    return _complain("this is a fault of bspml, not yours; please report the lines above", 1)


def _is_main_process() -> bool:
    """False for the processes of torchrun that leave the talking to the first; needs no torch."""
    return os.environ.get("RANK", "0") == "0"


def _complain(text: str, code: int) -> int:
    print(f"bspml: {text}", file=sys.stderr)
    return code


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _version(show: bool | None) -> None:
    if show:
        print(f"bspml {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        Optional[bool],  # noqa: UP045
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = None,
) -> None:
    pass


@app.command()
def train(
    config: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Argument(
            metavar="[CONFIG.yaml] [key=value ...]",
            help="Experiment file and settings over it; without any, the main job: glyphs with "
            "30 % wrong labels, plain multi-similarity beside BSPML.",
        ),
    ] = None,
    resume: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(metavar="RUN", help="Go on with an interrupted run."),
    ] = None,
    output: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--output", "-o", help="Run folder to make [default: runs/NAME]."),
    ] = None,
    seed: Seed = None,
    device: Device = None,
    workers: Workers = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train an embedding while noisy samples lose their weight."""
    from bspml.cli.train import run_train

    common: dict[str, Any] = {"seed": seed, "device": device, "workers": workers}
    run_train(config or [], resume, output, common, json, quiet)


@app.command()
def evaluate(
    what: Annotated[str, typer.Argument(metavar="RUN_OR_EMBEDDINGS", help="Run folder, or file.")],
    labels: Annotated[
        Optional[str],  # noqa: UP045
        typer.Argument(help="Their labels (.npy, .npz, .csv, .parquet, .txt), if not inside."),
    ] = None,
    gallery: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="Embeddings to search in; default: the queries without themselves."),
    ] = None,
    gallery_labels: Annotated[Optional[str], typer.Option(help="Labels of the gallery.")] = None,  # noqa: UP045
    ks: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="The K of Recall@K; default: the run's own, of files 1,2,4,8,16,32."),
    ] = None,
    method: Annotated[str, typer.Option(help="Of a run: bspml or multi-similarity.")] = "bspml",
    seed: Seed = None,
    device: Device = None,
    json: Json = False,
) -> None:
    """Recall@K, MAP@R, R-precision, NMI and AMI of a run or of embeddings you have."""
    from bspml.cli.evaluate import run_evaluate

    run_evaluate(what, labels, gallery, gallery_labels, ks, method, seed or 0, device, json)


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
    from bspml.cli.noise import run_noise

    run_noise(labels, kind, rate, per_class, keep_original, by_chance, output, seed or 0, json)


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
        Optional[str],  # noqa: UP045
        typer.Argument(help="Labels (.npy, .npz, .csv, .parquet, .txt), if not in EMBEDDINGS."),
    ] = None,
    output: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--output", "-o", help="Folder to write [default: NAME-audit]."),
    ] = None,
    apply: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(metavar="DECISIONS.csv", help="Put the page's decisions into the labels."),
    ] = None,
    fail_above: Annotated[
        Optional[float],  # noqa: UP045
        typer.Option(
            metavar="RATE",
            help="Exit with 3 if the best estimate is above this, with 2 if nothing can be judged.",
        ),
    ] = None,
    images: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(metavar="FOLDER", help="Images for the page; names are files in it."),
    ] = None,
    names: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(metavar="FILE", help="Names, and texts, of the samples (.txt, .csv, .npz)."),
    ] = None,
    backbone: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="For images: efficientnet-lite0, torchvision:MODEL or timm:MODEL."),
    ] = None,
    weights: Annotated[
        Optional[str],  # noqa: UP045
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

    run_audit(
        what, labels, output, apply, fail_above, images, names, backbone, weights, seed,
        device, workers, json, quiet,
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
        Optional[str],  # noqa: UP045
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
