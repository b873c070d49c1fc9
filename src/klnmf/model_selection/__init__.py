"""How many components the data speak for."""

from __future__ import annotations

from klnmf.model_selection.rank_selection import RankSelection
from klnmf.model_selection.selection import select_rank

__all__ = ["RankSelection", "select_rank"]
