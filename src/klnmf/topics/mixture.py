"""A fitted model as probabilities: PLSI, and the shares of components."""

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from klnmf.support.array_types import FloatArray
from klnmf.topics.checks import (
    checked_components,
    checked_representation,
    rows_scaled_to_one,
    scaled_to_one,
    sums,
)


class Probabilities(NamedTuple):
    """W Hᵀ as the mixture of probabilistic latent semantic indexing (PLSI).

    With z a component, d a sample and w a feature,
    P(d, w) = P(d) Σ_z P(z | d) P(w | z) is W Hᵀ divided by its sum.

    Attributes
    ----------
    feature_given_component : ndarray or CSR array of shape (n_components, n_features)
        P(w | z). Each row adds up to 1.
    component_given_sample : ndarray or CSR array of shape (n_samples, n_components)
        P(z | d), the proportions of the samples. Each row adds up to 1.
    component : ndarray of shape (n_components,)
        P(z), the share of each component in the total mass.
    sample : ndarray of shape (n_samples,)
        P(d), the share of each sample in the total mass.
    """

    feature_given_component: Any
    component_given_sample: Any
    component: FloatArray
    sample: FloatArray


def plsi_probabilities(W: Any, components: Any) -> Probabilities:
    """Convert a factorisation to the probabilities of PLSI.

    .. code-block:: text

        P(w_j | z_k) = h_jk / s_k                           s_k = Σ_j h_jk
        P(z_k | d_i) = w_ik s_k / Σ_l w_il s_l
        P(z_k)       = (Σ_i w_ik) s_k / Σ_l (Σ_i w_il) s_l
        P(d_i)       = Σ_k w_ik s_k / Σ_l (Σ_i w_il) s_l

    They do not change if a component is multiplied by a number and its column of W divided by it.

    Probabilities are 0 where there is no mass: the row of P(z | d) of an empty sample, the row of
    P(w | z) of an empty component, and P(z) of a component that is empty or not used by any sample.

    Parameters
    ----------
    W : array-like or sparse matrix of shape (n_samples, n_components)
        Representation of the samples, from ``fit_transform`` or ``transform``.
    components : array-like or sparse matrix of shape (n_components, n_features)
        Components, such as ``components_`` of a fitted model.

    Returns
    -------
    probabilities : Probabilities
        In float64; sparse if the factor is sparse.

    References
    ----------
    T. Hofmann, Probabilistic latent semantic indexing, SIGIR 1999. C. Ding, T. Li and W. Peng, On
    the equivalence between non-negative matrix factorization and probabilistic latent semantic
    indexing, Computational Statistics & Data Analysis 52, 2008.

    Examples
    --------
    >>> from klnmf.topics import plsi_probabilities
    >>> W = [[1.0, 1.0], [2.0, 0.0]]
    >>> components = [[1.0, 0.0, 0.0], [0.0, 1.0, 2.0]]
    >>> mixture = plsi_probabilities(W, components)
    >>> mixture.component_given_sample.tolist()
    [[0.25, 0.75], [1.0, 0.0]]
    >>> mixture.component.tolist()
    [0.5, 0.5]
    """
    H = checked_components(components)
    representation = checked_representation(W, H.shape[0]).astype(np.float64, copy=False)
    sizes = _near_one(sums(H, axis=1))
    is_dense = isinstance(representation, np.ndarray)
    weighted = representation * sizes if is_dense else representation @ sp.diags_array(sizes)
    return Probabilities(
        feature_given_component=rows_scaled_to_one(H),
        component_given_sample=rows_scaled_to_one(weighted),
        component=scaled_to_one(sums(representation, axis=0) * sizes),
        sample=scaled_to_one(sums(weighted, axis=1)),
    )


def component_shares(components: Any, W: Any = None) -> FloatArray:
    """Share of each component in the total mass, P(z). The shares add up to 1.

    The mass of component k is Σ_ij w_ik h_jk = (Σ_i w_ik)(Σ_j h_jk). Without W, the first sum is
    taken as 1, which is right only if all columns of W have the same sum.

    Parameters
    ----------
    components : array-like or sparse matrix of shape (n_components, n_features)
        Nonnegative components.
    W : array-like or sparse matrix of shape (n_samples, n_components), optional
        Representation of the samples.

    Returns
    -------
    shares : ndarray of shape (n_components,)
        Shares in the order of the components; all 0 if there is no mass.

    Examples
    --------
    >>> from klnmf.topics import component_shares
    >>> component_shares([[1.0, 2.0], [0.5, 0.5]], W=[[1.0, 0.0], [0.0, 1.0]]).tolist()
    [0.75, 0.25]
    """
    H = checked_components(components)
    mass = _near_one(sums(H, axis=1))
    if W is not None:
        mass = mass * sums(checked_representation(W, mass.size), axis=0)
    return scaled_to_one(mass)


def _near_one(values: FloatArray) -> FloatArray:
    """Multiply values by a power of 2 so that the largest is in [½, 1): exact, and no overflow."""
    _, exponent = np.frexp(values.max(initial=0.0))
    return np.ldexp(values, -int(exponent))
