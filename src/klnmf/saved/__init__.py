"""Files for fitted models and checkpoints, in one open format (docs/format.md)."""

from klnmf.saved.container import SavedFileError

__all__ = ["SavedFileError"]
