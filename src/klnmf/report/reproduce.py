"""How to run the fit again: the model's parameters as Python and as a command line."""

import inspect
import shlex
from collections.abc import Mapping
from typing import Any

import numpy as np

from klnmf.constraints.constraints import ComponentConstraints

# Parameters that have no option, or that do not change the factors.
_NOT_FOR_THE_SHELL = {"backend", "run", "sparse_output", "warm_start"}
# Arguments of a fit that a command reads from files.
IN_FILES = ("sample_weight", "feature_weight", "exposure")


def python_snippet(model: Any, parameters: Mapping[str, str]) -> str:
    """Write Python code that fits the model again, with all parameters.

    The parameters may hold "python", the code for a model that another object made, or "python
    reading", the code that reads X and what else the fit was given.

    Examples
    --------
    >>> from klnmf import KLNMF
    >>> print(python_snippet(KLNMF(2, random_state=0), {"min_df": "3"}).splitlines()[4])
        n_components=2,
    """
    if parameters.get("python"):
        return parameters["python"]
    name = type(model).__name__
    data = parameters.get("python reading", "")
    lines = [f"from klnmf import {name}", *(data.splitlines() or [""])]
    arguments, needs_numpy = [], "numpy." in data
    constraints = constraint_names(model)
    read = [key for key in constraints if f"\n{key} = " in data]
    for key, value in _ordered_parameters(model).items():
        if key == "run":
            if value is not None and value.callback is not None:
                arguments.append("    # a callback was set; it may have stopped the fit")
            continue
        text, remark = (key, _remark(key)) if key in constraints else as_python(value)
        remark = "" if key in read else remark
        needs_numpy |= "numpy." in text
        arguments.append(f"    {key}={text},{remark}")
    if needs_numpy:
        lines.insert(0, "import numpy")
    if not data:
        lines += [f"# {key} = {value!r}" for key, value in parameters.items()]
    lines += [f"model = {name}(", *arguments, ")", _fit_call(model, constraints, read)]
    return "\n".join(lines)


def command_line(model: Any, parameters: Mapping[str, str]) -> str:
    """Write the same fit as a command; a comment if it needs arguments that only Python can pass.

    The parameters may hold "input" (the data), "input options" (how to read them), and "command",
    which made the model if that was not `klnmf fit`.

    Examples
    --------
    >>> from klnmf import KLNMF
    >>> command_line(KLNMF(2, random_state=0), {"input": "my counts.npz"})[:50]
    "klnmf fit 'my counts.npz' --n-components 2 --solve"
    """
    if parameters.get("command"):
        return parameters["command"]
    constraints = constraint_names(model)
    in_the_way = [name for name in constraints if name not in IN_FILES]
    if in_the_way:
        named = ", ".join(in_the_way)
        return f"# not available on the command line: {named} can only be passed in Python"
    options = parameters.get("input options", "")
    put_in = [name for name in constraints if _option(name) not in shlex.split(options)]
    words = [f"# {name}.txt: {name} of the fit, one number per line\n" for name in put_in]
    words = ["".join(words) + "klnmf", "fit", shlex.quote(parameters.get("input", "DATA"))]
    for key, value in _ordered_parameters(model).items():
        text = None if key in _NOT_FOR_THE_SHELL else _as_word(value)
        if text is not None:
            words += [_option(key), shlex.quote(text)]
    words += [f"{_option(name)} {name}.txt" for name in put_in]
    return " ".join([*words, options]).rstrip()


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def option_words(options: Mapping[str, Any]) -> str:
    """Write options of reading data as words of a command line.

    Examples
    --------
    >>> option_words({"layer": "raw counts", "transpose": True, "ngram_range": [1, 2]})
    "--layer 'raw counts' --transpose --ngram-range 1,2"
    """
    words: list[str] = []
    for name, value in options.items():
        if name == "lowercase":
            words += [] if value else ["--keep-case"]
        elif isinstance(value, bool):
            words.append(_option(name if value else f"no_{name}"))
        else:
            listed = value if isinstance(value, list | tuple) else [value]
            words += [_option(name), ",".join(map(str, listed))]
    return shlex.join(words)


def constraint_names(model: Any) -> list[str]:
    """Return the constraints of a fit, whether parameters or arguments of ``fit``."""
    parameters = model.get_params(deep=False)
    names = [n for n in ComponentConstraints.__annotations__ if parameters.get(n) is not None]
    # A file may come from a stranger: only names must get into code.
    names += [name for name in getattr(model, "constraint_names_", ()) if name.isidentifier()]
    return list(dict.fromkeys(names))


def _remark(constraint: str) -> str:
    """Say where to get a constraint that is a parameter."""
    places = {
        "fixed_components": "the first rows of components_",
        "feature_weight": "feature_weight_ of the fitted model",
    }
    return f"  # {places.get(constraint, 'as it was given to the fit')}"


def _fit_call(model: Any, constraints: list[str], read: list[str]) -> str:
    """Call of ``fit_transform`` with all that was passed besides X; ``read`` is from files."""
    passed = [name for name in constraints if name not in model.get_params(deep=False)]
    arguments = ", ".join(["X", *(f"{name}={name}" for name in passed)])
    remark = "" if set(passed) <= set(read) else "  # not saved with the model"
    return f"W = model.fit_transform({arguments}){remark}"


def _ordered_parameters(model: Any) -> dict[str, Any]:
    """Parameters as Python objects in the order of the signature: important ones come first."""
    values = model.get_params(deep=False)
    order = [key for key in inspect.signature(type(model)).parameters if key in values]
    return {key: _plain(values[key]) for key in order}


def as_python(value: Any) -> tuple[str, str]:
    """Source text of a value, and a comment if it cannot be written out."""
    if isinstance(value, np.random.RandomState):
        return "None", "  # was a RandomState; its state is not saved"
    dtype = _dtype_name(value)
    return (f"numpy.{dtype}", "") if dtype else (repr(_plain(value)), "")


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _as_word(value: Any) -> str | None:
    """Text of a value on a command line; None if it has none."""
    return _dtype_name(value) or (str(value) if isinstance(value, str | int | float) else None)


def _dtype_name(value: Any) -> str | None:
    is_scalar_type = isinstance(value, type) and issubclass(value, np.generic)
    return np.dtype(value).name if is_scalar_type or isinstance(value, np.dtype) else None
