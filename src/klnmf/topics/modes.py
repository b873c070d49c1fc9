"""Components of a fitted `klnmf.PoissonCP`: the labels that lead them in each mode."""

from typing import Any, NamedTuple

import numpy as np

from klnmf.data.events import rank_of
from klnmf.data.sparse_tensor import is_rising
from klnmf.support.array_types import FloatArray
from klnmf.support.descriptions import described
from klnmf.support.printable_text import printable
from klnmf.topics.checks import Names, checked_names, dense, scaled_to_one
from klnmf.topics.features import (
    LONGEST_TITLE,
    RANKING,
    Ranking,
    lines_of,
    name_components,
    top_features,
)

# A mode of more numbers than this is taken to hold ids, such as those of customers.
MOST_NUMBERS = 200
_FEWEST_POINTS = 3
_BLOCKS = "▁▂▃▄▅▆▇█"
_MOST_BLOCKS = 60
_LONGEST_BESIDE = 24  # course with labels beside it; those of a longer one go below


class Mode(NamedTuple):
    """One mode of a fitted model."""

    name: str
    labels: list[str]
    shares: FloatArray  # (n_components, n_labels): rows add up to 1
    is_line: bool  # whether its labels are points of time, or numbers, to be drawn as a line
    at: FloatArray  # where they stand on an axis


def modes_of(model: Any) -> list[Mode]:
    """Return the modes of a fitted model.

    Those of rising dates and, but for the first mode, of a few rising numbers are drawn as lines.
    """
    if not hasattr(model, "factors_") or not hasattr(model, "mode_names_"):
        raise TypeError(f"model must be a fitted PoissonCP; got {described(model)}.")
    found = []
    for number, (name, labels) in enumerate(zip(model.mode_names_, model.labels_, strict=True)):
        shares = dense(model.factors_[number]).T.astype(np.float64)
        texts = checked_names(labels, shares.shape[1], name)
        found.append(Mode(name, texts, shares, is_line(labels, number), _places(texts)))
    return found


def sizes_of(model: Any) -> FloatArray:
    """Share of each component in the expected counts."""
    return scaled_to_one(np.asarray(model.weights_, dtype=np.float64))


def leading_labels(
    model: Any, mode: Mode, n_top: int, by: Ranking = RANKING
) -> list[list[tuple[str, float]]]:
    """Return the top labels of each component in a mode, with scores, as `top_features` does."""
    return top_features(mode.shares, mode.labels, n_top, by, W=sizes_of(model)[np.newaxis])


def names_by_labels(model: Any) -> list[str]:
    """Name components by their top labels, all different.

    Labels of the first mode (who) and of times name them only if there are no others (what).
    """
    modes = modes_of(model)
    named = [mode for mode in modes[1:] if not mode.is_line] or modes[:1]
    labels = [label for mode in named for label in mode.labels]
    return name_components(np.hstack([mode.shares for mode in named]), labels)


def format_components(
    model: Any,
    n_top: int = 10,
    by: Ranking = RANKING,
    *,
    component_names: Names | None = None,
) -> str:
    """Return a table of the components of a tensor as text, largest share of the counts first.

    Of modes of dates, or of up to 200 rising numbers, it shows the course as small bars, and where
    the component has its largest shares.

    Parameters
    ----------
    model : PoissonCP
        A fitted model.
    n_top, by, component_names
        As in `format_topics`, for the labels of each mode.

    Returns
    -------
    table : str
        Lines separated by newlines, with a heading.

    Examples
    --------
    >>> from klnmf import PoissonCP, SparseTensor
    >>> from klnmf.topics import format_components
    >>> sales = {"who": ["Ann", "Bo", "Cy"], "what": ["tea", "tea", "ink"], "n": [3, 3, 2]}
    >>> X = SparseTensor.from_events(sales, ["who", "what"], "n")
    >>> print(format_components(PoissonCP(2, random_state=0).fit(X)))
    component  share  mode  top labels
            0  75.0%  who   Ann, Bo
                      what  tea
            1  25.0%  who   Cy
                      what  ink
    """
    modes, sizes = modes_of(model), sizes_of(model)
    tops = [leading_labels(model, m, n_top, "weight" if m.is_line else by) for m in modes]
    titles = None
    if component_names is not None:
        titles = checked_names(component_names, len(sizes), "component")
    wide = max(len("mode"), *(len(printable(mode.name)) for mode in modes))
    lines = [f"component  share  {'mode':<{wide}}  top labels"]
    for k in np.argsort(-sizes, kind="stable"):
        start = f"{k:>9} {sizes[k]:>6.1%}  "
        if titles is not None:
            lines.append(f"{start}{printable(titles[k])[:LONGEST_TITLE]}")
            start = " " * len(start)
        for mode, top in zip(modes, tops, strict=True):
            start += f"{printable(mode.name):<{wide}}  "
            if mode.is_line:
                course = f"{_course(mode.shares[k])} "
                if len(course) > _LONGEST_BESIDE:
                    lines.append(f"{start}{course}".rstrip())
                    start, course = " " * len(start), ""
                start += f"{course}most in "
            lines += lines_of(start, top[k])
            start = " " * len("component  share  ")
    return "\n".join(lines)


def is_line(labels: Any, number: int) -> bool:
    """Whether these labels of a mode, None if it has none, are drawn as a line."""
    if labels is None or len(labels) < _FEWEST_POINTS:
        return False
    if not is_rising(np.array(labels, dtype=object)):
        return False
    are_dates = rank_of(labels) is str
    return are_dates or (number > 0 and len(labels) <= MOST_NUMBERS)


def _places(labels: list[str]) -> FloatArray:
    """Return where labels stand on an axis: days, numbers, or one after the other."""
    try:
        if rank_of(labels) is str:
            return np.array([text[:16] for text in labels], "M8[m]").astype(np.float64) / 1440
        return np.array(labels, dtype=np.float64)
    except ValueError:
        return np.arange(len(labels), dtype=np.float64)


def _course(shares: FloatArray) -> str:
    """Shares over a mode as a line of small bars.

    >>> _course(np.array([0.0, 0.1, 0.6, 0.3]))
    '▁▂█▅'
    """
    parts = np.array_split(shares, min(len(shares), _MOST_BLOCKS))
    means = np.array([part.mean() for part in parts])
    heights = np.rint(means / (means.max() or 1.0) * (len(_BLOCKS) - 1)).astype(int)
    return "".join(_BLOCKS[height] for height in heights)
