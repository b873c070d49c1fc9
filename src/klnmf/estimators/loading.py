"""Everything that a model file holds, in one call."""

from __future__ import annotations

import os

from klnmf.estimators.kl_nmf import KLNMF
from klnmf.saved.models import SavedModel, read_model


def load_model(path: str | os.PathLike[str]) -> SavedModel:
    """Load a file that :meth:`KLNMF.save` wrote: the model, W, names and metadata.

    Parameters
    ----------
    path : str or path
        The file.

    Returns
    -------
    SavedModel
        With the attributes ``model``, ``W``, ``sample_names``, ``feature_names``, ``metadata``,
        ``not_stored`` and ``klnmf_version``.

    Raises
    ------
    klnmf.saved.SavedFileError
        If the file is damaged, from a newer version, or not a model. It is a ValueError.

    Examples
    --------
    >>> import os, tempfile
    >>> import klnmf
    >>> from klnmf.datasets import load_bible
    >>> bible = load_bible()
    >>> model = klnmf.KLNMF(5, random_state=0)
    >>> W = model.fit_transform(bible.data)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "bible.klnmf")
    ...     model.save(
    ...         path, W=W, sample_names=bible.sample_names, metadata={"text": "King James Bible"}
    ...     )
    ...     saved = klnmf.load_model(path)
    >>> saved.W.shape, saved.sample_names[0], saved.metadata["text"]
    ((1189, 5), 'Genesis 1', 'King James Bible')
    """
    return read_model(path, KLNMF)
