"""How sure a fitted model is: intervals for its parts, and features that tell components apart."""

from __future__ import annotations

from klnmf.uncertainty.bootstrap_result import Bootstrap, Draws
from klnmf.uncertainty.bootstrap_runs import bootstrap
from klnmf.uncertainty.intervals import Intervals

__all__ = ["Bootstrap", "Draws", "Intervals", "bootstrap"]
