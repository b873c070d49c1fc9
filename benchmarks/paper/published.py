"""Numbers printed in the paper."""

from __future__ import annotations

from typing import NamedTuple


class Published(NamedTuple):
    """One data set in the paper's tables; its V is our Xᵀ for the images, our X for the texts."""

    label: str
    shape: tuple[int, int]  # n × m, as printed
    nonzeros: int
    sparsity: float  # %
    zeros: dict[int, tuple[float, float]]  # Table 2: rank → % of (components, representation)
    memory: dict[str, float]  # Table 3: method → GB at r = 10


PUBLISHED = {
    "mnist_train": Published(
        "Digits",
        (784, 60_000),
        8_994_156,
        80.8798,
        {10: (74.3, 49.2), 20: (87.8, 49.7)},
        {"mu": 1.89, "ccd": 0.85, "srcd-paper": 1.76},
    ),
    "reuters21578": Published(
        "Reuters21578",
        (8_293, 18_933),
        389_455,
        99.7520,
        {10: (75.6, 71.6), 20: (84.2, 80.4)},
        {"mu": 5.88, "ccd": 2.46, "srcd-paper": 0.17},
    ),
    "tdt2_top30": Published(
        "TDT2",
        (9_394, 36_771),
        1_224_135,
        99.6456,
        {10: (68.5, 71.3), 20: (78.6, 81.1)},
        {"mu": 11.51, "ccd": 5.29, "srcd-paper": 0.30},
    ),
    "rcv1_4class": Published(
        "RCV1_4Class",
        (9_625, 29_992),
        730_879,
        99.7468,
        {10: (81.2, 74.0), 20: (88.4, 83.0)},
        {"mu": 9.73, "ccd": 4.43, "srcd-paper": 0.23},
    ),
}
