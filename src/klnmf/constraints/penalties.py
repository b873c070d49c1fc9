"""The penalties of the factors, by mode."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from klnmf.support.array_types import Array
from klnmf.support.caching import cached_property
from klnmf.support.number_checks import checked_nonnegative

# Logarithms of what float64 holds, squared.
MOST_LOG = 1500.0
# Larger scales are beyond a float32: such a component, about to vanish, keeps its own.
MOST_LOG_SCALE = 80.0


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

    @cached_property
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

    def best_scales(self, sums: Sequence[Array], squares: Sequence[Array]) -> list[Array]:
        """Scales of each component with the least penalty, by mode; their product is 1.

        ``sums`` and ``squares`` are the column sums of the factors and of their squares; all of
        them have a penalty. It is convex in the logarithms of the scales. A component that is 0 in
        one of the factors keeps its scale.

        Examples
        --------
        >>> ones = np.ones(1)
        >>> penalties = Penalties.of_matrix(l1_W=1.0, l1_H=1.0)
        >>> s, _ = penalties.best_scales((ones, 4 * ones), (ones, ones))
        >>> np.round(s, 6)  # ‖w‖₁ s = ‖h‖₁ / s
        array([2.])
        """
        l1 = [weight * of_mode for weight, of_mode in zip(self.l1, sums, strict=True)]
        l2 = [weight * of_mode for weight, of_mode in zip(self.l2, squares, strict=True)]
        if len(l1) > 2:
            return _best_scales(np.array(l1), np.array(l2))
        s = self._best_scale(l1, l2)
        return [s, 1.0 / s]

    @staticmethod
    def _best_scale(l1: Sequence[Array], l2: Sequence[Array]) -> Array:
        """Scale s of each component of two factors (W_k s, H_k / s) with the least penalty.

        It is the unique s > 0 with l2_W‖w‖² s⁴ + l1_W‖w‖₁ s³ − l1_H‖h‖₁ s − l2_H‖h‖² = 0. Divided
        by s² the left side increases in log s, so that bisection cannot fail. A component that is 0
        in either factor keeps its scale.
        """
        cubic, linear = l1
        quartic, constant = l2
        low, high = np.full(len(cubic), -100.0), np.full(len(cubic), 100.0)
        for _ in range(64):  # 200 / 2⁶⁴ is below the rounding of s
            t = 0.5 * (low + high)
            falling = linear * np.exp(-t) + constant * np.exp(-2 * t)
            too_large = quartic * np.exp(2 * t) + cubic * np.exp(t) > falling
            low, high = np.where(too_large, low, t), np.where(too_large, t, high)
        alive = (cubic + quartic > 0) & (linear + constant > 0)
        return np.where(alive, np.exp(0.5 * (low + high)), 1.0)


def _best_scales(l1: Array, l2: Array) -> list[Array]:
    """Scales of the components of several factors, by mode; the penalties are modes × components.

    At the best ones l1 s + l2 s² is the same number exp(t) in every mode, by Lagrange. Each s rises
    with t, so that bisection finds the t at which their product is 1.
    """
    with np.errstate(divide="ignore"):
        log_l1, log_l2 = np.log(l1), np.log(l2)
    is_alive = np.maximum(log_l1, log_l2).min(axis=0) > -np.inf
    log_l1, log_l2 = np.where(is_alive, log_l1, 0.0), np.where(is_alive, log_l2, -np.inf)

    def log_scales(t: Array) -> Array:
        # s = 2 e^t / (l1 + √(l1² + 4 l2 e^t)), which loses no digits
        root = 0.5 * np.logaddexp(2 * log_l1, np.log(4.0) + log_l2 + t)
        return np.asarray(np.log(2.0) + t - np.logaddexp(log_l1, root))

    low, high = np.full(l1.shape[1], -MOST_LOG), np.full(l1.shape[1], MOST_LOG)
    for _ in range(64):
        t = 0.5 * (low + high)
        is_large = log_scales(t).sum(axis=0) > 0
        low, high = np.where(is_large, low, t), np.where(is_large, t, high)
    found = log_scales(0.5 * (low + high))
    return list(np.exp(np.where(np.abs(found).max(axis=0) < MOST_LOG_SCALE, found, 0.0)))


NO_PENALTIES = Penalties()
