"""The constraints of a fit, in the user's units and in the fit's.

Weights and exposures are a change of variables. With sample weights w, feature weights v and
exposures e,

    Σ w_i v_j KL(x_ij, e_i (W Hᵀ)_ij) = Σ KL(w_i v_j x_ij, (W' H'ᵀ)_ij),

    W'_i = w_i e_i W_i,    H'_j = v_j H_j,

so that a fit works on weighted values and on W' and H'. Everything else concerns single row
problems, see ``klnmf.data.row_constraints``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypedDict

import numpy as np
import scipy.sparse as sp

from klnmf.constraints.penalties import NO_PENALTIES, Penalties
from klnmf.data.cell_weights import CellWeights
from klnmf.data.row_constraints import Pattern, RowConstraints, checksum_of
from klnmf.support.array_types import Array


class ComponentConstraints(TypedDict, total=False):
    """Constraints on the components, by the names of the constructor's parameters."""

    fixed_components: Any
    feature_weight: Any
    zero_components: Any


class SampleConstraints(TypedDict, total=False):
    """Constraints on new samples, by the names of ``transform``'s parameters."""

    exposure: Any
    missing: Any
    fixed_W: Any
    zero_W: Any


class FitConstraints(SampleConstraints, total=False):
    """Constraints on the samples of a fit, by the names of ``fit``'s parameters.

    They are not in its signature. A ``sample_weight`` there is a promise to scikit-learn: a weight
    of 2 and the sample twice, in any order, end in the same factors. That holds for the objective,
    but starts are drawn, and another start may lead to another local optimum.
    """

    sample_weight: Any


@dataclass(frozen=True)
class Constraints:
    """All constraints of a fit, checked; None: no such constraint.

    Pairs are by mode: (W, H). The first columns of H may be fixed, and the last ones of W. The
    penalties are here because weights and exposures give each row its share of them.
    """

    shape: tuple[int, int]
    n_components: int
    sample_weight: Array | None = None
    feature_weight: Array | None = None
    exposure: Array | None = None
    missing: sp.csr_array | None = None  # its stored entries are the missing cells
    fixed: tuple[Array | None, Array | None] = (None, None)  # n × q, m × k, in the fit's type
    zeros: tuple[sp.csr_array | None, sp.csr_array | None] = (None, None)  # n × r, m × r
    penalties: Penalties = NO_PENALTIES

    @property
    def names(self) -> list[str]:
        """What was given, by the names of the parameters."""
        given = {
            "fixed_components": self.fixed[1],
            "sample_weight": self.sample_weight,
            "feature_weight": self.feature_weight,
            "exposure": self.exposure,
            "missing": self.missing,
            "fixed_W": self.fixed[0],
            "zero_W": self.zeros[0],
            "zero_components": self.zeros[1],
        }
        return [name for name, value in given.items() if value is not None]

    @property
    def has_zeros(self) -> bool:
        """Whether entries must be 0, so that it matters which component is which."""
        return any(part is not None for part in self.zeros)

    # ---- units -----------------------------------------------------------------------------------

    def scales(self, mode: int) -> Array | None:
        """Factor from a row of W or H to that of W' or H'; None: they are the same."""
        if mode == 1:
            return self.feature_weight
        if self.sample_weight is None or self.exposure is None:
            return self.exposure if self.sample_weight is None else self.sample_weight
        return self.sample_weight * self.exposure

    def is_frozen(self, mode: int) -> Array:
        """By component, whether its column of the factor of this mode is fixed."""
        frozen = np.zeros(self.n_components, dtype=bool)
        if self.fixed[mode] is not None:
            frozen[self._fixed_columns(mode)] = True
        return frozen

    def _fixed_columns(self, mode: int) -> slice:
        fixed = self.fixed[mode]
        n_fixed = 0 if fixed is None else fixed.shape[1]
        first = self.n_components - n_fixed if mode == 0 else 0
        return slice(first, first + n_fixed)

    def penalty_shares(self, mode: int) -> Array | None:
        """By row, what l1 and l2 are multiplied by for W' or H'; None: by 1.

        A sample of weight w counts as w samples do, with its penalty: in terms of W' = w e W,
        w l1 W = (l1 / e) W' and w l2 W² = l2 / (w e²) W'². For features likewise, with e = 1.
        """
        weight = (self.sample_weight, self.feature_weight)[mode]
        exposure = self.exposure if mode == 0 else None
        if weight is None and exposure is None:
            return None
        ones = np.ones(self.shape[mode])
        weight, exposure = (ones if part is None else part for part in (weight, exposure))
        with np.errstate(divide="ignore"):
            shares = np.stack([1 / exposure, 1 / (weight * exposure**2)], axis=1)
        return np.where((weight * exposure > 0)[:, None], shares, 0.0)

    def in_fit(self, mode: int, factor: Array) -> Array:
        """Return a factor in the user's units as the fit has it, with its constraints."""
        scales = self.scales(mode)
        scaled = factor.copy() if scales is None else factor * scales[:, None]
        return self.imposed_on(mode, scaled.astype(factor.dtype, copy=False))

    def imposed_on(self, mode: int, factor: Array) -> Array:
        """Set fixed entries and zeros of a factor in the fit's units, in place; returns it."""
        fixed, scales = self.fixed[mode], self.scales(mode)
        if fixed is not None:
            scaled = fixed if scales is None else fixed * scales[:, None]
            factor[:, self._fixed_columns(mode)] = scaled
        zeros = self.zeros[mode]
        if zeros is not None:
            cells = zeros.tocoo()
            factor[cells.row, cells.col] = 0
        return factor

    def original(self, mode: int, factor: Array) -> Array:
        """Return a factor in the user's units: fixed entries as given, others at scale 0 as 0."""
        scales, fixed = self.scales(mode), self.fixed[mode]
        if scales is not None:
            with np.errstate(divide="ignore"):
                inverse = np.where(scales > 0, 1 / scales, 0)
            factor = (factor * inverse[:, None]).astype(factor.dtype)
        if fixed is not None:
            factor = factor.copy()
            factor[:, self._fixed_columns(mode)] = fixed
        return factor

    # ---- in the fit's units ----------------------------------------------------------------------

    def cell_weights(self, mode: int) -> CellWeights | None:
        """How the cells of X enter, by the rows of a mode; None: unchanged."""
        if self.sample_weight is None and self.feature_weight is None and self.missing is None:
            return None
        weights = (self.sample_weight, self.feature_weight)
        missing = self.missing
        if missing is not None:
            missing = Pattern.of(missing if mode == 0 else sp.csr_array(missing.T))
        return CellWeights(weights[mode], weights[1 - mode], missing)

    def row_constraints(self, mode: int) -> RowConstraints | None:
        """Return the constraints on the row problems of a mode."""
        zeros, missing = self.zeros[mode], self.missing
        penalty_shares = None
        if self.penalties.penalised_modes[mode]:
            penalty_shares = self.penalty_shares(mode)
        if missing is not None and mode == 1:
            missing = sp.csr_array(missing.T)
        frozen = self.is_frozen(mode)
        constraints = RowConstraints(
            missing=None if missing is None else Pattern.of(missing),
            barred=None if zeros is None else Pattern.of(zeros, np.int32),
            penalty_shares=penalty_shares,
            l1=self.penalties.l1[mode],
            frozen=frozen.astype(np.uint8) if frozen.any() else None,
        )
        return None if constraints.is_empty else constraints

    def part(self, rows: Array) -> Constraints:
        """Return the constraints on some samples."""

        def taken(values: Any) -> Any:
            return None if values is None else values[rows]

        return replace(
            self,
            shape=(len(rows), self.shape[1]),
            sample_weight=taken(self.sample_weight),
            exposure=taken(self.exposure),
            missing=taken(self.missing),
            fixed=(taken(self.fixed[0]), self.fixed[1]),
            zeros=(taken(self.zeros[0]), self.zeros[1]),
        )

    def of_features(self, columns: Array) -> Constraints:
        """Return the constraints on some features; ``columns`` are rising."""
        fixed, zeros = (
            None if part[1] is None else part[1][columns] for part in (self.fixed, self.zeros)
        )
        weight = None if self.feature_weight is None else self.feature_weight[columns]
        return replace(
            self,
            shape=(self.shape[0], len(columns)),
            feature_weight=weight,
            missing=None if self.missing is None else self.missing[:, columns],
            fixed=(self.fixed[0], fixed),
            zeros=(self.zeros[0], zeros),
        )

    def of_rows(self, rows: Array) -> Constraints:
        """Return the constraints on some samples, with weight 1."""
        return replace(self.part(rows), sample_weight=None)

    @property
    def checksum(self) -> int:
        """Checksum of all constraints but the penalties, which tells fits apart."""
        patterns = [
            part
            for cells in (self.missing, *self.zeros)
            for part in ((None, None) if cells is None else (cells.indptr, cells.indices))
        ]
        weights = (self.sample_weight, self.feature_weight, self.exposure)
        return checksum_of(*weights, *self.fixed, *patterns)

    def allowed(self, mode: int) -> Array | None:
        """By row and component, whether an entry may be positive; None: all of them may."""
        fixed, zeros = self.fixed[mode], self.zeros[mode]
        if fixed is None and zeros is None:
            return None
        allowed = np.ones((self.shape[mode], self.n_components), dtype=bool)
        return self.imposed_on(mode, allowed)
