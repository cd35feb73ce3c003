"""From a figure to the SVG file of the book: small, the same on every machine, told in words.

Matplotlib writes an SVG for itself; this module turns it into one for readers. Text gets a font
stack that shows Latin and Chinese on any system, a screen reader gets a title and a description,
and the neutral colours follow the reader's dark or light theme.
"""

import re
import xml.etree.ElementTree as ElementTree

from llmlab.figures import style
from llmlab.figures.page import BookFigure

SVG = "http://www.w3.org/2000/svg"
XLINK = "http://www.w3.org/1999/xlink"
_NUMBER = re.compile(r"-?\d+\.\d+")


def to_svg(figure: BookFigure) -> str:
    """The figure as the text of an SVG file: the same text whenever and wherever it is drawn."""
    name = figure.name
    root = ElementTree.fromstring(figure.rendered("svg", dpi=72))
    root.remove(root.find(f"{{{SVG}}}metadata"))
    root.remove(root.find(f"{{{SVG}}}defs"))  # the default style: given as attributes below
    for element in root.iter():
        _simplify(element)
    _unwrap_groups(root)
    root.attrib.update(
        {
            "id": name,
            "role": "img",
            "aria-labelledby": f"{name}-title {name}-desc",
            "font-family": ", ".join(repr(f) if " " in f else f for f in style.FONT_STACK),
            "stroke-linejoin": "round",
            "stroke-linecap": "butt",
        }
    )
    root.insert(0, _element("title", figure.title, id=f"{name}-title"))
    root.insert(1, _element("desc", figure.alt, id=f"{name}-desc"))
    root.insert(2, _element("style", _dark_theme(name)))
    ElementTree.register_namespace("", SVG)
    ElementTree.register_namespace("xlink", XLINK)
    ElementTree.indent(root, space=" ")
    return ElementTree.tostring(root, encoding="unicode") + "\n"


def _simplify(element: ElementTree.Element) -> None:
    """Removes what no reader needs: the names of groups, digits below 1/100 point, empty turns."""
    element.text = element.text if element.tag == f"{{{SVG}}}text" else None
    element.tail = None
    if element.tag == f"{{{SVG}}}g":
        element.attrib.pop("id", None)
    if element.attrib.get("transform", "").startswith("rotate(-0 "):
        del element.attrib["transform"]
    for attribute, value in element.attrib.items():
        rounded = _NUMBER.sub(
            lambda number: f"{float(number[0]):.2f}".rstrip("0").rstrip("."), value
        )
        element.set(attribute, " ".join(rounded.split()))
    if element.tag == f"{{{SVG}}}text":
        parts = element.get("style", "").split("; ")
        element.set("style", "; ".join(p for p in parts if not p.startswith("font-family")))


def _unwrap_groups(parent: ElementTree.Element) -> None:
    """Replaces every group without attributes by its children."""
    for child in list(parent):
        _unwrap_groups(child)
        if child.tag == f"{{{SVG}}}g" and not child.attrib:
            place = list(parent).index(child)
            parent[place : place + 1] = list(child)


def _dark_theme(name: str) -> str:
    """The rules that swap the neutral colours, and only those, for a reader in the dark."""
    rules = []
    for neutral, light in style.LIGHT.items():
        dark, light = style.DARK[neutral], light.lower()
        # White text stands on a full colour, which stays: only shapes may be paper.
        filled = f'#{name} path[style*="fill: {light}"]'
        if neutral != "paper":
            filled += f', #{name} text[style*="fill: {light}"]'
        rules.append(f"{filled} {{ fill: {dark} !important }}")
        rules.append(f'#{name} [style*="stroke: {light}"] {{ stroke: {dark} !important }}')
    return "@media (prefers-color-scheme: dark) { " + " ".join(rules) + " }"


def _element(tag: str, text: str, **attributes: str) -> ElementTree.Element:
    element = ElementTree.Element(f"{{{SVG}}}{tag}", attributes)
    element.text = text
    return element
