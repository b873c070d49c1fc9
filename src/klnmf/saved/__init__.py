"""Files: fitted models and the checkpoints of running fits, in one open format (docs/format.md)."""

from __future__ import annotations

from klnmf.saved.container import SavedFileError

__all__ = ["SavedFileError"]
