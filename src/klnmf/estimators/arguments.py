"""What to write instead: the errors about arguments that a function does not take.

`ELSEWHERE` and `VALUES` hold what users of other libraries type; docs/coming_from.md has the same
rows, and a test compares them.
"""

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, ParamSpec, TypeVar

from sklearn.base import BaseEstimator
from sklearn.utils._param_validation import InvalidParameterError, make_constraint

from klnmf.constraints.constraints import ComponentConstraints, FitConstraints
from klnmf.support.descriptions import described
from klnmf.support.nearest_names import did_you_mean
from klnmf.support.option_names import RUN_OPTIONS

P = ParamSpec("P")
R = TypeVar("R")

PLACES = {
    **{name: f"klnmf.KLNMF({name}=...)" for name in ComponentConstraints.__annotations__},
    **{name: f"klnmf.KLNMF(run=klnmf.RunOptions({name}=...))" for name in RUN_OPTIONS},
    **{name: f"fit(X, {name}=...)" for name in FitConstraints.__annotations__},
}
# Constraints of matrices, and the lists by mode that tensors have for them.
BY_MODE = {
    **dict.fromkeys(("sample_weight", "feature_weight"), "weights"),
    **dict.fromkeys(("fixed_W", "fixed_components"), "fixed"),
    **dict.fromkeys(("zero_W", "zero_components"), "zeros"),
}
# Other words for the number of components, and the argument that is meant: the first that is there.
_COUNTS = ("n_components", "n_topics", "ranks")
_NUMBERS = frozenset(
    ("r", "k", "K", "rank", "n_factors", "n_programs", "num_topics", "nr_topics", "n_clusters")
).union(_COUNTS)
_L1, _L2 = "`l1_{0} = alpha_{0} * l1_ratio * {1}`", "`l2_{0} = alpha_{0} * (1 - l1_ratio) * {1}`"
ELSEWHERE = {
    "beta_loss": "Leave it out: the divergence is always that of Kullback and Leibler.",
    "alpha_W": f"Use {_L1} and {_L2}.".format("W", "n_features"),
    "alpha_H": f"Use {_L1} and {_L2}.".format("H", "n_samples"),
    "l1_ratio": "Use `l1_W`, `l2_W`, `l1_H` and `l2_H`, which are separate weights.",
    "verbose": "Leave it out: a terminal shows a progress bar. `run=RunOptions(progress=True)` "
    "shows it elsewhere too.",
    "n_jobs": "Use `n_threads`. By default, all CPUs are used.",
    "shuffle": "Leave it out: the solvers choose the order of their updates themselves.",
}
_CHOOSE = "Pass a number. `klnmf.model_selection.select_rank(X).best_rank` finds one."
VALUES: dict[tuple[str, str | None], str] = {
    ("n_components", None): _CHOOSE,
    ("n_components", "auto"): _CHOOSE,
    ("init", "custom"): "Leave init out and pass the start to fit: `fit(X, W=W, H=H)`; either one "
    "is enough.",
    ("init", "nndsvda"): 'Use `init="nndsvd"`.',
    ("init", "nndsvdar"): 'Use `init="nndsvd"`.',
    ("init", None): 'Leave it out; the default is `"samples"`.',
    ("solver", "cd"): 'Leave it out: the default, `"srcd"`, is a coordinate descent.',
}


def check_arguments(given: Iterable[str], function: str, taken: Iterable[str]) -> None:
    """Refuse arguments that a function does not take, and say which one does."""
    taken = list(taken)
    for name in given:
        if name not in taken:
            advice = _advice(name, taken)
            raise TypeError(f"{function} does not take the argument {name!r}. {advice}")


def _advice(name: str, taken: list[str]) -> str:
    if name in ELSEWHERE:
        return ELSEWHERE[name].replace("`", "")
    meant = next((each for each in _COUNTS if each in taken), None)
    if name in _NUMBERS and meant is not None:
        return f"Use {meant}."
    if name in RUN_OPTIONS and "run" in taken:
        return f"Use run=klnmf.RunOptions({name}=...)."
    if name in BY_MODE and BY_MODE[name] in taken:
        return f"Use {BY_MODE[name]}=[...], with an entry for each mode."
    if name in PLACES:
        return f"Use {PLACES[name]}."
    names = f"By name it takes {', '.join(taken)}."
    return did_you_mean(name, taken).lstrip() or names


def explains_misplaced(function: Callable[P, R]) -> Callable[P, R]:
    """Let a function say what to write instead of an argument that it does not take.

    What it hands on to other functions with ``**`` is theirs to judge, unless none takes it.
    """
    parameters = inspect.signature(function).parameters
    is_open = any(each.kind is each.VAR_KEYWORD for each in parameters.values())
    named = [name for name in parameters if name != "self"][: -1 if is_open else None]
    name = function.__qualname__.removesuffix(".__init__")

    @functools.wraps(function)
    def explaining(*args: P.args, **arguments: P.kwargs) -> R:
        unknown = [each for each in arguments if each not in named]
        if is_open:
            unknown = [each for each in unknown if each in ELSEWHERE or each in _NUMBERS]
        check_arguments(unknown, name, named)
        return function(*args, **arguments)

    return explaining


def set_checked_params(model: Any, **parameters: Any) -> None:
    """Set parameters, with a ValueError, as scikit-learn has it, that says where others belong."""
    taken = model._get_param_names()
    known = [name for name in parameters if name in PLACES | ELSEWHERE or name in _NUMBERS]
    try:
        check_arguments(known, type(model).__name__, taken)
    except TypeError as error:
        raise ValueError(str(error)) from error
    BaseEstimator.set_params(model, **parameters)


class ChecksParameters(BaseEstimator):
    """An estimator whose errors about parameters say what to write instead.

    scikit-learn's message would show the text of whatever was passed.
    """

    _parameter_constraints: ClassVar[dict[str, Any]]

    @classmethod
    @functools.cache  # scikit-learn reads the signature anew at every call
    def _get_param_names(cls) -> list[str]:
        names: list[str] = super()._get_param_names()
        return names

    def _validate_params(self) -> None:
        for name in self._get_param_names():
            value, constraints = getattr(self, name), self._parameter_constraints[name]
            if constraints == "no_validation":
                continue
            allowed = [make_constraint(constraint) for constraint in constraints]
            if any(constraint.is_satisfied_by(value) for constraint in allowed):
                continue
            *others, last = map(str, allowed)
            wanted = f"{', '.join(others)} or {last}" if others else last
            is_plain = value is None or isinstance(value, str)
            advice = VALUES.get((name, value), "") if is_plain else ""
            raise InvalidParameterError(
                f"The {name!r} parameter of {type(self).__name__} must be {wanted}. Got "
                f"{described(value)} instead. {advice}".replace("`", "").rstrip()
            )
