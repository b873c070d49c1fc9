"""Matrices larger than memory: prepared once in a folder, then fitted from memory maps."""

from __future__ import annotations

from klnmf.on_disk.matrix import OnDiskMatrix, open_matrix
from klnmf.on_disk.preparing import prepare

__all__ = ["OnDiskMatrix", "open_matrix", "prepare"]
