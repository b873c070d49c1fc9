"""The penalties of the factors, by mode."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from klnmf.support.array_types import Array
from klnmf.support.number_checks import checked_nonnegative


def factor_name(mode: int) -> str:
    """Name of a mode's factor in records, messages and files."""
    return "WH"[mode] if mode < 2 else f"factor_{mode}"


@dataclass(frozen=True)
class Penalties:
    """Weights of the penalties, by mode: the sum of l1 ‖x‖₁ + l2/2 ‖x‖² over the factors x.

    Those of a matrix are made by `Penalties.of_matrix`, by name.
    """

    l1: tuple[float, ...] = (0.0, 0.0)
    l2: tuple[float, ...] = (0.0, 0.0)

    @classmethod
    def of_matrix(
        cls, l1_W: float = 0.0, l2_W: float = 0.0, l1_H: float = 0.0, l2_H: float = 0.0
    ) -> Self:
        """Return l1_W ‖W‖₁ + l2_W/2 ‖W‖² + l1_H ‖H‖₁ + l2_H/2 ‖H‖²."""
        return cls((l1_W, l1_H), (l2_W, l2_H))

    def __post_init__(self) -> None:
        for name, weight in self.by_name.items():
            checked_nonnegative(name, weight)

    @property
    def by_name(self) -> dict[str, float]:
        """The weights by the names of parameters: l1_W, l2_W, l1_H, ..."""
        pairs = zip(self.l1, self.l2, strict=True)
        return {
            f"{kind}_{factor_name(mode)}": weight
            for mode, pair in enumerate(pairs)
            for kind, weight in zip(("l1", "l2"), pair, strict=True)
        }

    @property
    def penalised_modes(self) -> tuple[bool, ...]:
        """Whether each factor carries a penalty."""
        return tuple(l1 > 0 or l2 > 0 for l1, l2 in zip(self.l1, self.l2, strict=True))

    @property
    def has_best_scale(self) -> bool:
        """Whether all factors are penalised, so that each component has one best scale."""
        return all(self.penalised_modes)

    @property
    def is_one_sided(self) -> bool:
        """Whether only some factors are penalised: if they shrink and others grow, it is void."""
        return any(self.penalised_modes) and not self.has_best_scale

    def of(self, mode: int, sums: Array, squares: Array) -> float:
        """Penalty of one factor from the sums and the sums of squares of its columns."""
        return float(self.l1[mode] * sums.sum() + 0.5 * self.l2[mode] * squares.sum())

    def best_scales(self, sums: Sequence[Array], squares: Sequence[Array]) -> Array:
        """Scale s of each component of a matrix (W_k s, H_k / s) with the least penalty.

        ``sums`` and ``squares`` are the column sums of W and H and of their squares; both factors
        have a penalty. The scale is the unique s > 0 with
        l2_W‖w‖² s⁴ + l1_W‖w‖₁ s³ − l1_H‖h‖₁ s − l2_H‖h‖² = 0. Divided by s² the left side increases
        in log s, so that bisection cannot fail. A component that is 0 in either factor keeps its
        scale.

        Examples
        --------
        >>> ones = np.ones(1)
        >>> s = Penalties.of_matrix(l1_W=1.0, l1_H=1.0).best_scales((ones, 4 * ones), (ones, ones))
        >>> np.round(s, 6)  # ‖w‖₁ s = ‖h‖₁ / s
        array([2.])
        """
        cubic, linear = (l1 * of_mode for l1, of_mode in zip(self.l1, sums, strict=True))
        quartic, constant = (l2 * of_mode for l2, of_mode in zip(self.l2, squares, strict=True))
        low, high = np.full(len(cubic), -100.0), np.full(len(cubic), 100.0)
        for _ in range(64):  # 200 / 2⁶⁴ is below the rounding of s
            t = 0.5 * (low + high)
            falling = linear * np.exp(-t) + constant * np.exp(-2 * t)
            too_large = quartic * np.exp(2 * t) + cubic * np.exp(t) > falling
            low, high = np.where(too_large, low, t), np.where(too_large, t, high)
        alive = (cubic + quartic > 0) & (linear + constant > 0)
        return np.where(alive, np.exp(0.5 * (low + high)), 1.0)


NO_PENALTIES = Penalties()
