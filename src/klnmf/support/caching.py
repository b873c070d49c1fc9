"""Properties that are computed once."""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or sys.version_info >= (3, 12):
    cached_property = functools.cached_property
else:

    class cached_property(functools.cached_property):  # noqa: N801, it is used as `property` is
        """``functools.cached_property`` without the lock that it has before Python 3.12.

        All objects of a class share that lock. Fits in several threads would wait for each other,
        and a process forked while another thread holds it would wait forever.
        """

        def __get__(self, instance: Any, owner: Any = None) -> Any:
            """Compute the value and store it where Python finds it from now on."""
            if instance is None:
                return self
            value = instance.__dict__[self.attrname] = self.func(instance)
            return value
