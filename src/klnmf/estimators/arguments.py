"""Where an argument belongs, for the error about one that was passed to the wrong function."""

import functools
from collections.abc import Callable, Iterable
from typing import Any, ParamSpec, TypeVar

from sklearn.base import BaseEstimator

from klnmf.constraints.constraints import ComponentConstraints, FitConstraints
from klnmf.estimators.run_options import RunOptions

P = ParamSpec("P")
R = TypeVar("R")

PLACES = {
    **{name: f"klnmf.KLNMF({name}=...)" for name in ComponentConstraints.__annotations__},
    **{name: f"klnmf.KLNMF(run=klnmf.RunOptions({name}=...))" for name in vars(RunOptions())},
    **{name: f"fit(X, {name}=...)" for name in FitConstraints.__annotations__},
}


def check_arguments(given: Iterable[str], function: str, taken: Iterable[str]) -> None:
    """Refuse arguments that a function does not take, and say which one does."""
    for name in given:
        if name not in taken:
            names = f"By name it takes {', '.join(taken)}."
            advice = f"Use {PLACES[name]}." if name in PLACES else names
            raise TypeError(f"{function} does not take the argument {name!r}. {advice}")


def explains_misplaced(function: Callable[P, R]) -> Callable[P, R]:
    """Let a method that takes parameters of its estimator say where other arguments belong."""

    @functools.wraps(function)
    def explaining(*args: P.args, **arguments: P.kwargs) -> R:
        estimator: Any = type(args[0])
        taken = estimator._get_param_names()
        misplaced = [name for name in PLACES if name in arguments and name not in taken]
        check_arguments(misplaced, estimator.__name__, taken)
        return function(*args, **arguments)

    return explaining


def set_checked_params(model: Any, **parameters: Any) -> None:
    """Set parameters, with a ValueError, as scikit-learn has it, that says where others belong."""
    try:
        explains_misplaced(BaseEstimator.set_params)(model, **parameters)
    except TypeError as error:
        raise ValueError(str(error)) from error
