"""`nmf`: the programs of the cells of an AnnData."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from klnmf.estimators.arguments import explains_misplaced
from klnmf.estimators.kl_nmf import KLNMF
from klnmf.tl.counts import as_of_cells
from klnmf.tl.fields import KEY, check_can_be_changed, put_fit
from klnmf.tl.fit_data import data_to_fit

if TYPE_CHECKING:
    from anndata import AnnData

_LOGGER = logging.getLogger(__name__)
_REFUSED = {
    "warm_start": "klnmf.tl.nmf fits a new model each time and cannot continue the last one",
    "zero_components": "klnmf.tl.nmf does not store it, so that refits would not know it",
}


@explains_misplaced
def nmf(
    adata: AnnData,
    n_components: int = 10,
    *,
    layer: str | None = None,
    mask_var: str | npt.ArrayLike | None = None,
    batch_key: str | None = None,
    scale_genes: bool = False,
    feature_weight: str | npt.ArrayLike | None = None,
    sample_weight: str | npt.ArrayLike | None = None,
    exposure: str | npt.ArrayLike | None = None,
    key_added: str = KEY,
    random_state: int | np.random.RandomState | None = 0,
    copy: bool = False,
    **parameters: Any,
) -> AnnData | None:
    """Factorise the counts of an AnnData: programs (weights of genes) and their use by each cell.

    The counts should be raw: the model is Poisson, and a cell's depth is part of its row of W. X
    may be dense or sparse, in memory or in a file opened with ``backed="r"``. From such a file only
    the nonzeros of the chosen genes are kept (while it is read, those of all genes if it is CSC).

    Progress goes to the logger ``klnmf.tl`` (``logging.basicConfig(level="INFO")`` shows it).

    Parameters
    ----------
    adata : AnnData
        Cells × genes.
    n_components : int, default=10
        Number of programs, without the profiles of batches. The default is that of `klnmf.KLNMF`
        and not a recommendation: `klnmf.tl.select_rank` finds out how many predict new data best.
    layer : str, default=None
        Layer that holds the counts; None is ``adata.X``. "raw" is ``adata.raw`` unless there is a
        layer of that name: the genes of adata, found by name.
    mask_var : str or array of bool, default=None
        Genes to use: a boolean column of ``adata.var``, such as "highly_variable", or one value for
        each gene. None uses all of them, even if there is a column "highly_variable". If
        ``adata.var["feature_types"]`` has other types than "Gene Expression", such as antibodies,
        None leaves them out and says so.
    batch_key : str, default=None
        Column of ``adata.obs`` with the batch of each cell. Each batch then has a profile of its
        own, which makes up the same fraction of the counts of all its cells: what the cells of a
        batch have in common, such as ambient RNA. The profiles are the components of fixed columns
        of W, and no part of the shares. Types of cells that only one batch has are kept apart by
        programs; if batches and types coincide, nothing can tell them apart, and there is a
        warning if it looks so.
    scale_genes : bool, default=False
        Divide each gene by its standard deviation over the cells, without centring, as cNMF does:
        no gene counts more because it is frequent. This is ``feature_weight = 1 / deviation`` (the
        same objective), so that the programs stay in counts. It multiplies ``feature_weight``.
    feature_weight : str or array, default=None
        Weights of the genes, a column of ``adata.var`` or one number for each, see `klnmf.KLNMF`.
    sample_weight, exposure : str or array, default=None
        Weights and exposures of the cells, a column of ``adata.obs`` or one number for each, see
        ``KLNMF.fit``.
    key_added : str, default="nmf"
        Name of the result, see Returns.
    random_state : int, RandomState instance or None, default=0
        Seed of the fit.
    copy : bool, default=False
        Return a changed copy and leave adata unchanged.
    **parameters
        Other parameters of `klnmf.KLNMF`, such as ``tol``, ``max_iter`` or ``l1_W``.

    Returns
    -------
    AnnData or None
        None, or with ``copy=True`` the changed copy. With the default ``key_added`` it has

        - ``.obsm["X_nmf"]``: W, cells × programs, in counts;
        - ``.obsm["X_nmf_shares"]``: the proportions of the programs in each cell. Use these, or
          their square roots, to compare cells, for example as ``use_rep`` of scanpy's neighbours
          (Leiden then needs a resolution of 0.1 to 0.3): W also holds the depth of the cells;
        - ``.obs["nmf"]``: the program with the largest share, a categorical;
        - ``.varm["nmf"]``: H, genes × programs, with zeros for the genes outside the mask;
        - ``.varm["nmf_batches"]``: the profiles of the batches, if there is a ``batch_key``;
        - ``.uns["nmf"]``: a dict with params, history (arrays by column, for
          ``pandas.DataFrame``), n_iter, divergence, optimality_gap, kkt_residual, converged,
          component_names and version;
        - ``.obs["nmf_sample_weight"]``, ``.obs["nmf_exposure"]``, ``.var["nmf_mask"]``,
          ``.var["nmf_feature_weight"]``: what was used of these.

        `klnmf.tl.fitted_model` returns the `KLNMF` again, and `klnmf.tl.top_genes` the genes that
        distinguish the programs.

    Warns
    -----
    klnmf.NotCountsWarning
        If the values look normalised or log-transformed, or if they are fractions while other
        layers, which it names, hold whole numbers.
    UserWarning
        If there is one batch only, or if batches and types of cells may coincide.

    Examples
    --------
    >>> import anndata
    >>> from klnmf import tl
    >>> from klnmf.simulate import simulate_counts
    >>> adata = anndata.AnnData(simulate_counts(80, 30, 3, random_state=0).X)
    >>> tl.nmf(adata, n_components=3)
    >>> adata.obsm["X_nmf"].shape, adata.varm["nmf"].shape, adata.uns["nmf"]["converged"]
    ((80, 3), (30, 3), True)
    """
    check_can_be_changed(adata, copy, key_added)
    for name, reason in _REFUSED.items():
        if parameters.get(name) is not None and parameters[name] is not False:
            raise ValueError(f"{reason}. Leave {name} out, or use klnmf.KLNMF.")
    data = data_to_fit(
        adata,
        layer=layer,
        mask_var=mask_var,
        sample_weight=sample_weight,
        exposure=exposure,
        feature_weight=feature_weight,
        scale_genes=scale_genes,
        batch_key=batch_key,
    )
    model = KLNMF(
        n_components + data.n_batches if data.n_batches else n_components,
        feature_weight=data.feature_weight,
        random_state=random_state,
        **parameters,
    )
    _LOGGER.info(
        "fitting %s programs to %s cells × %s genes",
        n_components,
        *(f"{n:,}" for n in data.X.shape),
    )
    if mask_var is None and "highly_variable" in adata.var:
        _LOGGER.info("all genes are used; mask_var='highly_variable' uses the variable ones alone")
    started = time.perf_counter()
    with as_of_cells():
        W = model.set_output(transform="default").fit_transform(data.X, **data.constraints)
    _LOGGER.info(
        "finished in %.1f s: %d iterations, divergence %.6g, optimality gap %.1e",
        time.perf_counter() - started,
        model.n_iter_,
        model.divergence_,
        model.optimality_gap_,
    )
    target = adata.copy() if copy else adata
    put_fit(target, key_added, "fit", model, W, data)
    return target if copy else None
