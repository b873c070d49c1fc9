"""Matrices larger than memory: prepared once in a folder, then fitted from memory maps."""

from klnmf.data.on_disk.matrix import OnDiskMatrix, open_matrix
from klnmf.preparing.writing import prepare

__all__ = ["OnDiskMatrix", "open_matrix", "prepare"]
