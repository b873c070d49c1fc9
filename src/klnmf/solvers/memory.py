"""What a solver keeps from one iteration to the next, in a form that a file can hold."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from klnmf.support.descriptions import described

Number = TypeVar("Number", bool, int, float)


@dataclass
class StoredMemory:
    """Named numbers and named arrays of the back-end.

    An array object with two names is stored once, and is one object again after reading. What comes
    from a file is checked where it is taken out.
    """

    numbers: dict[str, bool | int | float] = field(default_factory=dict)
    arrays: dict[str, Any] = field(default_factory=dict)

    def check_names(self, numbers: Sequence[str] = (), arrays: Sequence[str] = ()) -> None:
        """Raise a ValueError if there is anything but these; arrays may be missing."""
        if set(self.numbers) != set(numbers) or not set(self.arrays) <= set(arrays):
            found = sorted([*self.numbers, *self.arrays])
            raise ValueError(f"the solver's memory holds {found}, which is not what it stores")

    def number(self, name: str, kind: type[Number]) -> Number:
        """Return a number of exactly this type."""
        value = self.numbers[name]
        if type(value) is not kind:
            raise ValueError(
                f"the solver's {name} must be of type {kind.__name__}, got {described(value)}"
            )
        return value

    def array(self, name: str, shape: tuple[int, ...], dtype: Any) -> Any:
        """Return an array of exactly this shape and type."""
        array = self.arrays.get(name)
        if array is None or array.shape != shape or array.dtype != dtype:
            found = "nothing" if array is None else f"{array.dtype} of shape {array.shape}"
            raise ValueError(f"the solver's {name} must be {dtype} of shape {shape}, got {found}")
        return array
