"""Values of a header: conversion to JSON, and checked access."""

from __future__ import annotations

import math
from typing import Any, TypeVar

from klnmf.saved.container import SavedFileError

Kind = TypeVar("Kind")

NOT_FINITE = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}


def number_to_json(value: Any) -> bool | int | float | dict[str, str]:
    """Return a number for JSON, with {"float": "inf"} for infinity, and likewise for NaN."""
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(float(value))}
    return value  # type: ignore[no-any-return]


def number_from_json(value: Any, name: str) -> bool | int | float:
    """Reverse ``number_to_json``, or raise a SavedFileError."""
    if isinstance(value, dict) and list(value) == ["float"] and value["float"] in list(NOT_FINITE):
        return NOT_FINITE[value["float"]]
    if not isinstance(value, bool | int | float):
        raise SavedFileError(f"{name} must be a number, got {shortened(value)}.")
    if isinstance(value, int) and abs(value) >= 2**63:
        raise SavedFileError(f"{name} must be below 2^63, got {shortened(value)}.")
    return value


def shortened(value: Any) -> str:
    """Return the repr of a value, shortened if it is long."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


class Fields:
    """An object of the header; its members are checked on access.

    Examples
    --------
    >>> Fields({"n_iter": 3}, "fitted").take("n_iter", int)
    3
    """

    def __init__(self, members: Any, name: str) -> None:
        if not isinstance(members, dict):
            raise SavedFileError(f"{name} must be an object, got {shortened(members)}.")
        self.members, self.name = members, name

    def __contains__(self, name: str) -> bool:
        return name in self.members

    def take(self, name: str, kind: type[Kind]) -> Kind:
        """Return a member of exactly this type, or raise a SavedFileError."""
        value = self.members.get(name)
        if type(value) is not kind:
            raise SavedFileError(
                f"{self.name}.{name} must be of type {kind.__name__}, got {shortened(value)}."
            )
        return value

    def whole(self, name: str) -> int:
        """Return a nonnegative 64-bit integer."""
        value = self.take(name, int)
        if not 0 <= value < 2**63:
            raise SavedFileError(
                f"{self.name}.{name} must be from 0 to 2^63 - 1, got {shortened(value)}."
            )
        return value

    def number(self, name: str) -> float:
        """Return a float, which may be infinite or NaN."""
        value = number_from_json(self.members.get(name), f"{self.name}.{name}")
        if type(value) is not float:
            raise SavedFileError(f"{self.name}.{name} must be a float, got {value!r}.")
        return value

    def number_if_stored(self, name: str) -> float:
        """Return a float; NaN if the file, of an older version, does not have it."""
        return self.number(name) if name in self else math.nan

    def fields(self, name: str) -> Fields:
        """Return a member that is an object."""
        return Fields(self.members.get(name), f"{self.name}.{name}")
