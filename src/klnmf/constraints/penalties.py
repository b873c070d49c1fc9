"""The penalties of both factors."""

from dataclasses import dataclass

from klnmf.support.array_types import Array
from klnmf.support.number_checks import checked_nonnegative


@dataclass(frozen=True)
class Penalties:
    """The four penalties: l1_W ‖W‖₁ + l2_W/2 ‖W‖² + l1_H ‖H‖₁ + l2_H/2 ‖H‖²."""

    l1_W: float = 0.0  # noqa: N815
    l2_W: float = 0.0  # noqa: N815
    l1_H: float = 0.0  # noqa: N815
    l2_H: float = 0.0  # noqa: N815

    def __post_init__(self) -> None:
        for name, weight in vars(self).items():
            checked_nonnegative(name, weight)

    @property
    def l1(self) -> tuple[float, float]:
        """L1 weights by mode: (W, H)."""
        return (self.l1_W, self.l1_H)

    @property
    def l2(self) -> tuple[float, float]:
        """L2 weights by mode: (W, H)."""
        return (self.l2_W, self.l2_H)

    @property
    def penalised_modes(self) -> tuple[bool, bool]:
        """Whether each factor carries a penalty."""
        return (self.l1_W > 0 or self.l2_W > 0, self.l1_H > 0 or self.l2_H > 0)

    @property
    def has_best_scale(self) -> bool:
        """Whether both factors are penalised, so that each component has one best scale."""
        return all(self.penalised_modes)

    @property
    def is_one_sided(self) -> bool:
        """Whether one factor alone is penalised: shrinking it and growing the other voids that."""
        return any(self.penalised_modes) and not self.has_best_scale

    def of(self, mode: int, sums: Array, squares: Array) -> float:
        """Penalty of one factor from the sums and the sums of squares of its columns."""
        return float(self.l1[mode] * sums.sum() + 0.5 * self.l2[mode] * squares.sum())


NO_PENALTIES = Penalties()
