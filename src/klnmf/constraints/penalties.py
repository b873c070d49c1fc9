"""Checks of the penalties, and the warning about those without effect."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from klnmf.data.validation import VALUE_RANGE, warn_caller
from klnmf.objective import Penalties
from klnmf.support.option_names import option


def check_penalties(penalties: Penalties, dtype: np.dtype[Any]) -> None:
    """Refuse penalties that the arithmetic cannot hold."""
    _, high = VALUE_RANGE[dtype.name]
    for field in dataclasses.fields(penalties):
        value = getattr(penalties, field.name)
        if not value <= high:
            raise ValueError(
                f"{option(field.name)} must be at most {high:g} when computing in {dtype}, got "
                f"{value:g}."
            )


def warn_if_one_sided(penalties: Penalties) -> None:
    """Warn of penalties that have no effect in the end."""
    if penalties.is_one_sided:
        warn_caller(
            "Only one of the factors is penalised. Shrinking it while the other grows takes "
            "the penalty to 0 without changing the fit, so that there is no minimiser to "
            "converge to. Set a penalty on the other factor too (for instance the same "
            f"{option('l1_W')} and {option('l1_H')}).",
            UserWarning,
        )
