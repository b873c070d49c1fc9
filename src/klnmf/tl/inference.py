"""`differential`, `bootstrap`, `posterior`: genes that distinguish programs, and intervals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from klnmf import uncertainty
from klnmf.estimators.arguments import check_arguments, explains_misplaced
from klnmf.tl.counts import checked_before
from klnmf.tl.fields import (
    KEY,
    as_entries,
    check_can_be_changed,
    data_of,
    entries_of,
    fitted_model,
    put_fit,
    put_result,
    result,
)

if TYPE_CHECKING:
    from anndata import AnnData


@explains_misplaced
def differential(adata: AnnData, *, key: str = KEY, **options: Any) -> None:
    """Test which genes have a larger share in a program than in the others.

    See `klnmf.uncertainty.differential_features`, and what it says about testing programs with the
    counts that they were found in. The counts, genes and weights are those of the fit.

    Parameters
    ----------
    adata : AnnData
        Data that went through `klnmf.tl.nmf` or `klnmf.tl.consensus`, with the same cells.
    key : str, default="nmf"
        The ``key_added`` of that call. With "nmf_posterior", after `klnmf.tl.posterior`, the errors
        include the uncertainty of the programs.
    **options
        Other arguments of `klnmf.uncertainty.differential_features`, such as ``against``,
        ``components`` or ``alternative``. By default all programs are compared with each other.
        Profiles of batches stay in the model, and are not compared.

    Returns
    -------
    None
        ``.uns["nmf_differential"]`` holds the result,
        and ``klnmf.tl.result(adata, "nmf_differential")`` returns it as a
        `klnmf.uncertainty.DifferentialFeatures`, which prints as a table and has ``to_frame``.
        `klnmf.tl.top_genes` then lists fold changes and q-values too.

    Examples
    --------
    >>> import anndata
    >>> from klnmf import tl
    >>> from klnmf.simulate import simulate_counts
    >>> adata = anndata.AnnData(simulate_counts(80, 30, 3, random_state=0).X)
    >>> tl.nmf(adata, n_components=3, random_state=0)
    >>> tl.differential(adata)
    >>> tl.result(adata, "nmf_differential").q_value.shape
    (3, 30)
    """
    check_can_be_changed(adata)
    if entries_of(adata, key)["kind"] == "posterior":
        found = uncertainty.differential_features(result(adata, key), **options)
    else:
        model, data = fitted_model(adata, key), data_of(adata, key)
        with checked_before():
            found = uncertainty.differential_features(model, data.X, **data.constraints, **options)
    put_result(adata, f"{key}_differential", "differential", found, {"key": key})


@explains_misplaced
def bootstrap(
    adata: AnnData,
    n_runs: int = 100,
    *,
    key: str = KEY,
    random_state: int | np.random.RandomState | None = None,
    n_jobs: int | None = None,
    **options: Any,
) -> None:
    """Compute intervals for the programs and for the shares of the cells.

    See `klnmf.uncertainty.bootstrap`. The counts, genes and weights are those of the fit.

    Parameters
    ----------
    adata : AnnData
        Data that went through `klnmf.tl.nmf`, with the same cells.
    key : str, default="nmf"
        The ``key_added`` of that call.
    n_runs, random_state, n_jobs, **options
        As in `klnmf.uncertainty.bootstrap`; other options are such as ``level`` or ``samples``.

    Returns
    -------
    None
        ``.uns["nmf_bootstrap"]`` holds the result,
        and ``klnmf.tl.result(adata, "nmf_bootstrap")`` returns it as a
        `klnmf.uncertainty.Bootstrap`. If there is a ``batch_key``, its last components are the
        profiles of the batches, and shares are those of all components.

    Examples
    --------
    >>> import anndata
    >>> from klnmf import tl
    >>> from klnmf.simulate import simulate_counts
    >>> adata = anndata.AnnData(simulate_counts(80, 30, 3, random_state=0).X)
    >>> tl.nmf(adata, n_components=3, random_state=0)
    >>> tl.bootstrap(adata, n_runs=10, random_state=0)
    >>> tl.result(adata, "nmf_bootstrap").proportions.lower.shape
    (80, 3)
    """
    check_can_be_changed(adata)
    model, data = fitted_model(adata, key), data_of(adata, key)
    with checked_before():
        given = {"random_state": random_state, "n_jobs": n_jobs, **data.constraints, **options}
        found = uncertainty.bootstrap(model, data.X, n_runs, **given)
    put_result(adata, f"{key}_bootstrap", "bootstrap", found, {"key": key})


@explains_misplaced
def posterior(
    adata: AnnData,
    n_sweeps: int = 1500,
    *,
    key: str = KEY,
    key_added: str | None = None,
    random_state: int | np.random.RandomState | None = None,
    **options: Any,
) -> None:
    """Estimate the programs once more, with the shares of the cells integrated out.

    See `klnmf.uncertainty.posterior`. Programs that share a background, as those of one tissue do,
    come out closer to the truth than in a fit, the more so the more cells there are, and have
    intervals closer to their level. The counts, genes and exposures are those of the fit. Fits with
    weights or with a ``batch_key`` are refused.

    Parameters
    ----------
    adata : AnnData
        Data that went through `klnmf.tl.nmf` or `klnmf.tl.consensus`, with the same cells.
    key : str, default="nmf"
        The ``key_added`` of that call.
    key_added : str, default=None
        Key of the new programs; None is "nmf_posterior" for the key "nmf".
    n_sweeps, random_state, **options
        As in `klnmf.uncertainty.posterior`; options are ``level``, ``noise``, ``n_threads`` and
        ``run``.

    Returns
    -------
    None
        A fit of its own, with the entries of `klnmf.tl.nmf` under ``key_added``: mean programs in
        ``.varm["nmf_posterior"]``, mean shares in ``.obsm["X_nmf_posterior_shares"]``, and so on.
        ``klnmf.tl.result(adata, "nmf_posterior")`` returns the intervals as a
        `klnmf.uncertainty.Posterior`.

    Examples
    --------
    >>> import anndata
    >>> from klnmf import tl
    >>> from klnmf.simulate import simulate_counts
    >>> adata = anndata.AnnData(simulate_counts(80, 30, 3, random_state=0).X)
    >>> tl.nmf(adata, n_components=3, random_state=0)
    >>> tl.posterior(adata, n_sweeps=300, random_state=0)
    >>> tl.result(adata, "nmf_posterior").components.lower.shape
    (3, 30)
    """
    check_arguments(options, "posterior", ("level", "noise", "n_threads", "run"))
    check_can_be_changed(adata)
    model, data = fitted_model(adata, key), data_of(adata, key)
    key_added = f"{key}_posterior" if key_added is None else key_added
    check_can_be_changed(adata, key_added)
    with checked_before():
        found = uncertainty.posterior(
            model,
            data.X,
            n_sweeps=n_sweeps,
            random_state=random_state,
            **data.constraints,
            **options,
        )
    W = found.representation()
    put_fit(adata, key_added, "posterior", found.model_, W, data, result=as_entries(found))
