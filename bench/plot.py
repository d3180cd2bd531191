"""The plot in docs/: one panel for each figure that more than one server has."""

from pathlib import Path
from typing import Any

import matplotlib as mpl

from .results import Figure, Row, Run, number
from .servers import KINDS

COLOURS = {
    "ours": "#2f6f4f",
    "reference-file": "#c98b3c",
    "reference-memory": "#e3c18a",
    "rust": "#8a5a9e",
    "electric": "#4a78b5",
    "before": "#9dbfae",
    "bare": "#b8b8b8",
}
COLUMNS = 2


def draw(run: Run, file: Path) -> None:
    """Write the plot as SVG, the same bytes for the same run."""
    mpl.use("svg")
    mpl.rcParams.update({"svg.hashsalt": "ursula", "font.size": 8, "axes.titlesize": 8.5})
    from matplotlib import pyplot as plt

    figures = [(row, figure) for row in run.rows for figure in row.figures if figure.drawn]
    panels = [(row, figure) for row, figure in figures if len(figure.rounds) > 1]
    if not panels:
        return
    height = -(-len(panels) // COLUMNS)
    drawing, axes = plt.subplots(height, COLUMNS, figsize=(10, 1.7 * height), squeeze=False)
    flat = list(axes.flat)
    for axis, (row, figure) in zip(flat, panels, strict=False):
        _panel(axis, row, figure)
    for axis in flat[len(panels) :]:
        axis.set_axis_off()
    drawing.tight_layout()
    drawing.savefig(file, format="svg", metadata={"Date": None})
    plt.close(drawing)


def _panel(axis: Any, row: Row, figure: Figure) -> None:
    shown = [(kind, value) for kind in reversed(KINDS) if (value := figure.of(kind.name)) is not None]
    bars = axis.barh(
        [kind.label for kind, _ in shown],
        [value for _, value in shown],
        color=[COLOURS[kind.name] for kind, _ in shown],
    )
    axis.bar_label(bars, [number(value) for _, value in shown], padding=3)
    axis.set_title(f"{row.title}\n{figure.name}{', ' + figure.unit if figure.unit else ''}", loc="left")
    axis.margins(x=0.15)
    axis.spines[["top", "right"]].set_visible(False)
