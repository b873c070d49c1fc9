"""Properties that are computed once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Self, TypeVar, overload

Value = TypeVar("Value")


class cached_property(Generic[Value]):  # noqa: N801, it is used as `property` is
    """Property that is computed when it is first asked for, and kept.

    As in functools, but without the lock that functools has before Python 3.12. Objects of one
    class share that lock: fits in several threads would wait for each other, and a process forked
    while another thread holds it would wait for ever.

    Examples
    --------
    >>> class Circle:
    ...     radius = 2
    ...
    ...     @cached_property
    ...     def diameter(self):
    ...         print("computed")
    ...         return 2 * self.radius
    >>> circle = Circle()
    >>> circle.diameter, circle.diameter
    computed
    (4, 4)
    """

    def __init__(self, compute: Callable[[Any], Value]) -> None:
        self.compute = compute
        self.__doc__ = compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> Self: ...

    @overload
    def __get__(self, instance: object, owner: type | None = None) -> Value: ...

    def __get__(self, instance: object | None, owner: type | None = None) -> Self | Value:
        if instance is None:
            return self
        value = self.compute(instance)
        # From now on Python finds the value here and does not ask this descriptor.
        instance.__dict__[self.name] = value
        return value
