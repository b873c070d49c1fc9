"""Parameters of an estimator as JSON: numbers, strings, types and solvers."""

from typing import Any

import numpy as np

from klnmf.saved.container import SavedFileError
from klnmf.saved.fields import Fields, number_from_json, number_to_json, shortened
from klnmf.solvers import SOLVERS, Solver

# Run options depend on the machine. Callbacks are code, and a fit of a loaded model must not write
# to a path from an untrusted file.
NEVER_STORED = ("run", "callback", "checkpoint")
# Run options that older versions stored as parameters of the model.
NO_LONGER_STORED = ("progress", "checkpoint_every", "resume")
# Constraints on the features, which are stored with the arrays of the model.
WITH_ARRAYS = ("feature_weight", "zero_components")
# Those that may be a number for each mode.
BY_MODE = ("l1", "l2")
TYPES = {"float32": np.float32, "float64": np.float64}


def parameters_to_json(parameters: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return the parameters for the file, and the names of those that were set but not stored."""
    stored: dict[str, Any] = {}
    left_out = []
    for name, value in parameters.items():
        if name in NEVER_STORED or isinstance(value, np.random.RandomState):
            if value is not None:
                left_out.append(name)
        elif name in WITH_ARRAYS:
            continue
        elif name == "dtype" and value is not None:
            stored[name] = {"dtype": np.dtype(value).name}
        elif isinstance(value, Solver):
            stored[name] = _solver_to_json(value)
        elif name == "fixed_components" and value is not None:
            n_fixed = 1 if np.ndim(value) == 1 else np.shape(value)[0]
            stored[name] = {"first_components": int(n_fixed)}
        else:
            stored[name] = _plain_to_json(name, value)
    return stored, left_out


def parameters_from_json(stored: Fields) -> dict[str, Any]:
    """Reverse ``parameters_to_json``; the estimator checks the values."""
    parameters: dict[str, Any] = {}
    for name, value in stored.members.items():
        if name in NEVER_STORED:
            raise SavedFileError(f"it has a value for {name}, which is never saved.")
        if name in NO_LONGER_STORED:
            continue
        if isinstance(value, dict) and "dtype" in value:
            if value["dtype"] not in list(TYPES):
                found = shortened(value["dtype"])
                raise SavedFileError(f"dtype must be one of {list(TYPES)}, got {found}.")
            parameters[name] = TYPES[value["dtype"]]
        elif isinstance(value, dict) and "solver" in value:
            # Older versions stored its settings too, which are constants now.
            parameters[name] = stored.fields(name).take("solver", str)
        elif isinstance(value, dict) and "first_components" in value:
            continue  # set when the components are read
        else:
            parameters[name] = _plain_from_json(name, value)
    return parameters


def _plain_to_json(name: str, value: Any) -> Any:
    value = value.item() if isinstance(value, np.generic) else value
    if value is None or isinstance(value, bool | str | int | float):
        return number_to_json(value)
    if name in BY_MODE:
        return [_plain_to_json(name, each) for each in np.ravel(value).tolist()]
    raise TypeError(f"{name}={shortened(value)} cannot be stored in a file.")


def _plain_from_json(name: str, value: Any) -> Any:
    if isinstance(value, list) and name in BY_MODE:
        return tuple(number_from_json(each, name) for each in value)
    return value if value is None or isinstance(value, str) else number_from_json(value, name)


def _solver_to_json(solver: Solver) -> str:
    if type(solver) is not SOLVERS.get(solver.name):
        raise TypeError(
            f"The solver {shortened(solver)} is not one of klnmf's solvers ({list(SOLVERS)}), and "
            "files contain no code, so it cannot be saved. Before saving, set solver to one of "
            "these; transform does not depend on it."
        )
    return solver.name
