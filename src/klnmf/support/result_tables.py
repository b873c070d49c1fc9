"""Results that show themselves as a table: as text when printed, as HTML in notebooks."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

# Grey and green that are visible on light and on dark ground; text keeps the notebook's colour.
_LINE = "border-bottom: 1px solid rgba(128, 128, 128, 0.35)"
_MARKED = "background: rgba(46, 160, 67, 0.18)"
_GOOD, _BAD = "rgba(46, 160, 67, 0.25)", "rgba(219, 124, 38, 0.35)"


@dataclass(frozen=True)
class Column:
    """A column of a table: its title and its cells, on the right unless they are words."""

    title: str
    cells: Sequence[str]
    is_text: bool = False


@dataclass(frozen=True)
class ResultTable:
    """A table with a heading, a row that stands out, and notes below it."""

    columns: Sequence[Column]
    notes: Sequence[str] = ()
    heading: str = ""
    marked: int | None = None

    def text(self) -> str:
        """Return the table for a terminal.

        >>> table = ResultTable(
        ...     [Column("rank", ["2", "10"]), Column("words", ["sea", "corn"], True)]
        ... )
        >>> print(table.text())
        rank  words
           2  sea
          10  corn
        """
        lines = [self.heading] if self.heading else []
        padded = [_padded(column) for column in self.columns]
        lines += ["  ".join(row).rstrip() for row in zip(*padded, strict=True)]
        return "\n".join([*lines, *([""] if self.notes else []), *self.notes])

    def html(self) -> str:
        """Return the table for a notebook."""
        titles = "".join(
            f'<th style="{_style(column, _LINE)}">{escape(column.title)}</th>'
            for column in self.columns
        )
        rows = "".join(
            f'<tr style="{_MARKED if at == self.marked else ""}">'
            + "".join(
                f'<td style="{_style(column)}">{escape(column.cells[at])}</td>'
                for column in self.columns
            )
            + "</tr>"
            for at in range(len(self.columns[0].cells))
        )
        heading = f"<p>{escape(self.heading)}</p>" if self.heading else ""
        notes = "".join(f"<p>{escape(note)}</p>" for note in self.notes)
        return (
            f'<div class="klnmf-result">{heading}<table style="border-collapse: collapse">'
            f"<thead><tr>{titles}</tr></thead><tbody>{rows}</tbody></table>{notes}</div>"
        )


class ShownAsTable(ABC):
    """Gives a result its ``print``, ``repr`` and notebook form from one table."""

    @abstractmethod
    def _shown(self) -> ResultTable:
        """Return the table."""

    def __str__(self) -> str:
        """Return the table as text."""
        return self._shown().text()

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return self._shown().html()


class ShownBelowDiagram(ABC):
    """Shows a fitted estimator of scikit-learn in notebooks: its diagram, and what came of it."""

    @abstractmethod
    def _fitted_in_html(self) -> str:
        """Return what came of the fit; nothing before it."""

    def _repr_html_inner(self) -> str:
        inner: str = super()._repr_html_inner()  # type: ignore[misc]
        return inner + self._fitted_in_html()

    def _repr_mimebundle_(self, **options: Any) -> dict[str, str]:
        shown: dict[str, str] = super()._repr_mimebundle_(**options)  # type: ignore[misc]
        if "text/html" in shown:
            shown["text/html"] = self._repr_html_inner()
        return shown


def badge(text: str, *, is_good: bool) -> str:
    """Return a small label in HTML."""
    ground = _GOOD if is_good else _BAD
    style = f"background: {ground}; border-radius: 1em; padding: 0.1em 0.7em"
    return f'<span style="{style}">{"✓" if is_good else "!"} {escape(text)}</span>'


def _padded(column: Column) -> list[str]:
    cells = [column.title, *column.cells]
    width = max(map(len, cells))
    return [cell.ljust(width) if column.is_text else cell.rjust(width) for cell in cells]


def _style(column: Column, *others: str) -> str:
    align = "left" if column.is_text else "right"
    return "; ".join([f"text-align: {align}", "padding: 0.15em 0.7em", *others])
