"""Model files of tensors: what `PoissonCP.save` writes and `PoissonCP.load` reads."""

from typing import Any

import numpy as np

from klnmf.constraints.penalties import factor_name
from klnmf.saved import arrays as packed
from klnmf.saved.container import Container, SavedFileError
from klnmf.saved.fields import Fields
from klnmf.saved.models import (
    COMPONENT_SUMS,
    SavedModel,
    names_in,
    packed_fit,
    plain_parameters,
    unpacked_fit,
)
from klnmf.support.array_types import Array


def packed_tensor_model(model: Any, metadata: Any) -> Container:
    """Return the content of the file of a model; the arguments are those of ``PoissonCP.save``."""
    arrays: dict[str, Array] = {}
    content = packed_fit(model, arrays, metadata)
    content["shape"] = [int(size) for size in model.shape_]
    content["mode_names"] = list(model.mode_names_)
    content["factors"] = []
    arrays["factor_sums"] = np.asarray(model.factor_sums_, dtype=np.float64)
    arrays["weights"] = np.asarray(model.weights_, dtype=np.float64)
    for mode, factor in enumerate(model.factors_):
        content["factors"].append(packed.pack_matrix(arrays, factor_name(mode), factor))
    packed.pack_modes(arrays, model.labels_, model.mode_weights_)
    return Container("model", content, arrays)


def unpacked_tensor_model(container: Container, estimator: Any) -> SavedModel:
    """Return the content of the file of a model of a tensor."""
    content, arrays = Fields(container.content, "content"), container.arrays
    r = content.fields("fitted").whole("n_components_")
    stored, shape = content.take("factors", list), content.take("shape", list)
    names = names_in(content, "mode_names")
    is_shape = all(type(size) is int and size > 0 for size in shape)
    if not is_shape or not 2 <= len(shape) == len(stored) == len(names) or r < 1:
        raise SavedFileError(f"its shape {shape}, {len(stored)} factors and {names} do not agree.")
    model = estimator(**plain_parameters(content, estimator))
    model._validate_params()
    model.mode_names_ = tuple(names)
    model.factors_ = []
    for mode, (size, about) in enumerate(zip(shape, stored, strict=True)):
        fields = Fields(about, f"content.factors[{mode}]")
        model.factors_.append(packed.unpack_matrix(arrays, factor_name(mode), fields, (size, r)))
    model.labels_, weights = packed.unpack_modes(arrays, shape)
    model.mode_weights_ = list(weights)
    low, high = COMPONENT_SUMS[model.factors_[0].dtype.name]
    for name, sizes in (("factor_sums", (len(shape), r)), ("weights", (r,))):
        sums = packed.nonnegative(packed.shaped_array(arrays, name, sizes), name)
        if not ((sums == 0) | ((sums >= low) & (sums <= high))).all():
            raise SavedFileError(f"{name} are neither 0 nor from {low:g} to {high:g}.")
        setattr(model, f"{name}_", sums)
    fit = unpacked_fit(content, arrays)
    model._set_others(fit | {"n_iter": len(fit["history"])})
    model.n_components_ = r
    return SavedModel(
        model=model,
        sample_names=model.labels_[0],
        metadata=content.take("metadata", dict),
        not_stored=names_in(content, "not_stored"),
        klnmf_version=container.klnmf_version,
    )
