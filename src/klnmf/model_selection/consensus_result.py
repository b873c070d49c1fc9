"""`Consensus`: the result of `consensus`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from klnmf.estimators.kl_nmf import KLNMF
from klnmf.estimators.poisson_cp import PoissonCP
from klnmf.saved.arrays import (
    FLOATS,
    INDICES,
    array_named,
    nonnegative,
    pack_modes,
    pack_names,
    shaped_array,
    unpack_modes,
    unpack_names,
)
from klnmf.saved.container import Container, SavedFileError, read_container, write_container
from klnmf.saved.fields import Fields, number_to_json
from klnmf.support.array_types import FloatArray
from klnmf.support.option_names import option
from klnmf.support.result_tables import Column, ResultTable, ShownAsTable
from klnmf.topics import top_features
from klnmf.uncertainty.equal_fits import equal_fits_in_words

IndexArray = npt.NDArray[np.int64]

_FIGURES = ("run_share", "silhouette", "stability")
_ARRAYS = (
    *("components", "W", *_FIGURES, "run_objectives", "spectra", "labels", "neighbour_distance"),
)
_OPTIONAL = ("W_sums", "feature_weight")
_NUMBERS = ("divergence", "optimality_gap", "kkt_residual", "density_threshold")


# Leading features of a component in the table.
_N_LEADING = 5


@dataclass(frozen=True, eq=False)
class NullAgreement:
    """How well runs agree on counts without structure, see `klnmf.model_selection.consensus`.

    The means of these counts are the best ones of rank 1, so that their margins are those of X, and
    they have the dispersion of X around a fit.

    Attributes
    ----------
    run_share, silhouette, stability : ndarray of shape (n_components,)
        As in `Consensus`, each from the highest to the lowest. NaN if the null is empty.
    n_runs : int
        Number of runs.
    dispersion : float
        α of all features together: a count with mean y has the variance y + α y².
    n_left_out : int or None
        Number of components of these runs that were left out; None if a file does not say.
    """

    run_share: FloatArray
    silhouette: FloatArray
    stability: FloatArray
    n_runs: int
    dispersion: float
    n_left_out: int | None = None

    @property
    def is_empty(self) -> bool:
        """Whether too few components of these runs are close to each other to make groups."""
        return bool(np.isnan(self.run_share).all())


@dataclass(frozen=True, eq=False, repr=False)
class Consensus(ShownAsTable):
    """Components that many runs agree on, as returned by `klnmf.model_selection.consensus`.

    It shows itself as a table with one row per component. Its figures are the agreement of starts
    on the same data; those of ``null`` show how far starts agree without structure.

    Attributes
    ----------
    components : ndarray of shape (n_components, n_features)
        Consensus components, each summing to 1, in order of decreasing size. Of a tensor, those of
        all modes after the first side by side, each mode summing to 1; ``factors`` has them apart.
    W : ndarray of shape (n_samples, n_components)
        Expected counts of each component in each sample.
    divergence : float
        KL divergence of X from W times the components.
    optimality_gap, kkt_residual : float
        Distance from a stationary point, see `klnmf.KLNMF`. Medians are not stationary.
    run_share : ndarray of shape (n_components,)
        Share of the runs that found the component.
    silhouette : ndarray of shape (n_components,)
        Mean silhouette of the runs' components; near 1 if they are far from all other groups.
    stability : ndarray of shape (n_components,)
        Mean cosine similarity of the runs' components with the consensus component.
    run_objectives : ndarray of shape (n_runs,)
        KL divergence at the end of each run.
    spectra : ndarray of float32, shape (n_runs · n_components, n_features)
        Components of all runs, in order of the runs, each with Euclidean length 1. Of a tensor,
        every mode after the first has the same length.
    labels : ndarray of int, shape (n_runs · n_components,)
        Consensus component of each row of ``spectra``; −1 if it was left out.
    neighbour_distance : ndarray of shape (n_runs · n_components,)
        Mean distance of each row of ``spectra`` to its nearest neighbours.
    density_threshold : float
        Rows with a larger distance were left out.
    null : NullAgreement or None
        The same figures for counts without structure; None if they are not known.
    feature_names : ndarray of str, or None
        Names of the features.
    W_sums, feature_weight, constraint_names, n_fixed_W
        Attributes of the model, see `klnmf.KLNMF`. The last ``n_fixed_W`` components belong to
        given columns of W: all runs have them, and their figures are NaN.
    sizes, mode_names, mode_labels, mode_weights : tuple
        Of a tensor: sizes of the modes after the first, and ``mode_names_``, ``labels_`` and
        ``mode_weights_`` of `klnmf.PoissonCP`. Empty for a matrix.
    """

    components: FloatArray
    W: FloatArray
    divergence: float
    optimality_gap: float
    kkt_residual: float
    run_share: FloatArray
    silhouette: FloatArray
    stability: FloatArray
    run_objectives: FloatArray
    spectra: npt.NDArray[np.float32]
    labels: IndexArray
    neighbour_distance: FloatArray
    density_threshold: float
    null: NullAgreement | None = None
    feature_names: npt.NDArray[Any] | None = None
    W_sums: FloatArray | None = None
    feature_weight: FloatArray | None = None
    constraint_names: tuple[str, ...] = ()
    n_fixed_W: int = 0  # noqa: N815
    sizes: tuple[int, ...] = ()
    mode_names: tuple[str, ...] = ()
    mode_labels: tuple[Any, ...] = ()
    mode_weights: tuple[Any, ...] = ()

    @property
    def factors(self) -> list[FloatArray]:
        """One matrix for each mode, whose columns sum to 1, as ``factors_`` of a PoissonCP.

        The columns of W sum to the weights of the components.
        """
        sums = self.W.sum(axis=0)
        others = np.split(self.components, np.cumsum(self.sizes[:-1], dtype=int), axis=1)
        return [
            self.W / np.where(sums > 0, sums, 1.0),
            *(np.ascontiguousarray(H.T) for H in others),
        ]

    @property
    def n_left_out(self) -> int:
        """Number of components of the runs that were left out."""
        return int(np.sum(self.labels < 0))

    def table(self) -> dict[str, npt.NDArray[Any]]:
        """Return the columns of the table.

        Returns
        -------
        dict of ndarray
            component, run_share, silhouette, stability, share (of all counts); and null_run_share,
            null_silhouette and null_stability, what the null has at the same place if components
            are sorted by that figure (NaN without a null, or if it is empty).
        """
        masses = self.W.sum(axis=0)
        columns: dict[str, npt.NDArray[Any]] = {"component": np.arange(len(self.components))}
        for name in _FIGURES:
            columns[name] = getattr(self, name)
            columns[f"null_{name}"] = self._of_null(name)
        return columns | {"share": masses / (masses.sum() or 1.0)}

    def _of_null(self, name: str) -> FloatArray:
        """Figure of the null at the place that each component has by that figure."""
        figure: FloatArray = getattr(self, name)
        if self.null is None:
            return np.full(len(figure), np.nan)
        places = np.argsort(np.argsort(-figure, kind="stable"))
        return np.asarray(getattr(self.null, name)[places])

    def leading_features(self, n_top: int = _N_LEADING, mode: int = 1) -> list[list[str]]:
        """Return the names of the leading features of each component; [] if there are no names.

        Parameters
        ----------
        n_top : int, default=5
            Number of features.
        mode : int, default=1
            Mode of a tensor whose labels are returned.

        Returns
        -------
        list of list of str
            The leading features, as `klnmf.topics.top_features` lists them by default.
        """
        names = self.mode_labels[mode] if self.sizes else self.feature_names
        if names is None:
            return [[] for _ in self.components]
        rows = self.factors[mode].T if self.sizes else self.components
        top = top_features(rows, names, n_top)
        return [[name for name, _ in features] for features in top]

    def to_model(self) -> KLNMF | PoissonCP:
        """Return a fitted model with these components, for ``transform``, saving or a report.

        To refine the components, use ``KLNMF(n_components).fit(X, H=result.components)`` instead,
        or ``PoissonCP(n_components).fit(X, start=[result.W, *result.factors[1:]])``.

        Returns
        -------
        KLNMF, or PoissonCP of a tensor
            ``converged_`` is True only if ``optimality_gap`` is at most ``tol``.

        Examples
        --------
        >>> from klnmf.model_selection import consensus
        >>> from klnmf.simulate import simulate_counts
        >>> X = simulate_counts(80, 50, 3, counts_per_sample=200, random_state=0).X
        >>> found = consensus(X, 3, n_runs=5, random_state=0)
        >>> bool(abs(found.to_model().transform(X) - found.W).max() < 0.01)
        True
        """
        if self.sizes:
            return self._tensor_model()
        return KLNMF.from_components(
            self.components.copy(),
            divergence=self.divergence,
            optimality_gap=self.optimality_gap,
            kkt_residual=self.kkt_residual,
            W_sums=self.W.sum(axis=0) if self.W_sums is None else self.W_sums,
            feature_names=self.feature_names,
            feature_weight=self.feature_weight,
            constraint_names=self.constraint_names,
            n_fixed_W=self.n_fixed_W,
        )

    def _tensor_model(self) -> PoissonCP:
        r, masses = len(self.components), self.W.sum(axis=0)
        model = PoissonCP(r)
        model._set_others(
            {
                "factors": self.factors,
                "weights": masses,
                "factor_sums": np.stack([masses, *(np.ones(r) for _ in self.sizes)]),
                "W_sums": masses if self.W_sums is None else self.W_sums,
                "n_components": r,
                "mode_names": self.mode_names,
                "labels": self.mode_labels,
                "mode_weights": list(self.mode_weights),
                "constraint_names": list(self.constraint_names),
                "converged": self.optimality_gap <= model.tol,
                **{n: getattr(self, n) for n in ("divergence", "optimality_gap", "kkt_residual")},
                **{"history": [], "n_iter": 0, "n_fixed_W": 0, "data_checksum": None},
            }
        )
        return model

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save the result, including the components of all runs, to a file for `load`.

        Parameters
        ----------
        path : str or path
            File to write.
        """
        arrays = {name: np.ascontiguousarray(getattr(self, name)) for name in _ARRAYS}
        arrays |= {name: array for name in _OPTIONAL if (array := getattr(self, name)) is not None}
        content: dict[str, Any] = {
            name: number_to_json(float(getattr(self, name))) for name in _NUMBERS
        }
        if self.constraint_names:
            content["constraint_names"] = list(self.constraint_names)
        if self.n_fixed_W:
            content["n_fixed_W"] = self.n_fixed_W
        if self.sizes:
            content["modes"] = {"sizes": list(self.sizes), "names": list(self.mode_names)}
            pack_modes(arrays, self.mode_labels, self.mode_weights)
        if self.feature_names is not None:
            pack_names(arrays, "feature_names", list(self.feature_names))
        if self.null is not None:
            content["null"] = {
                "n_runs": self.null.n_runs,
                "dispersion": number_to_json(self.null.dispersion),
            }
            if self.null.n_left_out is not None:
                content["null"]["n_left_out"] = self.null.n_left_out
            arrays |= {f"null_{name}": getattr(self.null, name) for name in _FIGURES}
        write_container(Path(path), Container("consensus", content, arrays))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Consensus:
        """Load a file written by `save` or by ``klnmf consensus --result``.

        Parameters
        ----------
        path : str or path
            The file.

        Returns
        -------
        Consensus

        Raises
        ------
        klnmf.saved.SavedFileError
            If the file is damaged or not a consensus. It is a ValueError.
        """
        container = read_container(Path(path), "consensus")
        content = Fields(container.content, "content")
        try:
            numbers: dict[str, Any] = {
                name: content.number_if_stored(name)
                if name == "optimality_gap"  # unknown to older versions
                else content.number(name)
                for name in _NUMBERS
            }
            names = content.take("constraint_names", list) if "constraint_names" in content else ()
            return cls(
                **numbers,
                **_checked_arrays(container.arrays),
                **_modes(content, container.arrays),
                null=_null(content, container.arrays),
                constraint_names=tuple(map(str, names)),
                n_fixed_W=content.whole("n_fixed_W") if "n_fixed_W" in content else 0,
            )
        except SavedFileError as error:
            raise SavedFileError(f"{path} cannot be read: {error}") from error

    def plot(self, ax: Any = None) -> Any:
        """Plot the similarity of the components of all runs, sorted by consensus component.

        Dark squares on the diagonal are components that the runs agree on, which noise can be too:
        see the null of `klnmf.model_selection.consensus`. Components that were left out come last.
        The bar on the left shows the consensus component of each row.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Axes to draw on; a new figure by default.

        Returns
        -------
        matplotlib Axes
        """
        from klnmf.plots.heat_maps import draw_consensus

        return draw_consensus(self, ax)

    def _shown(self) -> ResultTable:
        """Return the figures of each component, and what they mean."""
        table = self.table()
        columns = [Column("component", [str(k) for k in table["component"]])]
        titles = {"run_share": "in runs"}
        for name in _FIGURES:
            form = ".0%" if name == "run_share" else ".3f"
            columns.append(Column(titles.get(name, name), [format(x, form) for x in table[name]]))
            if self.null is not None and not self.null.is_empty:
                columns.append(Column("(null)", [f"({x:{form}})" for x in table[f"null_{name}"]]))
        columns.append(Column("share", [f"{share:.1%}" for share in table["share"]]))
        for mode in range(1, max(2, len(self.mode_names))):
            leading = [", ".join(features) for features in self.leading_features(mode=mode)]
            name = self.mode_names[mode] if self.sizes else "features"
            if any(leading):
                columns.append(Column(f"leading {name}", leading, is_text=True))
        return ResultTable(columns, self._explanation())

    def _explanation(self) -> list[str]:
        """Say what the figures are, and what the null says."""
        lines = [
            f"{len(self.run_objectives)} runs; {self.n_left_out} of their {len(self.labels)} "
            "components are far from all others and were left out.",
            "The figures say how far starts agree on these data, not whether a component is real: "
            "starts can agree on noise.",
        ]
        if not self.sizes and (other := equal_fits_in_words(self.W, self.components)):
            lines.append(other)
        if self.null is None:
            text = "How far they would agree without structure is not known: there was no null run."
            return [*lines, text]
        kind = "Poisson counts"
        if self.null.dispersion > 0.0:
            kind = f"counts of mean y and variance y + {self.null.dispersion:.2g} y²"
        r, n_runs = len(self.components) - self.n_fixed_W, self.null.n_runs
        drawn = f"{n_runs} runs on one draw of {kind}, with the same margins and no structure"
        if self.null.is_empty:
            threshold = option("density_threshold", self.density_threshold)
            text = (
                f"The null is empty: {drawn}, do not agree. With {threshold}, fewer than {r} of "
                f"their {n_runs * r} components are close to their neighbours, so there are no "
                "groups and no figures to compare with. Starts do not agree on noise here; a "
                "larger threshold shows how far they would."
            )
            return [*lines, text]
        n_left_out, left_out = self.null.n_left_out, ""
        if n_left_out is not None:
            left_out = f"; {n_left_out} of their {n_runs * r} components were left out"
        above = int(np.sum(self.silhouette > self._of_null("silhouette")))
        above_all = int(np.sum(self.silhouette > self.null.silhouette[0]))
        return [
            *lines,
            f"(null): {drawn}{left_out}. Each column is sorted: the highest stands beside the "
            "highest.",
            f"Silhouettes above the one beside them: {above} of {r}; above all of the null: "
            f"{above_all}."
            if r > 1
            else "A single component has no silhouette.",
        ]


def _checked_arrays(arrays: dict[str, npt.NDArray[Any]]) -> dict[str, Any]:
    """Arrays of a saved consensus, if they fit together."""
    r, m = array_named(arrays, "components", FLOATS, 2).shape
    n = len(array_named(arrays, "W", FLOATS, 2))
    n_runs = len(array_named(arrays, "run_objectives", FLOATS, 1))
    shapes: dict[str, tuple[int, ...]] = {
        "components": (r, m),
        "W": (n, r),
        "spectra": (n_runs * r, m),
        **dict.fromkeys(_FIGURES, (r,)),
        **({"W_sums": (r,)} if "W_sums" in arrays else {}),
        **({"feature_weight": (m,)} if "feature_weight" in arrays else {}),
        **dict.fromkeys(("labels", "neighbour_distance"), (n_runs * r,)),
        "run_objectives": (n_runs,),
    }
    found = {
        name: shaped_array(arrays, name, shape, INDICES if name == "labels" else FLOATS)
        for name, shape in shapes.items()
    }
    for name in ("components", "W", "spectra", *_OPTIONAL):
        if name in found:
            nonnegative(found[name], name)
    if not np.isin(found["labels"], np.arange(-1, r)).all():
        raise SavedFileError(f"the labels must be from -1 to {r - 1}.")
    if "feature_names.text" in arrays:
        found["feature_names"] = unpack_names(arrays, "feature_names", m)
    return found


def _modes(content: Fields, arrays: dict[str, npt.NDArray[Any]]) -> dict[str, Any]:
    """Return what a saved consensus says about the modes of a tensor."""
    if "modes" not in content:
        return {}
    about, m = content.fields("modes"), arrays["components"].shape[1]
    sizes, names = about.take("sizes", list), about.take("names", list)
    are_sizes = all(type(size) is int and size > 0 for size in sizes) and sum(sizes) == m
    if not are_sizes or len(sizes) < 1 or len(names) != 1 + len(sizes):
        raise SavedFileError("its modes do not agree with its components.")
    labels, weights = unpack_modes(arrays, (len(arrays["W"]), *sizes))
    found = {"mode_labels": labels, "mode_weights": weights}
    return {"sizes": tuple(sizes), "mode_names": tuple(map(str, names)), **found}


def _null(content: Fields, arrays: dict[str, npt.NDArray[Any]]) -> NullAgreement | None:
    """Return the null of a saved consensus; files of older versions have none."""
    if "null" not in content:
        return None
    about, r = content.fields("null"), len(arrays["components"])
    figures = {name: shaped_array(arrays, f"null_{name}", (r,), FLOATS) for name in _FIGURES}
    if not figures["run_share"].any():  # an empty null of version 0.2.0
        figures = dict.fromkeys(_FIGURES, np.full(r, np.nan))
    return NullAgreement(
        **figures,
        n_runs=about.whole("n_runs"),
        dispersion=about.number("dispersion"),
        n_left_out=about.whole("n_left_out") if "n_left_out" in about else None,
    )
