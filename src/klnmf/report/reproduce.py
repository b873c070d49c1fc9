"""How to run the fit again: the model's parameters as Python and as a command line."""

from __future__ import annotations

import inspect
import shlex
from collections.abc import Mapping
from typing import Any

import numpy as np

# The key of `parameters` that names the data.
INPUT_KEY = "input"
# The key of `parameters` with the options for reading the data.
OPTIONS_KEY = "input options"
# The key of `parameters` with the command that made the model, if that was not `klnmf fit`.
COMMAND_KEY = "command"
# Parameters that have no option, or that do not change the factors.
_NOT_FOR_THE_SHELL = {
    *("backend", "callback", "checkpoint", "checkpoint_every", "progress", "resume"),
    *("sparse_output", "warm_start"),
}


def python_snippet(model: Any, parameters: Mapping[str, str]) -> str:
    """Write Python code that fits the model again, with all parameters.

    Examples
    --------
    >>> from klnmf import KLNMF
    >>> print(python_snippet(KLNMF(2, random_state=0), {"min_df": "3"}).splitlines()[4])
        n_components=2,
    """
    name = type(model).__name__
    lines = [f"from klnmf import {name}", ""]
    arguments, needs_numpy = [], False
    for key, value in _ordered_parameters(model).items():
        if key == "callback":
            if value is not None:
                arguments.append("    # a callback was set; it may have stopped the fit")
            continue
        text, remark = _as_python(value)
        needs_numpy |= "numpy." in text
        arguments.append(f"    {key}={text},{remark}")
    if needs_numpy:
        lines.insert(0, "import numpy")
    lines += [f"# {key} = {value!r}" for key, value in parameters.items()]
    lines += [f"model = {name}(", *arguments, ")", _fit_call(model)]
    return "\n".join(lines)


def command_line(model: Any, parameters: Mapping[str, str]) -> str:
    """Write the same fit as a command, without parameters that are not set.

    For a fit that needs arguments which only Python can pass, it is a comment that names them.

    Examples
    --------
    >>> from klnmf import KLNMF
    >>> command_line(KLNMF(2, random_state=0), {"input": "my counts.npz"})[:50]
    "klnmf fit 'my counts.npz' --n-components 2 --solve"
    """
    if parameters.get(COMMAND_KEY):
        return parameters[COMMAND_KEY]
    names = ", ".join(_constraint_names(model))
    if names:
        return f"# not available on the command line: {names} can only be passed in Python"
    words = ["klnmf", "fit", shlex.quote(parameters.get(INPUT_KEY, "DATA"))]
    for key, value in _ordered_parameters(model).items():
        if key in _NOT_FOR_THE_SHELL or value is None:
            continue
        text = _as_word(value)
        if text is not None:
            words += [f"--{key.replace('_', '-')}", shlex.quote(text)]
    words += [parameters[OPTIONS_KEY]] if parameters.get(OPTIONS_KEY) else []
    return " ".join(words)


def _constraint_names(model: Any) -> list[str]:
    """Names of the constraints of the fit, be they parameters or arguments of ``fit``."""
    # A file may come from a stranger: what is not a name must not get into code.
    names = [name for name in getattr(model, "known_names_", []) if name.isidentifier()]
    if getattr(model, "fixed_components", None) is not None and "fixed_components" not in names:
        names.insert(0, "fixed_components")
    return names


def _fit_call(model: Any) -> str:
    """Call of ``fit_transform`` with all that was passed besides X."""
    passed = [name for name in _constraint_names(model) if name != "fixed_components"]
    arguments = ", ".join(["X", *(f"{name}={name}" for name in passed)])
    remark = "  # not saved with the model" if passed else ""
    return f"W = model.fit_transform({arguments}){remark}"


def _ordered_parameters(model: Any) -> dict[str, Any]:
    """Parameters in the order of the signature: important ones come first."""
    values = model.get_params(deep=False)
    order = [key for key in inspect.signature(type(model)).parameters if key in values]
    return {key: values[key] for key in order}


def _as_python(value: Any) -> tuple[str, str]:
    """Source text of a value, and a comment if it cannot be written out."""
    if isinstance(value, np.random.RandomState):
        return "None", "  # was a RandomState; its state is not saved"
    if isinstance(value, np.generic):
        return repr(value.item()), ""
    if hasattr(value, "shape") and not isinstance(value, type):  # fixed_components of any kind
        n_fixed = 1 if len(value.shape) == 1 else value.shape[0]
        return "fixed_components", f"  # the first {n_fixed} rows of components_"
    dtype = _dtype_name(value)
    return (f"numpy.{dtype}", "") if dtype else (repr(value), "")


def _as_word(value: Any) -> str | None:
    """Text of a value on a command line; None if it has none."""
    dtype = _dtype_name(value)
    if dtype:
        return dtype
    if isinstance(value, np.generic):
        value = value.item()
    return str(value) if isinstance(value, str | int | float) else None


def _dtype_name(value: Any) -> str | None:
    if isinstance(value, np.dtype):
        return value.name
    if isinstance(value, type) and issubclass(value, np.generic):
        return np.dtype(value).name
    return None
