"""`differential` and `bootstrap`: genes that distinguish programs, and intervals."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import numpy as np

from klnmf import uncertainty
from klnmf.estimators.arguments import explains_misplaced
from klnmf.tl.counts import as_of_cells
from klnmf.tl.fields import KEY, check_can_be_changed, data_of, fitted_model
from klnmf.tl.stored_results import put_result

if TYPE_CHECKING:
    from anndata import AnnData

_LOGGER = logging.getLogger(__name__)


@explains_misplaced
def differential(
    adata: AnnData, *, key: str = KEY, copy: bool = False, **options: Any
) -> AnnData | None:
    """Test which genes have a larger share in a program than in the others.

    See `klnmf.uncertainty.differential_features`, and what it says about testing programs with the
    counts that they were found in. The counts, genes and weights are those of the fit.

    Parameters
    ----------
    adata : AnnData
        Data that went through `klnmf.tl.nmf` or `klnmf.tl.consensus`, with the same cells.
    key : str, default="nmf"
        The ``key_added`` of that call.
    copy : bool, default=False
        Return a changed copy and leave adata unchanged.
    **options
        Other arguments of `klnmf.uncertainty.differential_features`, such as ``against``,
        ``components`` or ``alternative``. By default all programs are compared with each other.
        Profiles of batches stay in the model, and are not compared.

    Returns
    -------
    AnnData or None
        None, or with ``copy=True`` the changed copy. ``.uns["nmf_differential"]`` holds the result,
        and ``klnmf.tl.result(adata, "nmf_differential")`` returns it as a
        `klnmf.uncertainty.DifferentialFeatures`, which prints as a table and has ``to_frame``.
        `klnmf.tl.top_genes` then lists fold changes and q-values too.

    Examples
    --------
    >>> import anndata
    >>> from klnmf import tl
    >>> from klnmf.simulate import simulate_counts
    >>> adata = anndata.AnnData(simulate_counts(80, 30, 3, random_state=0).X)
    >>> tl.nmf(adata, n_components=3)
    >>> tl.differential(adata)
    >>> tl.result(adata, "nmf_differential").q_value.shape
    (3, 30)
    """
    check_can_be_changed(adata, copy)
    model, data = fitted_model(adata, key), data_of(adata, key)
    with as_of_cells():
        found = uncertainty.differential_features(model, data.X, **data.constraints, **options)
    _LOGGER.info("%d significant genes", int((found.q_value <= 0.05).sum()))
    target = adata.copy() if copy else adata
    put_result(target, f"{key}_differential", "differential", found, {"key": key})
    return target if copy else None


@explains_misplaced
def bootstrap(
    adata: AnnData,
    n_runs: int = 100,
    *,
    key: str = KEY,
    random_state: int | np.random.RandomState | None = 0,
    n_jobs: int | None = None,
    copy: bool = False,
    **options: Any,
) -> AnnData | None:
    """Compute intervals for the programs and for the shares of the cells.

    See `klnmf.uncertainty.bootstrap`. The counts, genes and weights are those of the fit.

    Parameters
    ----------
    adata : AnnData
        Data that went through `klnmf.tl.nmf`, with the same cells.
    n_runs : int, default=100
        Number of refits.
    key : str, default="nmf"
        The ``key_added`` of that call.
    random_state : int, RandomState instance or None, default=0
        Seed of the draws.
    n_jobs : int, default=None
        Number of runs at a time. The result does not depend on it.
    copy : bool, default=False
        Return a changed copy and leave adata unchanged.
    **options
        Other arguments of `klnmf.uncertainty.bootstrap`, such as ``level`` or ``samples``.

    Returns
    -------
    AnnData or None
        None, or with ``copy=True`` the changed copy. ``.uns["nmf_bootstrap"]`` holds the result,
        and ``klnmf.tl.result(adata, "nmf_bootstrap")`` returns it as a
        `klnmf.uncertainty.Bootstrap`. If there is a ``batch_key``, its last components are the
        profiles of the batches, and shares are those of all components.

    Examples
    --------
    >>> import anndata
    >>> from klnmf import tl
    >>> from klnmf.simulate import simulate_counts
    >>> adata = anndata.AnnData(simulate_counts(80, 30, 3, random_state=0).X)
    >>> tl.nmf(adata, n_components=3)
    >>> tl.bootstrap(adata, n_runs=10)
    >>> tl.result(adata, "nmf_bootstrap").proportions.lower.shape
    (80, 3)
    """
    check_can_be_changed(adata, copy)
    model, data = fitted_model(adata, key), data_of(adata, key)
    with as_of_cells():
        found = uncertainty.bootstrap(
            model,
            data.X,
            n_runs,
            random_state=random_state,
            n_jobs=n_jobs,
            **data.constraints,
            **options,
        )
    target = adata.copy() if copy else adata
    put_result(target, f"{key}_bootstrap", "bootstrap", found, {"key": key})
    return target if copy else None
