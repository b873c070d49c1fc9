"""Settings of the documentation: ``make docs`` writes docs/_build/html.

Nothing is downloaded, and any warning is an error. References to klnmf's own names must resolve;
those to other packages need not, because their inventories are on the network.
"""

from __future__ import annotations

import logging
import os
import sys
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Any

import matplotlib as mpl
from numpydoc.xref import DEFAULT_LINKS

mpl.use("Agg")
logging.getLogger("klnmf").setLevel(logging.ERROR)  # of the examples; Sphinx's own lines stay clear
sys.path.insert(0, str(Path(__file__).parent / "_extensions"))
os.environ["COLUMNS"] = "88"  # width of the command line's help

project = "klnmf"
author = "klnmf developers"
copyright = author
release = version = version_of("klnmf")

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "myst_parser",
    "sphinx_gallery.gen_gallery",
    "command_help",
    "executed",
    "mathml",
    "rooms",
]
exclude_patterns = ["_build", "_templates", "_extensions"]
templates_path = ["_templates"]
language = "en_GB"
highlight_language = "none"  # indented blocks of the Markdown pages are commands
default_role = "py:obj"  # `klnmf.topics.coherence` in a docstring is a link
nitpicky = True
nitpick_ignore_regex = [(r"py:.*", r"(?!klnmf\b).*")]
toc_object_entries_show_parents = "hide"

# ---- reference -----------------------------------------------------------------------------------

autosummary_generate = True
autodoc_default_options = {"members": True, "inherited-members": True, "member-order": "bysource"}
autodoc_typehints = "none"  # the docstrings say it in words
numpydoc_show_class_members = False  # autodoc shows them
numpydoc_xref_param_type = True
numpydoc_xref_ignore = "all"  # all words of a type but these
DEFAULT_LINKS.clear()  # words that would lead into the documentation of Python and NumPy
numpydoc_xref_aliases = {
    name.rpartition(".")[2]: name
    for name in (
        "klnmf.KLNMF",
        "klnmf.backends.Backend",
        "klnmf.evaluation.HeldOutScores",
        "klnmf.objective.Penalties",
        "klnmf.named_features.FeatureOverlap",
        "klnmf.readers.CountTable",
        "klnmf.readers.ReadError",
        "klnmf.saved.SavedFileError",
        "klnmf.saved.models.SavedModel",
        "klnmf.simulate.SimulatedCounts",
        "klnmf.solvers.Solver",
        "klnmf.topics.ComponentMatch",
        "klnmf.topics.MeanShares",
        "klnmf.topics.Probabilities",
    )
}

# ---- pages ---------------------------------------------------------------------------------------

myst_heading_anchors = 3
myst_enable_extensions = [
    "colon_fence",  # blocks of text in boxes: the doors of the first page
    "dollarmath",  # $x$, and $$ ... $$ (label) on lines of their own
]
numfig = True  # formulas have the number of their page, (4.1): {eq}`certificate`
html_math_renderer = "mathml"

# ---- gallery -------------------------------------------------------------------------------------

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "filename_pattern": r"plot_.*\.py$",
    "ignore_pattern": r"(demo|single_cells)\.py$",  # programs with options, for the terminal
    "within_subsection_order": "FileNameSortKey",
    "doc_module": ("klnmf",),
    "backreferences_dir": "gallery/backreferences",
    "download_all_examples": False,
    "show_signature": False,
    "write_computation_times": False,
    "capture_repr": (),
    "remove_config_comments": True,
    "image_srcset": ["2x"],
    "thumbnail_size": (480, 336),
    "matplotlib_animations": False,
}

# ---- HTML ----------------------------------------------------------------------------------------

html_theme = "furo"
html_title = f"klnmf {release}"
html_static_path = ["_static"]
html_css_files = ["klnmf.css"]
html_copy_source = False
html_show_sphinx = False
html_theme_options = {"navigation_with_keys": True}


def skip_what_others_document(
    app: Any, kind: str, name: str, member: Any, skip: bool, options: Any
) -> bool | None:
    """Leave out what a class inherits from scikit-learn or Python, and fields of named tuples."""
    if kind not in ("class", "exception"):
        return None
    function = getattr(member, "fget", None) or getattr(member, "__func__", member)
    return None if str(getattr(function, "__module__", "")).startswith("klnmf") else True


def setup(app: Any) -> None:
    """Connect what is above."""
    app.connect("autodoc-skip-member", skip_what_others_document)
