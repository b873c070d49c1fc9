"""What the page shows about a model of a tensor, with bounds on its size."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import xlogy

from klnmf.data.sparse_tensor import SparseTensor
from klnmf.report.gathering import LONGEST_NAME, LONGEST_WORD, leading_words, words_of_page
from klnmf.report.vocabulary import Terms, plain_text
from klnmf.support.array_types import FloatArray
from klnmf.support.descriptions import described, sizes_in_words
from klnmf.topics import Probabilities, intertopic_coordinates
from klnmf.topics.checks import checked_names
from klnmf.topics.modes import Mode, modes_of, names_by_labels, sizes_of

MOST_POINTS = 300  # of a line; more are summed
TERMS = Terms("slice", "label", "component")


@dataclass(frozen=True)
class DescribedTensor:
    """A model of a tensor with the counts that it was fitted to, checked against each other."""

    model: Any
    modes: list[Mode]
    X: SparseTensor | None
    component_names: list[str]
    terms: Terms = TERMS

    @property
    def n_components(self) -> int:
        """Number of components."""
        return len(self.component_names)

    @property
    def size(self) -> str:
        """Names and sizes of the modes."""
        return sizes_in_words(self.model.shape_, [plain_text(mode.name) for mode in self.modes])

    def divergence_of_one_component(self) -> float:
        """KL divergence of X from the product of its margins, the best single component.

        It is 0 if that is not known: without X, and with weights.
        """
        if self.X is None or any(each is not None for each in self.model.mode_weights_):
            return 0.0
        total, values = self.X.total, self.X.values.astype(np.float64)
        margins = (self.X.margin(mode) for mode in range(self.X.ndim))
        of_margins = sum(float(xlogy(margin, margin).sum()) for margin in margins)
        of_product = of_margins - (self.X.ndim - 1) * float(xlogy(total, total))
        return float(xlogy(values, values).sum()) - of_product


def checked_tensor(model: Any, X: Any, names: Any, refused: dict[str, Any]) -> DescribedTensor:
    """Return a model of a tensor with its X, if they fit together; refuse what is for matrices."""
    for name, value in refused.items():
        if value is not None:
            raise TypeError(
                f"{name} is for reports on matrices: leave it out. Labels of a PoissonCP are those "
                "of the SparseTensor that it was fitted to."
            )
    modes = modes_of(model)
    if X is not None and not isinstance(X, SparseTensor):
        raise TypeError(f"X must be the SparseTensor of the fit; got {described(X)}.")
    if X is not None and X.shape != model.shape_:
        raise ValueError(f"X must have shape {model.shape_}, as the model does; got {X.shape}.")
    if X is not None and not model.constraint_names_:  # weights are in the sums of a fit
        sums: Any = model._checked(X, {}).data
        if model.data_checksum_ not in (None, sums.sums_checksum):
            raise ValueError(
                f"X ({X.nnz:,} nonzeros, total {X.total:,.6g}) is not the data that the model was "
                "fitted to, which the report describes. Pass that, or leave X out."
            )
    given = [""] * len(model.weights_)
    if names is not None:
        given = checked_names(names, len(given), "component")
    by_labels = names_by_labels(model)
    shown = [name if name.strip() else by_labels[k] for k, name in enumerate(given)]
    return DescribedTensor(model, modes, X, [plain_text(name, LONGEST_NAME) for name in shown])


def tensor_payload(of: DescribedTensor, rank_selection: Any = None) -> dict[str, Any]:
    """Return what the scripts of the page draw."""
    sizes, modes = sizes_of(of.model), of.modes
    n_words = min(30, max(10, 2000 // len(sizes)))
    barred = [mode for mode in modes if not mode.is_line]
    starts = np.cumsum([0, *(len(mode.labels) for mode in barred)])
    kept = [
        [start + places for places in leading_words(mode.shares, n_words)]
        for start, mode in zip(starts, barred, strict=False)
    ]
    # Labels of all modes one after the other, each with its share of a component within its mode.
    shares = np.hstack([np.zeros((len(sizes), 0)), *(mode.shares for mode in barred)])
    mixture = Probabilities(shares, None, sizes, np.ones(0))
    labels = (label for mode in barred for label in mode.labels)
    index, listed, words = words_of_page(mixture, [p for places in kept for p in places], labels)
    numbers = [number for number, mode in enumerate(modes) if not mode.is_line]
    positions = np.nan_to_num(intertopic_coordinates(np.hstack([mode.shares for mode in modes])))
    courses = [_course(mode, sizes) if mode.is_line else None for mode in modes]

    def part(k: int, number: int) -> dict[str, Any]:
        course = courses[number]
        if course is not None:
            return {"course": course["shares"][k]}
        return words(k, kept[numbers.index(number)][k])

    return {
        "terms": of.terms._asdict(),
        **index,
        "word_modes": [numbers[np.searchsorted(starts, j, side="right") - 1] for j in listed],
        "modes": [
            {"name": plain_text(mode.name, LONGEST_NAME), "is_line": mode.is_line}
            | {key: part for key, part in (course or {}).items() if key != "shares"}
            for mode, course in zip(modes, courses, strict=True)
        ],
        "bars": numbers,
        "topics": [
            {
                "id": int(k),
                "name": of.component_names[k],
                "size": sizes[k],
                "coherence": np.nan,
                "position": positions[k],
                "modes": [part(int(k), number) for number in range(len(modes))],
                "typical": [],
            }
            for k in np.argsort(-sizes, kind="stable")
        ],
        "samples": {"names": [], "labels": [], "totals": [], "shares": [], "excerpts": {}},
        "columns": [],
        "most_words": n_words,
        "rank": None if rank_selection is None else rank_selection.table(),
    }


def tensor_rows(of: DescribedTensor) -> list[tuple[str, float | str]]:
    """Sizes of the modes and, if X was given, its counts."""
    rows: list[tuple[str, float | str]] = [
        (f"Labels of {plain_text(mode.name)}", len(mode.labels)) for mode in of.modes
    ]
    X = of.X
    if X is None:
        return [*rows, ("Counts", "not included in this report")]
    return [
        *rows,
        ("Nonzeros", X.nnz),
        ("Cells", float(math.prod(X.shape))),
        ("Sum of all counts", X.total),
        ("Counts per nonzero cell (median)", float(np.median(X.values)) if X.nnz else 0),
    ]


def _course(mode: Mode, sizes: FloatArray) -> dict[str, Any]:
    """Shares of a mode that is drawn as a line, of all components and of all counts."""
    step = -(-len(mode.labels) // MOST_POINTS)
    starts = np.arange(0, len(mode.labels), step)
    shares = np.add.reduceat(mode.shares, starts, axis=1)
    return {
        "labels": [plain_text(mode.labels[start], LONGEST_WORD) for start in starts],
        "at": mode.at[starts],
        "shares": shares,
        "all": sizes @ shares,
        "step": step,
    }
