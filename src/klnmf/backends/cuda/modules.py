"""The CUDA sources, compiled for a class of ranks and the device that is there."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

SOURCES = ("layout", "row_terms", "first_order", "second_order", "step", "evaluation")
MOST_COMPONENTS = 512
# Components in a block: more do not fit into the registers of a warp with their second derivatives.
MOST_IN_BLOCK = 56
# Warps in a block of threads, and blocks on a multiprocessor, by eights of components: as many as
# leave each thread enough registers for its part of the second derivatives.
WARPS_AND_BLOCKS = {1: (4, 8), 2: (4, 6), 3: (4, 5), 4: (4, 4), 5: (1, 16), 6: (1, 13), 7: (1, 12)}
# A factor beyond this many numbers has offsets that need 64 bits.
NARROW_OFFSETS = 2**32


@dataclass(frozen=True)
class RankClass:
    """Ranks that share their kernels: how a factor row is laid out."""

    eights: int  # of components in a block
    blocks: int
    wide_offsets: bool = False

    @classmethod
    def of(cls, n_components: int, n_rows: int) -> RankClass:
        """Return the class of a rank, for factors of at most so many rows.

        >>> RankClass.of(50, 1000).stride, RankClass.of(57, 1000).stride
        (56, 112)
        """
        blocks = -(-n_components // MOST_IN_BLOCK)
        eights = -(-n_components // 8) if blocks == 1 else MOST_IN_BLOCK // 8
        return cls(eights, blocks, n_rows * 8 * eights * blocks >= NARROW_OFFSETS)

    @property
    def stride(self) -> int:
        """Numbers from one row of a factor to the next."""
        return 8 * self.eights * self.blocks

    @property
    def warps(self) -> int:
        """Warps in a block of threads."""
        return WARPS_AND_BLOCKS[self.eights][0]

    @property
    def tiles(self) -> int:
        """Tiles of 16 × 8 in the upper half of the second derivatives."""
        return sum(self.eights - 2 * m for m in range((self.eights + 1) // 2))

    @property
    def sums_part(self) -> int:
        """Numbers that a piece of a row writes in a first-order pass."""
        return self.stride + 8

    @property
    def matrix_part(self) -> int:
        """The same in a second-order pass."""
        return (4 * self.tiles + self.eights) * 32 + 8

    @property
    def step_shared(self) -> int:
        """Floats of shared memory of a warp in a second-order pass; see kernels/step.cu."""
        width = 8 * self.eights
        model = width**2 if width <= 32 else max(width**2 // 2, 1024)
        return 3 * self.stride + model + (3 if self.blocks == 1 else 7) * width

    @property
    def options(self) -> tuple[str, ...]:
        """What the compiler is told."""
        warps, live = WARPS_AND_BLOCKS[self.eights]
        settings = {
            "NT": self.eights,
            "NB": self.blocks,
            "WPB": warps,
            "LIVE": live,
            "OFFSET": "long long" if self.wide_offsets else "unsigned",
        }
        return ("-std=c++17", *(f"-D{name}={value}" for name, value in settings.items()))


@cache
def source() -> str:
    """All sources as one text; they need no header."""
    folder = files("klnmf.backends.cuda") / "kernels"
    return "\n".join((folder / f"{name}.cu").read_text(encoding="utf-8") for name in SOURCES)


@cache
def module(rank_class: RankClass, device: int) -> Any:
    """Kernels for a class of ranks; CuPy keeps the binary on disk for the next process."""
    import cupy as cp

    with cp.cuda.Device(device):
        return cp.RawModule(code=source(), options=rank_class.options)
