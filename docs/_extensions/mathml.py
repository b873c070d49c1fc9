"""Formulas as MathML, written when the pages are built: browsers need no script and no network.

A formula is a box of its own, which scrolls where it is wider than the page; its number stays. The
pages bring a font with brackets and roots of all sizes, since not every system has one.
"""

from __future__ import annotations

import re
from importlib.resources import files
from typing import Any

from docutils import nodes
from fontTools import subset
from latex2mathml.converter import convert
from sphinx.util import logging
from sphinx.util.math import get_node_equation_number

logger = logging.getLogger(__name__)
PRIME = "<mi>&#x02032;</mi>"
CORRECTIONS = {  # what browsers do not know, or set badly in this font
    "thinmathspace": "0.167em",
    "<mo>&#x0005E;</mo></mover>": "<mo>&#x002C6;</mo></mover>",  # hats
    PRIME: f'<mrow><mspace width="0.15em"/><mpadded voffset="-0.15em">{PRIME}</mpadded></mrow>',
}
FUNCTION = re.compile(r"<(mi|mo)>([A-Za-z]{2,})</\1>")
# Letters, Greek, operators and arrows, italic letters; the font has ten times as many.
CHARACTERS = "20-7E,A0-FF,370-3FF,2000-22FF,27E8-27F5,29F5,1D434-1D467,1D6A8-1D6E1,1D6FC-1D71B"


def spaced(name: re.Match[str]) -> str:
    """Return the name of a function with a little space before and after it, as in "n log x"."""
    before, after = name.string[: name.start()], name.string[name.end() :]
    left = "0em" if before.endswith(("<mrow>", "</mo>")) else "0.167em"
    right = "0em" if re.match(r"<mo[^>]*>(\(|&#x00028;)", after) else "0.167em"
    return f'<mo form="infix" lspace="{left}" rspace="{right}">{name[2]}</mo>'


def mathml(node: nodes.Element, display: str) -> str:
    """Convert the LaTeX of a node; commands that the converter does not know are warned of."""
    latex = node.astext().strip()
    result = FUNCTION.sub(spaced, convert(latex, display=display))
    for converted, wanted in CORRECTIONS.items():
        result = result.replace(converted, wanted)
    if re.search(r"\\|<mi>&</mi>", result):
        logger.warning("not all of this formula is understood: %s", latex, location=node)
    return result


def keep_signs(app: Any, tree: nodes.document, page: str) -> None:
    """Join commas and brackets to their formulas: browsers would begin a line with them."""
    for node in list(tree.findall(nodes.math)):
        around = node.parent.children
        at = node.parent.index(node)
        if at > 0 and isinstance(around[at - 1], nodes.Text) and around[at - 1].endswith("("):
            node["before"] = "("
            node.parent[at - 1] = nodes.Text(around[at - 1][:-1])  # by place: texts may be equal
        if at + 1 < len(around) and isinstance(around[at + 1], nodes.Text):
            signs = re.match(r"[,.;:)]*", around[at + 1])
            node["after"] = signs[0] if signs else ""
            node.parent[at + 1] = nodes.Text(around[at + 1][len(node["after"]) :])


def inline_formula(writer: Any, node: nodes.math) -> None:
    """Write a formula of the running text, and the signs that are on the same line."""
    before, after = node.get("before", ""), node.get("after", "")
    writer.body.append(f'<span class="formula">{before}{mathml(node, "inline")}{after}</span>')
    raise nodes.SkipNode


def displayed_formula(writer: Any, node: nodes.math_block) -> None:
    """Write a formula of its own line, with its number if it has one."""
    writer.body.append(writer.starttag(node, "div", CLASS="math"))
    writer.body.append(f'<div class="formula">{mathml(node, "block")}</div>')
    if node["number"]:
        writer.body.append(f'<span class="eqno">({get_node_equation_number(writer, node)})')
        writer.add_permalink_ref(node, "Link to this equation")
        writer.body.append("</span>")
    writer.body.append("</div>\n")
    raise nodes.SkipNode


def write_font(app: Any, error: Exception | None) -> None:
    """Put the part of STIX Two Math that formulas need beside the style sheet."""
    if error is None and app.builder.format == "html":
        font = str(files("ziamath") / "fonts" / "STIXTwoMath-Regular.ttf")
        to = f"--output-file={app.outdir / '_static' / 'math.woff'}"
        subset.main([font, f"--unicodes={CHARACTERS}", "--flavor=woff", to])


def setup(app: Any) -> dict[str, bool]:
    """Register the renderer, which conf.py chooses."""
    app.connect("doctree-resolved", keep_signs)
    app.connect("build-finished", write_font)
    app.add_html_math_renderer("mathml", (inline_formula, None), (displayed_formula, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
