"""A bar chart as SVG: a bar for each day (or other step of time), stacked from one colour per name."""

import math
from collections.abc import Mapping, Sequence
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 720, 320
RIGHT, TOP, BOTTOM = 175, 30, 40
CHARACTER_WIDTH = 7
"""An upper bound on the average width of a character of a label, whatever the font."""
NAME_CHARACTERS = 20
COLOURS = ("#2f6f4f", "#c98b3c", "#8a5a9e", "#4f7fb8", "#b8574f", "#7a7a7a", "#5aa9a0", "#d8b84a")
GRID = "#dddddd"
NAMES_SHOWN = len(COLOURS)
OTHERS = "others"
BYTES = "bytes"
SIZES = ("B", "KiB", "MiB", "GiB", "TiB")
STEPS = (1, 2, 5, 10)
STEPS_MAX = 5

Values = Mapping[tuple[str, str], float]
"""By name and bar. Bars are days or other texts, and are sorted."""


def stacked_bars(title: str, unit: str, values: Values) -> str:
    """The chart. Each of the largest names has a colour of its own, and the others share one.

    Values with the unit "bytes" are shown as KiB, MiB and so on.
    """
    days = sorted({day for _, day in values})
    names = _names(values)
    totals = {day: sum(value for (_, other), value in values.items() if other == day) for day in days}
    axis = _axis(max(totals.values(), default=0), unit)
    highest = axis[-1][0]
    caption = "" if unit == BYTES else unit
    left = 12 + CHARACTER_WIDTH * max(8, len(caption), *(len(label) for _, label in axis))
    room, step = HEIGHT - TOP - BOTTOM, (WIDTH - left - RIGHT) / max(1, len(days))
    all_fit = CHARACTER_WIDTH * max(map(len, days), default=0) < step
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
        'font-size="11">',
        f'<text x="{left}" y="18" font-size="13">{_shown(title)}</text>',
    ]
    if caption:
        parts.append(f'<text x="{left - 6}" y="18" text-anchor="end">{_shown(caption)}</text>')
    for value, label in axis:
        y = HEIGHT - BOTTOM - room * value / highest
        parts.append(f'<path d="M{left} {y:.1f}H{WIDTH - RIGHT}" stroke="{GRID}"/>')
        parts.append(f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{label}</text>')
    for number, day in enumerate(days):
        x, y = left + number * step, float(HEIGHT - BOTTOM)
        for place, name in enumerate(names):
            height = room * _value(values, names, name, day) / highest
            y -= height
            if height:
                box = f'x="{x:.1f}" y="{y:.1f}" width="{max(1.0, step - 2):.1f}" height="{height:.1f}"'
                parts.append(f'<rect {box} fill="{COLOURS[place % len(COLOURS)]}"/>')
        if all_fit or number in (0, len(days) - 1):
            middle = x + step / 2
            parts.append(
                f'<text x="{middle:.1f}" y="{HEIGHT - 20}" text-anchor="middle">{_shown(day)}</text>'
            )
    for place, name in enumerate(names):
        y, x = TOP + 10 + place * 18, WIDTH - RIGHT + 14
        parts.append(f'<rect x="{x}" y="{y - 9}" width="10" height="10" fill="{COLOURS[place]}"/>')
        parts.append(f'<text x="{x + 16}" y="{y}">{_shown(_short(name))}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _axis(highest: float, unit: str) -> list[tuple[float, str]]:
    """Round numbers from 0 to the highest value or slightly above, each with its label."""
    factor, name = 1.0, ""
    if unit == BYTES:
        power = min(int(math.log(max(1.0, highest), 1024)), len(SIZES) - 1)
        factor, name = 1024.0**power, f" {SIZES[power]}"
    least = max(highest / factor / STEPS_MAX, 1 / factor)
    magnitude = 10.0 ** math.floor(math.log10(least))
    step = next(size * magnitude for size in STEPS if size * magnitude >= least)
    count = max(1, math.ceil(highest / factor / step))
    return [(number * step * factor, f"{number * step:,.10g}{name}") for number in range(count + 1)]


def _short(name: str) -> str:
    return name if len(name) <= NAME_CHARACTERS else f"{name[: NAME_CHARACTERS - 1]}…"


def _shown(text: str) -> str:
    """Text for XML, which cannot contain some characters at all."""
    return escape("".join(one if one.isprintable() else "\ufffd" for one in text))


def _names(values: Values) -> list[str]:
    """The names, the largest first; if there are too many, the smallest are combined into one."""
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
