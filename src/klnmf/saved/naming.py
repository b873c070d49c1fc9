"""Names that are added to a model file after the fit."""

import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from klnmf.saved import arrays as packed
from klnmf.saved.container import read_container, write_container
from klnmf.support.array_types import Array

# The key of ``metadata`` under which model files keep the names of components.
COMPONENT_NAMES = "component_names"


def stored_component_names(metadata: dict[str, Any], n_components: int) -> list[str] | None:
    """Names of the components in the metadata of a model, which may be anything.

    >>> stored_component_names({"component_names": ["sea", "corn"]}, 2)
    ['sea', 'corn']
    """
    names = metadata.get(COMPONENT_NAMES)
    if not isinstance(names, list) or len(names) != n_components:
        return None
    if not all(isinstance(name, str) for name in names):
        return None
    # JSON can hold half a surrogate pair, which nothing can print.
    return [name.encode("utf-8", "replace").decode("utf-8") for name in names]


def add_names(
    path: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    feature_names: Sequence[str] | None = None,
    sample_names: Sequence[str] | None = None,
    component_names: Sequence[str] | None = None,
) -> None:
    """Write a model file again with names; all else stays as it is.

    ``output`` may be ``path``: it is replaced when the new file is complete. The file must be
    valid, and the numbers of names be right.
    """
    container = read_container(Path(path), "model")
    content = json.loads(json.dumps(container.content))
    arrays: dict[str, Array] = {
        name: array
        for name, array in container.arrays.items()
        if not (feature_names is not None and name.startswith("feature_names"))
        and not (sample_names is not None and name.startswith("sample_names"))
    }
    if feature_names is not None:
        packed.pack_names(arrays, "feature_names", list(feature_names))
        content["feature_names"] = {"were_seen_in_fit": False}
    if sample_names is not None:
        packed.pack_names(arrays, "sample_names", list(sample_names))
        samples = content.setdefault("samples", {"n_samples": len(sample_names)})
        samples["have_names"] = True
    if component_names is not None:
        content["metadata"][COMPONENT_NAMES] = list(component_names)
    write_container(Path(output), replace(container, content=content, arrays=arrays))
