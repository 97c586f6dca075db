"""What jaxtyping's import hook puts around the functions of bspml: one check by beartype, no more.

`jaxtyping.jaxtyped` checks the arguments of a call twice, binds them to names for its messages, and
does so where no shape is named, too: a quarter of a test's time.  Here beartype checks them once,
and letters are remembered (one N in all arguments and in what is returned) where there are letters.
"""

import dataclasses
import functools
import inspect
import typing

import beartype
import jaxtyping

# An int is welcome where a float is annotated (PEP 484's numeric tower), as everywhere in Python.
_CHECK = beartype.beartype(
    conf=beartype.BeartypeConf(is_pep484_tower=True, violation_type=jaxtyping.TypeCheckError)
)
_BY_JAXTYPING = jaxtyping.jaxtyped
_LETTERS = jaxtyping.jaxtyped("context")  # forgotten when the call ends


def install():
    """Check every call of bspml's functions, as far as they are imported from now on."""
    jaxtyping.jaxtyped = checked  # the name by which what the hook writes asks for it
    jaxtyping.install_import_hook("bspml", None)


def checked(thing=None, *, typechecker=None):
    """`thing`, a function or a class, with its calls checked; of a class only a dataclass's."""
    if thing is None:
        return checked
    if not inspect.isclass(thing):
        return _checked(thing)
    if dataclasses.is_dataclass(thing) and "__init__" in vars(thing):
        thing.__init__ = _checked(thing.__init__)
    return thing


def _checked(function):
    if getattr(function, "__no_type_check__", False) or hasattr(function, "is_checked"):
        return function
    if inspect.isgeneratorfunction(function):  # beartype would look at the first step, not the call
        return _BY_JAXTYPING(function, typechecker=_CHECK)
    hints = {name: _hint(function, text) for name, text in function.__annotations__.items()}
    function.__annotations__ = hints
    found = _CHECK(function)
    if any(map(_has_letters, hints.values())):
        found = _with_letters(found)
    found.is_checked = True
    return found


def _with_letters(function):
    @functools.wraps(function)
    def called(*args, **kwargs):
        __tracebackhide__ = True
        with _LETTERS:
            return function(*args, **kwargs)

    return called


def _hint(function, annotation):
    """The type that an annotation names; anything where its name is for mypy alone."""

    def probe(): ...

    probe.__annotations__ = {"value": annotation}
    try:
        return typing.get_type_hints(probe, function.__globals__, include_extras=True)["value"]
    except Exception:
        return typing.Any


def _has_letters(hint):
    if inspect.isclass(hint) and issubclass(hint, jaxtyping.AbstractArray):
        return True
    return any(map(_has_letters, typing.get_args(hint)))
