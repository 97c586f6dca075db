"""Count what keeps the package walkable, print it, and fail where a bound is broken.

    python .ci/house.py            # the table; exit code 1 if a bound is broken
    python .ci/house.py --list     # and, under each number, the places behind it

Counted from the source files alone: nothing of the package is imported.
"""

from __future__ import annotations

import ast
import graphlib
import io
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:  # import-linter brings it
    import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "bspml"
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass
class Count:
    """One line of the table: a number, its bound, and the places behind it."""

    what: str
    number: float
    low: float | None = None
    high: float | None = None
    unit: str = ""
    places: list[str] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        return (self.low is None or self.number >= self.low) and (
            self.high is None or self.number <= self.high
        )

    def line(self) -> str:
        bound = f"at least {self.low:,g}" if self.low is not None else f"at most {self.high:,g}"
        verdict = "ok" if self.holds else "BROKEN"
        return f"{self.what:<66} {self.number:>8,g}{self.unit:<2} {bound:<16} {verdict}"


def sources() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def where(path: Path, line: int = 0) -> str:
    return f"{path.relative_to(ROOT)}:{line}" if line else str(path.relative_to(ROOT))


def root_entries() -> Count:
    """Modules and folders directly under bspml/, but for __init__ and __main__."""
    entries = [
        p.name
        for p in sorted(PACKAGE.iterdir())
        if not p.name.startswith("__") and (p.suffix == ".py" or p.is_dir())
    ]
    return Count("entries at the root of bspml/", len(entries), high=24, places=entries)


def layers() -> list[Count]:
    """Import layers of the contract that covers the whole package."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    rooms = next(c for c in contracts if c.get("containers") == ["bspml"])
    number = len(rooms["layers"])
    return [
        Count("import layers (kept by import-linter)", number, high=8),
        Count("that contract is exhaustive (1: yes)", int(rooms.get("exhaustive", False)), low=1),
    ]


def imports_of(path: Path, modules: dict[str, Path]) -> set[str]:
    """Files of the package that one imports, anywhere in it but under TYPE_CHECKING."""
    found: set[str] = set()
    for node in _executed(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found.update(a.name for a in node.names if a.name in modules)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                found.update(
                    n for n in (inner if inner in modules else node.module,) if n in modules
                )
    return found


def _executed(tree: ast.AST) -> Iterator[ast.AST]:
    """Every node but those under `if TYPE_CHECKING:`."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        yield node
        yield from _executed(node)


def import_cycles() -> Count:
    """Whether any two files import each other, through others or inside functions."""
    modules = {
        ".".join(p.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): p
        for p in sources()
    }
    graph = {name: imports_of(path, modules) - {name} for name, path in modules.items()}
    cycles: list[str] = []
    while True:
        try:
            graphlib.TopologicalSorter(graph).prepare()
        except graphlib.CycleError as err:
            cycle = err.args[1]
            cycles.append(" <- ".join(cycle))
            graph[cycle[1]].discard(cycle[0])  # and look for the next one
        else:
            return Count("import cycles between files", len(cycles), high=0, places=cycles)


def functions(path: Path) -> Iterator[tuple[Function, str]]:
    """Functions and methods of a file with their dotted names; none inside other functions."""
    stack: list[tuple[ast.AST, str]] = [(ast.parse(path.read_text("utf-8")), "")]
    while stack:
        node, prefix = stack.pop()
        for child in ast.iter_child_nodes(node):
            if isinstance(child, Function):
                yield child, prefix + child.name
            elif isinstance(child, ast.ClassDef):
                stack.append((child, f"{prefix}{child.name}."))
            elif isinstance(child, ast.If | ast.Try | ast.With):
                stack.append((child, prefix))


def parameters(function: Function) -> list[str]:
    """Parameters by name, but for self and cls."""
    a = function.args
    listed = [*a.posonlyargs, *a.args, *a.kwonlyargs, *filter(None, (a.vararg, a.kwarg))]
    return [p.arg for p in listed if p.arg not in ("self", "cls")]


def is_public(dotted: str) -> bool:
    return not any(part.startswith("_") for part in dotted.split("."))


def documented_arguments() -> Count:
    """Share of public functions of two or more parameters whose docstring lists them."""
    all_, missing = 0, []
    for path in sources():
        for function, dotted in functions(path):
            if not is_public(dotted) or len(parameters(function)) < 2 or _overload(function):
                continue
            all_ += 1
            if "Args:" not in (ast.get_docstring(function) or ""):
                missing.append(f"{where(path, function.lineno)} {dotted}")
    share = 100 * (all_ - len(missing)) / max(all_, 1)
    what = "public functions of two or more parameters with Args"
    return Count(what, round(share, 1), low=80, unit=" %", places=missing)


def _overload(function: Function) -> bool:
    return any("overload" in ast.unparse(d) for d in function.decorator_list)


def wide_functions() -> Count:
    """Functions of eight parameters or more."""
    found = [
        f"{where(path, function.lineno)} {dotted} ({len(parameters(function))})"
        for path in sources()
        for function, dotted in functions(path)
        if len(parameters(function)) >= 8
    ]
    return Count("functions of eight parameters or more", len(found), high=25, places=found)


def longest_module() -> Count:
    lengths = {p: len(p.read_text("utf-8").splitlines()) for p in sources()}
    longest = max(lengths, key=lambda p: lengths[p])
    over = [f"{where(p)} {n}" for p, n in lengths.items() if n > 400]
    what = f"lines of the longest module, {where(longest)}"
    return Count(what, lengths[longest], high=400, places=over)


def code_lines() -> Count:
    """Lines of code: no docstrings, comments or blank lines."""
    total = 0
    for path in sources():
        text = path.read_text("utf-8")
        lines: set[int] = set()
        skipped = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.ENCODING)
        skipped += (tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type not in skipped:
                lines.update(range(token.start[0], token.end[0] + 1))
        for node in ast.walk(ast.parse(text)):
            body = getattr(node, "body", None)
            if isinstance(node, ast.Module | ast.ClassDef | Function) and body:
                first = body[0]
                if isinstance(first, ast.Expr) and _is_text(first.value):
                    lines -= set(range(first.lineno, (first.end_lineno or 0) + 1))
        total += len(lines)
    return Count("lines of code without docstrings, comments, blanks", total, high=35_500)


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def exported_examples() -> Count:
    """Names that `bspml` exports whose docstring has no runnable example."""
    tree = ast.parse((PACKAGE / "__init__.py").read_text("utf-8"))
    home: dict[str, str] = {}
    modules: tuple[str, ...] = ()
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            if node.targets[0].id == "_HOME":
                home = ast.literal_eval(node.value)
            elif node.targets[0].id == "_MODULES":
                modules = ast.literal_eval(node.value)
    missing = [n for n, module in home.items() if not _has_example(_file(module), n)]
    missing += [n for n in modules if ">>>" not in _module_docstring(_file(f"bspml.{n}"))]
    what = f"names of {len(home) + len(modules)} exported by bspml without a runnable example"
    return Count(what, len(missing), high=0, places=missing)


def _file(module: str) -> Path:
    path = ROOT / module.replace(".", "/")
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def _module_docstring(path: Path) -> str:
    return ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""


def _has_example(path: Path, name: str) -> bool:
    """Whether the function or class, found through re-exports, has a doctest in its docstring."""
    for node in ast.parse(path.read_text("utf-8")).body:
        if isinstance(node, ast.ClassDef | Function) and node.name == name:
            inner = [n for n in getattr(node, "body", []) if isinstance(n, Function)]
            texts = [ast.get_docstring(node)]
            if isinstance(node, ast.ClassDef):
                texts += [ast.get_docstring(n) for n in inner]
            return any(">>>" in (text or "") for text in texts)
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and any(a.name == name for a in node.names):
            return _has_example(_file(node.module or ""), name)
    return False


def main(arguments: list[str]) -> int:
    counts = [
        root_entries(),
        *layers(),
        import_cycles(),
        documented_arguments(),
        exported_examples(),
        longest_module(),
        wide_functions(),
        code_lines(),
    ]
    for count in counts:
        print(count.line())
        if "--list" in arguments or not count.holds:
            for place in count.places if "--list" in arguments else count.places[:5]:
                print(f"    {place}")
    return 0 if all(count.holds for count in counts) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
