"""The constraints of a fit, in the user's units and in the fit's.

Weights and exposures are a change of variables. With sample weights w, feature weights v and
exposures e,

    Σ w_i v_j KL(x_ij, e_i (W Hᵀ)_ij) = Σ KL(w_i v_j x_ij, (W' H'ᵀ)_ij),

    W'_i = w_i e_i W_i,    H'_j = v_j H_j,

so that a fit works on weighted values and on W' and H'. A tensor has more factors like H.
Everything else concerns single row problems, see ``klnmf.data.row_constraints``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypedDict

import numpy as np
import scipy.sparse as sp

from klnmf.constraints.penalties import NO_PENALTIES, Penalties
from klnmf.data.cell_weights import CellWeights
from klnmf.data.row_constraints import Pattern, RowConstraints, checksum_of
from klnmf.data.sparse_tensor import SparseTensor
from klnmf.data.tensor_data import pattern_of_mode
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


class ConstraintNames(NamedTuple):
    """What users call the constraints of each mode."""

    weights: tuple[str, ...]
    fixed: tuple[str, ...]
    zeros: tuple[str, ...]

    @classmethod
    def of_tensor(cls, n_modes: int) -> ConstraintNames:
        """Return the names of entries of lists by mode."""
        modes = range(n_modes)
        return cls(*(tuple(f"{name}[{mode}]" for mode in modes) for name in cls._fields))


OF_MATRIX = ConstraintNames(
    weights=("sample_weight", "feature_weight"),
    fixed=("fixed_W", "fixed_components"),
    zeros=("zero_W", "zero_components"),
)
# Those with a row for each component, as components_ has.
BY_COMPONENTS = ("fixed_components", "zero_components")


@dataclass(frozen=True)
class Constraints:
    """All constraints of a fit, checked; None: no such constraint. Without any, it does nothing.

    Tuples are by mode. The last columns of the first factor may be fixed, and the first ones of
    the others. The penalties are here because weights and exposures give each row its share of
    them.
    """

    shape: tuple[int, ...]
    n_components: int
    weights: tuple[Array | None, ...] = ()  # of samples, of features; (): none of any mode
    exposure: Array | None = None  # of the first mode
    missing: Any = None  # CSR array or SparseTensor, whose stored entries are the missing cells
    fixed: tuple[Array | None, ...] = ()  # n × q, m × k, in the fit's type
    zeros: tuple[sp.csr_array | None, ...] = ()  # n × r, m × r
    penalties: Penalties = NO_PENALTIES
    called: ConstraintNames = OF_MATRIX

    def __post_init__(self) -> None:
        for name in ("weights", "fixed", "zeros"):
            if not getattr(self, name):
                object.__setattr__(self, name, (None,) * len(self.shape))

    @property
    def sample_weight(self) -> Array | None:
        """Weights of the first mode."""
        return self.weights[0]

    @property
    def feature_weight(self) -> Array | None:
        """Weights of the second mode."""
        return self.weights[1]

    @property
    def names(self) -> list[str]:
        """What was given, by the names of the parameters."""
        called = self.called
        given = [
            *zip(called.fixed[1:], self.fixed[1:], strict=True),
            *zip(called.weights, self.weights, strict=True),
            ("exposure", self.exposure),
            ("missing", self.missing),
            (called.fixed[0], self.fixed[0]),
            *zip(called.zeros, self.zeros, strict=True),
        ]
        return [name for name, value in given if value is not None]

    def as_given(self) -> dict[str, Any]:
        """Return them by the names and in the forms in which fits take them."""
        given: dict[str, Any] = {"exposure": self.exposure, "missing": self.missing}
        for name in ConstraintNames._fields:
            parts = getattr(self, name)
            if self.called != OF_MATRIX:
                given[name] = list(parts) if any(part is not None for part in parts) else None
                continue
            given |= dict(zip(getattr(self.called, name), parts, strict=True))
        for name in given.keys() & BY_COMPONENTS:
            given[name] = None if given[name] is None else given[name].T
        return {name: value for name, value in given.items() if value is not None}

    @property
    def names_on_rows(self) -> list[str]:
        """Those that change single row problems, which not every rule of a back-end respects.

        Weights and exposures alone are a change of variables; under penalties, rows differ.
        """
        is_penalised = self.penalties.penalised_modes
        as_variables = dict(zip(self.called.weights, is_penalised, strict=True))
        as_variables["exposure"] = is_penalised[0]
        return [
            f"{name} under penalties" if name in as_variables else name
            for name in self.names
            if as_variables.get(name, True)
        ]

    @property
    def has_known_entries(self) -> bool:
        """Whether some entries of the factors are given: fixed, or 0."""
        return any(self._has_known_entries(mode) for mode in range(len(self.shape)))

    def _has_known_entries(self, mode: int) -> bool:
        return self.fixed[mode] is not None or self.zeros[mode] is not None

    @property
    def has_zeros(self) -> bool:
        """Whether entries must be 0, so that it matters which component is which."""
        return any(part is not None for part in self.zeros)

    # ---- units -----------------------------------------------------------------------------------

    def scales(self, mode: int) -> Array | None:
        """Factor from a row of W or H to that of W' or H'; None: they are the same."""
        weight, exposure = self.weights[mode], self._exposure(mode)
        if weight is None or exposure is None:
            return exposure if weight is None else weight
        return weight * exposure

    def _exposure(self, mode: int) -> Array | None:
        return None if mode else self.exposure

    def is_frozen(self, mode: int) -> Array:
        """By component, whether its column of the factor of this mode is fixed."""
        frozen = np.zeros(self.n_components, dtype=bool)
        if self.fixed[mode] is not None:
            frozen[self._fixed_columns(mode)] = True
        return frozen

    def _fixed_columns(self, mode: int) -> slice:
        fixed = self.fixed[mode]
        n_fixed = 0 if fixed is None else fixed.shape[1]
        first = 0 if mode else self.n_components - n_fixed
        return slice(first, first + n_fixed)

    def penalty_shares(self, mode: int) -> Array | None:
        """By row, what l1 and l2 are multiplied by for W' or H'; None: by 1.

        A sample of weight w counts as w samples do, with its penalty: in terms of W' = w e W,
        w l1 W = (l1 / e) W' and w l2 W² = l2 / (w e²) W'². For features likewise, with e = 1.
        """
        weight, exposure = self.weights[mode], self._exposure(mode)
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
        if scales is not None:
            factor = (factor * scales[:, None]).astype(factor.dtype, copy=False)
        elif self._has_known_entries(mode):
            factor = factor.copy()
        return self.imposed_on(mode, factor)

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
        of_rows, others = self.weights[mode], self.weights[:mode] + self.weights[mode + 1 :]
        if of_rows is None and not any(other is not None for other in (*others, self.missing)):
            return None
        (of_columns,) = others  # of a matrix
        return CellWeights(of_rows, of_columns, self._missing(mode))

    def _missing(self, mode: int) -> Pattern | None:
        """Missing cells by the rows of a mode."""
        if self.missing is None:
            return None
        if isinstance(self.missing, SparseTensor):
            return pattern_of_mode(self.missing, mode)
        return Pattern.of(sp.csr_array(self.missing.T) if mode else self.missing)

    def row_constraints(self, mode: int) -> RowConstraints | None:
        """Return the constraints on the row problems of a mode."""
        zeros = self.zeros[mode]
        penalty_shares = None
        if self.penalties.penalised_modes[mode]:
            penalty_shares = self.penalty_shares(mode)
        frozen = self.is_frozen(mode)
        constraints = RowConstraints(
            missing=self._missing(mode),
            barred=None if zeros is None else Pattern.of(zeros, np.int32),
            penalty_shares=penalty_shares,
            l1=self.penalties.l1[mode],
            frozen=frozen.astype(np.uint8) if frozen.any() else None,
        )
        return None if constraints.is_empty else constraints

    def part(self, rows: Array) -> Constraints:
        """Return the constraints on some samples."""
        return replace(
            self._taken(0, rows), exposure=None if self.exposure is None else self.exposure[rows]
        )

    def of_features(self, columns: Array) -> Constraints:
        """Return the constraints on some features; ``columns`` are rising."""
        return self._taken(1, columns)

    def _taken(self, mode: int, rows: Array) -> Constraints:
        """Return the constraints on some rows of a mode, but for the exposure."""

        def taken(parts: tuple[Any, ...]) -> tuple[Any, ...]:
            part = parts[mode]
            return (*parts[:mode], None if part is None else part[rows], *parts[mode + 1 :])

        missing = self.missing
        if isinstance(missing, SparseTensor):
            missing = missing.take(mode, rows)
        elif missing is not None:
            missing = missing[(*[slice(None)] * mode, rows)]
        return replace(
            self,
            shape=(*self.shape[:mode], len(rows), *self.shape[mode + 1 :]),
            weights=taken(self.weights),
            missing=missing,
            fixed=taken(self.fixed),
            zeros=taken(self.zeros),
        )

    def with_sample_weight(self, weight: Array | None) -> Constraints:
        """Return the same constraints with other weights of the samples."""
        return replace(self, weights=(weight, *self.weights[1:]))

    @property
    def checksum(self) -> int | None:
        """Checksum of all constraints but the penalties, which tells fits apart; None: of none."""
        if not self.names:
            return None
        patterns: list[Array | None] = []
        for cells in (self.missing, *self.zeros):
            if isinstance(cells, SparseTensor):
                patterns += [cells.coords, None]
            else:
                patterns += [None, None] if cells is None else [cells.indptr, cells.indices]
        return checksum_of(*self.weights, self.exposure, *self.fixed, *patterns)

    def allowed(self, mode: int) -> Array | None:
        """By row and component, whether an entry may be positive; None: all of them may."""
        if not self._has_known_entries(mode):
            return None
        allowed = np.ones((self.shape[mode], self.n_components), dtype=bool)
        return self.imposed_on(mode, allowed)
