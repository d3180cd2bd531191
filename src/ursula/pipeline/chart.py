"""Bars of one colour for each name, stacked by day or another step of time, as SVG."""

from collections.abc import Mapping, Sequence
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 720, 320
LEFT, RIGHT, TOP, BOTTOM = 70, 150, 30, 40
COLOURS = ("#2f6f4f", "#c98b3c", "#8a5a9e", "#4f7fb8", "#b8574f", "#7a7a7a", "#5aa9a0", "#d8b84a")
NAMES_SHOWN = len(COLOURS)
OTHERS = "others"

Values = Mapping[tuple[str, str], float]
"""By name and bar; bars are days or other texts, in their order."""


def stacked_bars(title: str, unit: str, values: Values) -> str:
    """The chart; the largest names have a colour each, and the others one together."""
    days = sorted({day for _, day in values})
    names = _names(values)
    totals = {day: sum(value for (_, other), value in values.items() if other == day) for day in days}
    highest = max(totals.values(), default=0) or 1
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
        'font-size="11">',
        f'<text x="{LEFT}" y="18" font-size="13">{escape(title)}</text>',
        f'<text x="{LEFT - 6}" y="{TOP + 10}" text-anchor="end">{highest:,.4g} {escape(unit)}</text>',
        f'<text x="{LEFT - 6}" y="{HEIGHT - BOTTOM}" text-anchor="end">0</text>',
    ]
    room, step = HEIGHT - TOP - BOTTOM, (WIDTH - LEFT - RIGHT) / max(1, len(days))
    for number, day in enumerate(days):
        x, y = LEFT + number * step, float(HEIGHT - BOTTOM)
        for place, name in enumerate(names):
            height = room * _value(values, names, name, day) / highest
            y -= height
            if height:
                box = f'x="{x:.1f}" y="{y:.1f}" width="{max(1.0, step - 2):.1f}" height="{height:.1f}"'
                parts.append(f'<rect {box} fill="{COLOURS[place % len(COLOURS)]}"/>')
        if number in (0, len(days) - 1):
            anchor = "start" if number == 0 else "end"
            parts.append(f'<text x="{x:.1f}" y="{HEIGHT - 20}" text-anchor="{anchor}">{day}</text>')
    for place, name in enumerate(names):
        y, x = TOP + 10 + place * 18, WIDTH - RIGHT + 14
        parts.append(f'<rect x="{x}" y="{y - 9}" width="10" height="10" fill="{COLOURS[place]}"/>')
        parts.append(f'<text x="{x + 16}" y="{y}">{escape(name[:20])}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _names(values: Values) -> list[str]:
    """The largest first; the smallest are one if there are too many."""
    totals: dict[str, float] = {}
    for (name, _), value in values.items():
        totals[name] = totals.get(name, 0) + value
    names = sorted(totals, key=lambda name: (-totals[name], name))
    return names if len(names) <= NAMES_SHOWN else [*names[: NAMES_SHOWN - 1], OTHERS]


def _value(values: Values, names: Sequence[str], name: str, day: str) -> float:
    if name == OTHERS and len(names) == NAMES_SHOWN:
        shown = set(names[:-1])
        return sum(value for (one, other), value in values.items() if other == day and one not in shown)
    return values.get((name, day), 0)
