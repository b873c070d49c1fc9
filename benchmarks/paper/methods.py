"""The methods: the three of the paper, and klnmf from their start and from its default start."""

from __future__ import annotations

from typing import NamedTuple


class Method(NamedTuple):
    """How a method is fitted, and how it is shown."""

    label: str
    solver: str
    own_start: bool
    tol: float
    colour: str
    dashes: str


# Ours stops when it has converged; the others have no such test and run on.
METHODS = {
    "mu": Method("MU", "mu", False, 0.0, "#0072b2", "-"),
    "ccd": Method("CCD", "ccd", False, 0.0, "#009e73", "-"),
    "srcd-paper": Method("SRCD (paper)", "srcd-paper", False, 0.0, "#cc79a7", "-"),
    "default-same-start": Method("klnmf, same start", "srcd", False, 3e-4, "#d55e00", "--"),
    "default": Method("klnmf", "srcd", True, 3e-4, "#d55e00", "-"),
}
