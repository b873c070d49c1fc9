"""Packages that only parts of klnmf need."""

import importlib.metadata
from collections.abc import Iterable
from importlib import import_module
from importlib.util import find_spec
from typing import Any


def installed_version(package: str) -> str | None:
    """Version of a package that can be imported, "unknown" if it has none, None if it cannot be.

    A folder without code, which an uninstalled package may leave behind, can be imported too, and
    does not count.

    >>> installed_version("numpy") is None, installed_version("no_such_package") is None
    (False, True)
    """
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        return None
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def not_installed(extra: str, packages: Iterable[str]) -> str | None:
    """Return what to install where a package of an extra is missing; None if none is.

    Examples
    --------
    >>> not_installed("dask", ["numpy", "no_such_package"])
    'no_such_package is not installed: pip install "klnmf[dask]"'
    """
    missing = [package for package in packages if installed_version(package) is None]
    if not missing:
        return None
    are = "is" if len(missing) == 1 else "are"
    return f'{" and ".join(missing)} {are} not installed: pip install "klnmf[{extra}]"'


def require(module: str, for_what: str, extra: str = "files") -> Any:
    """Import an optional package, or say what to install."""
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(
            f"{for_what} needs the package {module.partition('.')[0]}, which is not installed. "
            f'Install it with: pip install "klnmf[{extra}]"'
        ) from error
