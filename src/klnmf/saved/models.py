"""Model files: what `KLNMF.save` writes and `KLNMF.load` reads, and what all files share."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils.validation import check_is_fitted

from klnmf.constraints.checks import checked_pattern
from klnmf.constraints.names import in_feature_order, names_seen_in_fit
from klnmf.data.matrix_checks import checked_matrix
from klnmf.data.validation import checked_input
from klnmf.saved import arrays as packed
from klnmf.saved.columns import pack_columns, unpack_columns
from klnmf.saved.container import Container, SavedFileError, read_container
from klnmf.saved.fields import Fields, number_to_json, shortened
from klnmf.saved.parameters import parameters_from_json, parameters_to_json
from klnmf.support.array_types import Array
from klnmf.support.descriptions import described, listed

# With other sums, products with valid data (validation.VALUE_RANGE) may not be finite.
COMPONENT_SUMS = {"float32": (1e-20, 1e20), "float64": (1e-150, 1e150)}


@dataclass(frozen=True, repr=False)
class SavedModel:
    """The content of a model file; it also has the methods and attributes of the model.

    Attributes
    ----------
    model : KLNMF
        The fitted estimator.
    W : ndarray or CSR array of shape (n_samples, n_components), or None
        W, if it was saved.
    sample_names, feature_names : ndarray of str, or None
        Names, if they were saved or, for the features, seen in ``fit``.
    sample_metadata : dict of list
        Columns with a value for each sample, if they were saved.
    metadata : dict
        The ``metadata`` passed to ``save``.
    not_stored : list of str
        Parameters that were set but not saved; the model has their defaults.
    klnmf_version : str
        Version of klnmf that wrote the file.
    """

    model: Any
    metadata: dict[str, Any]
    not_stored: list[str]
    klnmf_version: str
    W: Any = None
    sample_names: Array | None = None
    feature_names: Array | None = None
    sample_metadata: dict[str, list[Any]] = field(default_factory=dict)

    @property
    def component_names(self) -> list[str] | None:
        """Names of the components, if there are valid ones in the metadata."""
        names, n_components = self.metadata.get("component_names"), self.model.n_components_
        if not isinstance(names, list) or len(names) != n_components:
            return None
        if not all(isinstance(name, str) for name in names):
            return None
        # JSON can hold half a surrogate pair, which nothing can print.
        return [name.encode("utf-8", "replace").decode("utf-8") for name in names]

    def __repr__(self) -> str:
        """Name what the file holds; names and metadata have an entry for each sample."""
        held = [] if self.W is None else [f"W of shape {self.W.shape}"]
        for name in ("sample_names", "feature_names"):
            names = getattr(self, name)
            held += [] if names is None else [f"{len(names):,} {name}"]
        held += [f"sample_metadata {', '.join(self.sample_metadata)}"] * bool(self.sample_metadata)
        return f"SavedModel({self.model!r}{', with ' if held else ''}{', '.join(held)})"

    def __getattr__(self, name: str) -> Any:
        """Return an attribute or a method of the model, as in ``load_model(path).transform(X)``."""
        if name.startswith("__") or name == "model":  # asked for by copy and pickle
            raise AttributeError(name)
        return getattr(self.model, name)


# ---- writing -------------------------------------------------------------------------------------


def packed_model(
    model: Any,
    W: Any,
    sample_names: Sequence[str] | None,
    feature_names: Sequence[str] | None,
    sample_metadata: Mapping[str, Sequence[Any]] | None,
    metadata: dict[str, Any] | None,
) -> Container:
    """Return the content of the file of a model; the arguments are those of ``KLNMF.save``."""
    check_is_fitted(model, "components_")
    arrays: dict[str, Array] = {}
    components = checked_matrix(model.components_, "components_")
    values = components.data if sp.issparse(components) else components
    if not packed.is_factor(values):
        raise ValueError("components_ has entries that are negative or not finite.")
    content = packed_fit(model, arrays, metadata)
    content["fitted"]["n_features_in_"] = int(model.n_features_in_)
    content["components"] = packed.pack_matrix(arrays, "components", components)
    seen = names_seen_in_fit(model)
    if model.feature_weight_ is not None:
        arrays["feature_weight"] = np.asarray(model.feature_weight_, dtype=np.float64)
    zeros = in_feature_order(model.zero_components, "zero_components", seen)
    zeros = checked_pattern(zeros, "zero_components", components.shape)
    if zeros is not None:
        zeros = zeros.astype(np.float32)
        content["zero_components"] = packed.pack_matrix(arrays, "zero_components", zeros)
    feature_names = seen if feature_names is None else feature_names
    if feature_names is not None:
        names = _checked_names(feature_names, int(model.n_features_in_), "feature_names")
        if seen is not None and names != list(seen):
            raise ValueError("feature_names must be those that were seen in fit, or None.")
        packed.pack_names(arrays, "feature_names", names)
        content["feature_names"] = {"were_seen_in_fit": seen is not None}
    samples: dict[str, Any] = {}
    if W is not None:
        W = _checked_samples(W, components.shape[0])
        samples = {"n_samples": int(W.shape[0]), "W": packed.pack_matrix(arrays, "W", W)}
    if sample_names is not None:
        sample_names = _checked_names(sample_names, samples.get("n_samples"), "sample_names")
        packed.pack_names(arrays, "sample_names", sample_names)
        samples |= {"n_samples": len(sample_names), "have_names": True}
    if sample_metadata is not None and not isinstance(sample_metadata, Mapping):
        raise TypeError(f"sample_metadata must be a dict; got {described(sample_metadata)}.")
    if sample_metadata:
        lengths = {str(name): len(values) for name, values in sample_metadata.items()}
        n_samples = samples.setdefault("n_samples", next(iter(lengths.values())))
        for name, length in lengths.items():
            if length != n_samples:
                raise ValueError(
                    f"sample_metadata[{name!r}] has {length} values for {n_samples} samples."
                )
        samples["metadata"] = pack_columns(arrays, sample_metadata)
    if samples:
        content["samples"] = samples
    return Container("model", content, arrays)


def packed_fit(model: Any, arrays: dict[str, Array], metadata: Any) -> dict[str, Any]:
    """Return what the files of all estimators have: parameters, figures and history of the fit."""
    parameters, not_stored = parameters_to_json(model.get_params(deep=False))
    fitted: dict[str, Any] = {
        "n_components_": int(model.n_components_),
        "n_iter_": int(model.n_iter_),
        "divergence_": number_to_json(float(model.divergence_)),
        "optimality_gap_": number_to_json(float(model.optimality_gap_)),
        "kkt_residual_": number_to_json(float(model.kkt_residual_)),
        "converged_": bool(model.converged_),
    }
    if model.constraint_names_:
        fitted["known_names_"] = list(model.constraint_names_)
    if model.n_fixed_W_:
        fitted["n_fixed_W_"] = int(model.n_fixed_W_)
    if model.data_checksum_ is not None:
        fitted["data_checksum_"] = int(model.data_checksum_)
    if model.W_sums_ is not None:
        arrays["W_sums"] = np.asarray(model.W_sums_, dtype=np.float64)
    return {
        "estimator": type(model).__name__,
        "parameters": parameters,
        "not_stored": not_stored,
        "fitted": fitted,
        "history": packed.pack_history(arrays, model.history_),
        "metadata": _checked_metadata({} if metadata is None else metadata),
    }


def _checked_metadata(metadata: Any) -> dict[str, Any]:
    try:
        copy = json.loads(json.dumps(metadata, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"metadata cannot be written as JSON: {error}.") from error
    if not isinstance(metadata, dict) or copy != metadata:
        raise ValueError(
            "metadata must be a dict with strings as keys and, as values, strings, numbers, True, "
            f"False, None, lists or such dicts; got {shortened(metadata)}."
        )
    return metadata


def _checked_names(names: Sequence[str], expected: int | None, what: str) -> list[str]:
    strings = [str(name) for name in listed(names, what)]
    if expected is not None and len(strings) != expected:
        raise ValueError(f"{what} has {len(strings)} names for {expected}.")
    return strings


def _checked_samples(W: Any, n_components: int) -> Any:
    W = checked_input(W, "W", dtype=[np.float64, np.float32], ensure_all_finite=True)
    values = W.data if sp.issparse(W) else W
    if W.shape[1] != n_components or not packed.is_factor(values):
        raise ValueError(
            f"W must be nonnegative, of shape (n_samples, {n_components}), as transform returns "
            f"it; got shape {W.shape}, smallest entry {values.min(initial=0):g}."
        )
    return W


# ---- reading -------------------------------------------------------------------------------------


def read_model(path: str | os.PathLike[str], *estimators: Any) -> SavedModel:
    """Read the file of a model of one of these classes, or raise a SavedFileError."""
    container = read_container(Path(path), "model")
    try:
        name = Fields(container.content, "content").take("estimator", str)
        known = {estimator.__name__: estimator for estimator in estimators}
        if name not in known:
            raise SavedFileError(f"it holds a {shortened(name)}, not a {' or '.join(known)}.")
        saved: SavedModel = known[name]._unpacked(container, known[name])
        return saved
    except (TypeError, ValueError) as error:
        raise SavedFileError(
            f"{path}, written by klnmf {container.klnmf_version}, cannot be read: {error}"
        ) from error


def unpacked_model(container: Container, estimator: Any) -> SavedModel:
    """Return the content of the file of a KLNMF."""
    content, arrays = Fields(container.content, "content"), container.arrays
    fitted = content.fields("fitted")
    shape = (fitted.whole("n_components_"), fitted.whole("n_features_in_"))
    components = packed.unpack_matrix(arrays, "components", content.fields("components"), shape)
    low, high = COMPONENT_SUMS[components.dtype.name]
    sums = np.asarray(components.sum(axis=1, dtype=np.float64)).ravel()
    if not ((sums == 0) | ((sums >= low) & (sums <= high))).all():
        raise SavedFileError(f"the sum of a component is neither 0 nor from {low:g} to {high:g}.")
    fit = unpacked_fit(content, arrays)
    if min(shape) < 1:
        raise SavedFileError(f"its components have the shape {shape}.")
    feature_names, seen = None, False
    if "feature_names" in content:
        feature_names = packed.unpack_names(arrays, "feature_names", shape[1])
        seen = content.fields("feature_names").take("were_seen_in_fit", bool)
    parameters = _parameters(content, arrays, components, estimator)
    # It may have been set after the fit, for the next one.
    n_components = parameters.pop("n_components", components.shape[0])
    names = feature_names if seen else None
    model = estimator.from_components(components, feature_names=names, **fit, **parameters)
    model.n_components = n_components
    model._validate_params()
    W, sample_names, columns = _unpack_samples(content, arrays, shape[0])
    return SavedModel(
        model=model,
        W=W,
        sample_names=sample_names,
        feature_names=feature_names,
        sample_metadata=columns,
        metadata=content.take("metadata", dict),
        not_stored=names_in(content, "not_stored"),
        klnmf_version=container.klnmf_version,
    )


def unpacked_fit(content: Fields, arrays: dict[str, Array]) -> dict[str, Any]:
    """Return what `packed_fit` stored of a fit, by the names of attributes without their ends."""
    fitted = content.fields("fitted")
    history = packed.unpack_history(arrays, content.members.get("history"))
    if len(history) != fitted.whole("n_iter_"):
        raise SavedFileError(
            f"{len(history)} records and n_iter_={fitted.whole('n_iter_')} do not fit together."
        )
    return {
        "divergence": fitted.number("divergence_"),
        "optimality_gap": fitted.number_if_stored("optimality_gap_"),
        "kkt_residual": fitted.number("kkt_residual_"),
        "converged": fitted.take("converged_", bool),
        "history": history,
        "constraint_names": names_in(fitted, "known_names_") if "known_names_" in fitted else (),
        "n_fixed_W": fitted.whole("n_fixed_W_") if "n_fixed_W_" in fitted else 0,
        # Files of older versions do not have these.
        "W_sums": packed.array_named(arrays, "W_sums", [np.float64], 1)
        if "W_sums" in arrays
        else None,
        "data_checksum": fitted.whole("data_checksum_") if "data_checksum_" in fitted else None,
    }


def names_in(fields: Fields, name: str) -> list[str]:
    """Return a list of texts."""
    names = fields.take(name, list)
    if not all(isinstance(each, str) for each in names):
        raise SavedFileError(f"{fields.name}.{name} must be strings, got {shortened(names)}.")
    return names


def plain_parameters(content: Fields, estimator: Any) -> dict[str, Any]:
    """Return the parameters that are no arrays."""
    parameters = parameters_from_json(content.fields("parameters"))
    unknown = set(parameters) - set(estimator().get_params(deep=False))
    if unknown:
        raise SavedFileError(
            f"it has parameters that this version does not have: {sorted(unknown)}. Install a "
            "newer klnmf."
        )
    return parameters


def _parameters(
    content: Fields, arrays: dict[str, Array], components: Any, estimator: Any
) -> dict[str, Any]:
    """Return the parameters, with the constraints on the features."""
    stored, parameters = content.fields("parameters"), plain_parameters(content, estimator)
    if isinstance(stored.members.get("fixed_components"), dict):
        n_fixed = stored.fields("fixed_components").whole("first_components")
        if not 0 < n_fixed <= components.shape[0]:
            raise SavedFileError(f"{n_fixed} of {components.shape[0]} components cannot be fixed.")
        first = components[:n_fixed]
        parameters["fixed_components"] = first.toarray() if sp.issparse(first) else np.array(first)
    if "feature_weight" in arrays:
        name = "feature_weight"
        parameters[name] = packed.array_named(arrays, name, [np.float64], 1)
    if "zero_components" in content:
        about = content.fields("zero_components")
        zeros = packed.unpack_matrix(arrays, "zero_components", about, components.shape)
        parameters["zero_components"] = zeros != 0
    return parameters


def _unpack_samples(
    content: Fields, arrays: dict[str, Array], n_components: int
) -> tuple[Any, Array | None, dict[str, list[Any]]]:
    if "samples" not in content:
        return None, None, {}
    samples = content.fields("samples")
    n_samples = samples.whole("n_samples")
    W = names = None
    if "W" in samples:
        W = packed.unpack_matrix(arrays, "W", samples.fields("W"), (n_samples, n_components))
    if "have_names" in samples:
        names = packed.unpack_names(arrays, "sample_names", n_samples)
    columns = {}
    if "metadata" in samples:
        columns = unpack_columns(arrays, samples.take("metadata", list), n_samples)
    return W, names, columns
