"""How to fit a model again, as Python code."""

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils._pprint import _EstimatorPrettyPrinter

# Longer lists, such as vocabularies, must be put in.
_MOST_ENTRIES = 1000


class Code(NamedTuple):
    """An estimator as Python code, the imports that it needs, and what must be put in."""

    text: str
    imports: list[str]
    absent: list[str]


def as_code(estimator: BaseEstimator) -> Code:
    """Write an estimator with the parameters that differ from their defaults.

    A parameter that cannot be written out has its name there.

    Examples
    --------
    >>> from klnmf import KLNMF
    >>> as_code(KLNMF(2, dtype=np.float32, feature_weight=np.ones(3))).text
    'KLNMF(dtype=numpy.float32, feature_weight=feature_weight, n_components=2)'
    """
    imports: set[str] = set()
    absent: list[str] = []

    def shown(given: BaseEstimator) -> BaseEstimator:
        """Return the estimator with parameters whose repr is code."""
        kind = type(given)
        is_ours = kind.__module__.startswith("klnmf.")
        imports.add(f"from {'klnmf' if is_ours else kind.__module__} import {kind.__name__}")
        known, parameters = inspect.signature(kind).parameters, given.get_params(deep=False)
        for name, value in parameters.items():
            if isinstance(value, BaseEstimator):
                parameters[name] = shown(value)
            elif name == "run" or isinstance(value, np.random.RandomState):
                parameters[name] = None  # no matter, or not to be written out
            elif value is not None and value is not known[name].default:
                parameters[name] = _plain(value)
                if parameters[name] is None:
                    absent.append(name)
                    parameters[name] = _Verbatim(name)
        return kind(**parameters)

    text = _EstimatorPrettyPrinter(compact=True, width=90).pformat(shown(estimator))
    if "numpy." in text:
        imports.add("import numpy")
    return Code(text, sorted(imports, reverse=True), absent)


def python_snippet(model: Any, parameters: Mapping[str, str]) -> str:
    """Write Python code that fits a `KLNMF` again; the parameters become comments.

    Examples
    --------
    >>> from klnmf import KLNMF
    >>> print(python_snippet(KLNMF(2, random_state=0), {"min_df": "3"}))
    from klnmf import KLNMF
    <BLANKLINE>
    # min_df = '3'
    model = KLNMF(n_components=2, random_state=0)
    W = model.fit_transform(X)
    """
    # A file may come from a stranger: only names must get into code.
    told = [name for name in getattr(model, "constraint_names_", ()) if name.isidentifier()]
    own = model.get_params(deep=False)
    passed = [name for name in told if name not in own]
    code = as_code(type(model)(**own | {name: _Verbatim(name) for name in told if name in own}))
    lines = [*code.imports, "", *(f"# {key} = {value!r}" for key, value in parameters.items())]
    if isinstance(own["random_state"], np.random.RandomState):
        lines.append("# random_state was a RandomState, whose state is not saved.")
    if getattr(getattr(model, "run", None), "callback", None) is not None:
        lines.append("# A callback was set; it may have stopped the fit.")
    lines += [to_put_in(name) for name in [*code.absent, *passed]]
    arguments = ", ".join(["X", *(f"{name}={name}" for name in passed)])
    return "\n".join([*lines, f"model = {code.text}", f"W = model.fit_transform({arguments})"])


def to_put_in(name: str, what: str | None = None) -> str:
    """Line of code for something that a page has no copy of."""
    return f"{name} = ...  # put in {what or f'{name} of the fit'}: this page has no copy"


class _Verbatim:
    """What stands in code as it is."""

    def __init__(self, code: str) -> None:
        self.code = code

    def __repr__(self) -> str:
        return self.code


def _plain(value: Any) -> Any:
    """Return a value whose repr is code, or None if it has no such form."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.dtype) or (isinstance(value, type) and issubclass(value, np.generic)):
        return _Verbatim(f"numpy.{np.dtype(value).name}")
    if isinstance(value, Mapping):  # in their order, which pprint would change
        return _Verbatim(repr({str(name): _plain(entry) for name, entry in value.items()}))
    if isinstance(value, list | tuple | set | frozenset) and len(value) <= _MOST_ENTRIES:
        entries = [_plain(entry) for entry in (sorted(value) if isinstance(value, set) else value)]
        return tuple(entries) if isinstance(value, tuple) else entries
    if isinstance(value, Path):
        return str(value)
    return value if isinstance(value, str | int | float) else None
