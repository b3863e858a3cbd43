"""Pictures of what a session recorded, as SVG: a notebook shows them in its page, Plot.save() writes a file. No other package is needed.

The colours are the window's; text takes the page's own colour, so that light and dark pages both read well.
"""

import html
import math
import os
from typing import Any, List, Mapping, Optional, Sequence, Tuple

PHASES = {"forward": "#4c88f0", "loss": "#d66fa5", "backward": "#e0893f", "optimizer": "#3fae8c"}
_VERDICTS = {"FASTER": "#3fae8c", "SLOWER": "#d9534f"}
_UNSURE = "#8a93a5"
_WIDTH, _ROW, _LETTER = 760, 22, 7.4


def time_text(ns: float) -> str:
    """A time with three digits and its unit, as the command line writes it."""
    for unit, size in (("ns", 1.0), ("us", 1e3), ("ms", 1e6)):
        if ns < 999.5 * size:
            return f"{ns / size:.3g} {unit}"
    return f"{ns / 1e9:.3g} s" if ns < 999.5e9 else f"{ns / 1e9:.0f} s"


def shortened(text: str, letters: int) -> str:
    """At most that many letters: the end of a name tells layers apart, so the middle goes."""
    if len(text) <= letters:
        return text
    head = (letters - 1) // 3
    return text[:head] + "\u2026" + text[len(text) - (letters - 1 - head) :]


def ticks(low: float, high: float, count: int = 5) -> List[float]:
    """Round numbers (1, 2 or 5 times a power of ten apart) from low to high, about `count`."""
    step = 10.0 ** math.floor(math.log10((high - low) / count))
    step *= next(f for f in (1, 2, 5, 10) if f * step * count >= (high - low) * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [n * step for n in range(first, math.floor(high / step + 1e-9) + 1)]


class Plot:
    """One picture. A notebook shows it; str() is the SVG text."""

    def __init__(self, title: str, height: float, parts: Sequence[str]) -> None:
        self._svg = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height:g}" width="{_WIDTH}" height="{height:g}" role="img" '
            f'aria-label="{html.escape(title)}" font-family="system-ui, sans-serif" font-size="12" fill="currentColor">'
            + _text(0, 15, title, size=13, weight="600")
            + "".join(parts)
            + "</svg>"
        )

    def _repr_svg_(self) -> str:
        return self._svg

    def __str__(self) -> str:
        return self._svg

    def save(self, path: Any) -> None:
        """Writes the picture as a file of its own."""
        with open(os.fspath(path), "w", encoding="utf-8") as file:
            file.write(self._svg)


def _text(x: float, y: float, text: str, anchor: str = "start", size: float = 12, weight: str = "400", dim: bool = False) -> str:
    more = ' fill-opacity="0.65"' if dim else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size:g}" font-weight="{weight}"{more}>{html.escape(text)}</text>'


def _line(x1: float, y1: float, x2: float, y2: float, opacity: float = 0.15) -> str:
    return f'<path d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}" stroke="currentColor" stroke-opacity="{opacity:g}"/>'


def _nothing(title: str, why: str) -> Plot:
    return Plot(title, 48, [_text(0, 38, why, dim=True)])


def bars(title: str, rows: Sequence[Tuple[str, str, float, str]]) -> Plot:
    """Rows of (name, phase, size, text at the end), the first at the top; a size of 0 has no bar."""
    if not rows:
        return _nothing(title, "No kernels were timed.")
    names, values = 250.0, 135.0
    room, most = _WIDTH - names - values, max(row[2] for row in rows) or 1.0
    parts = []
    for i, (name, phase, size, text) in enumerate(rows):
        y = 34 + i * _ROW
        parts.append(f"<g><title>{html.escape(f'{name}, {phase}: {text}' if phase else f'{name}: {text}')}</title>")
        parts.append(_text(names - 8, y + 12, shortened(name, int((names - 8) / _LETTER)), "end"))
        length = room * size / most
        if size > 0:
            parts.append(f'<rect x="{names:g}" y="{y:g}" width="{max(1.0, length):.1f}" height="16" rx="2" fill="{PHASES.get(phase, _UNSURE)}"/>')
        parts.append(_text(names + length + (6 if size > 0 else 0), y + 12, text, dim=True) + "</g>")
    x, y = names, 34 + len(rows) * _ROW + 18
    present = {row[1] for row in rows}
    for phase in [phase for phase in PHASES if phase in present]:
        parts.append(f'<rect x="{x:.1f}" y="{y - 9:g}" width="10" height="10" rx="2" fill="{PHASES[phase]}"/>' + _text(x + 15, y, phase, dim=True))
        x += 15 + len(phase) * _LETTER + 20
    return Plot(title, y + 10, parts)


def curve(title: str, points: Sequence[Tuple[float, float]]) -> Plot:
    """A line through (step, value); values that are not finite leave gaps, and are marked at the lower edge."""
    finite = [(x, y) for x, y in points if math.isfinite(y)]
    if not finite:
        return _nothing(title, "No step has a finite value.")
    left, top, right, bottom = 56.0, 34.0, _WIDTH - 12.0, 250.0
    x0, x1 = points[0][0], points[-1][0]
    y0, y1 = min(y for _, y in finite), max(y for _, y in finite)
    if x1 == x0:
        x1 = x0 + 1
    if y1 == y0:
        y0, y1 = y0 - (abs(y0) or 1) * 0.05, y1 + (abs(y1) or 1) * 0.05
    y0, y1 = y0 - (y1 - y0) * 0.04, y1 + (y1 - y0) * 0.04

    def across(x: float) -> float:
        return left + (right - left) * (x - x0) / (x1 - x0)

    def down(y: float) -> float:
        return bottom - (bottom - top) * (y - y0) / (y1 - y0)

    parts = []
    for y in ticks(y0, y1):
        parts.append(_line(left, down(y), right, down(y)) + _text(left - 6, down(y) + 4, f"{y:g}", "end", dim=True))
    for x in ticks(x0, x1, 6):
        if x == int(x):
            parts.append(_text(across(x), bottom + 18, f"{x:g}", "middle", dim=True))
    parts.append(_text(right, bottom + 34, "step", "end", dim=True))
    path, pen = [], "M"
    for x, y in points:
        if not math.isfinite(y):
            parts.append(f'<circle cx="{across(x):.1f}" cy="{bottom:g}" r="3" fill="{_VERDICTS["SLOWER"]}"><title>step {x:g}: {y}</title></circle>')
            pen = "M"
            continue
        path.append(f"{pen}{across(x):.1f} {down(y):.1f}")
        pen = "L"
    if len(finite) == 1:
        parts.append(f'<circle cx="{across(finite[0][0]):.1f}" cy="{down(finite[0][1]):.1f}" r="3" fill="{PHASES["forward"]}"/>')
    parts.append(f'<path d="{"".join(path)}" fill="none" stroke="{PHASES["forward"]}" stroke-width="1.6" stroke-linejoin="round"/>')
    return Plot(title, bottom + 44, parts)


def intervals(title: str, rows: Sequence[Mapping[str, Any]]) -> Plot:
    """Comparisons as points with their 95 % intervals on one axis of ratios; right of 1, b is faster than a."""
    known = [row for row in rows if row["ratio"] is not None and row["ratio_low"] is not None and row["ratio_high"] is not None]
    if not known:
        return _nothing(title, "Nothing was compared.")
    names, values = 250.0, 170.0
    left, right = names + 10, _WIDTH - values
    low: float = min(1.0, *(r["ratio_low"] for r in known))
    high: float = max(1.0, *(r["ratio_high"] for r in known))
    edge = (high - low) * 0.06 or 0.05
    low, high = low - edge, high + edge
    bottom = 38 + len(known) * 2 * _ROW

    def across(ratio: float) -> float:
        return left + (right - left) * (ratio - low) / (high - low)

    parts = []
    for x in ticks(low, high, 4):
        parts.append(_line(across(x), 30, across(x), bottom) + _text(across(x), bottom + 16, f"{x:.6g}x", "middle", dim=True))
    parts.append(_line(across(1), 26, across(1), bottom, 0.6))
    for i, row in enumerate(known):
        y = 38 + i * 2 * _ROW
        colour = _VERDICTS.get(row["verdict"], _UNSURE)
        letters = int((names - 8) / _LETTER)
        parts.append(_text(names - 8, y + 12, shortened(str(row["b"]), letters), "end"))
        parts.append(_text(names - 8, y + 28, shortened(f"against {row['a']}", letters), "end", dim=True))
        parts.append(f'<path d="M{across(row["ratio_low"]):.1f} {y + 14}L{across(row["ratio_high"]):.1f} {y + 14}" stroke="{colour}" stroke-width="3"/>')
        parts.append(f'<circle cx="{across(row["ratio"]):.1f}" cy="{y + 14}" r="5" fill="{colour}"/>')
        parts.append(_text(right + 12, y + 12, f"{row['ratio']:.3f}x {row['verdict']}", weight="600"))
        parts.append(_text(right + 12, y + 28, f"[{row['ratio_low']:.3f}, {row['ratio_high']:.3f}]", dim=True))
    return Plot(title, bottom + 26, parts)


def front(title: str, rows: Sequence[Mapping[str, Any]], most: int = 8) -> Plot:
    """Configurations by speed (to the right: more times as fast as the job) and peak memory (down: less). Those that no other beats in both
    are joined, and listed from the fastest, at most so many."""
    known = [(float(row["ratio"]), float(row["peak_bytes"]), str(row["changes"])) for row in rows if row["peak_bytes"]]
    if not known:
        return _nothing(title, "Nothing was measured.")
    left, top, right, bottom = 70.0, 48.0, _WIDTH - 24.0, 280.0
    low, high = min(1.0, *(x for x, _, _ in known)), max(1.0, *(x for x, _, _ in known))
    low, high = low - ((high - low) * 0.06 or 0.05), high + ((high - low) * 0.06 or 0.05)
    least, largest = min(y for _, y, _ in known), max(y for _, y, _ in known)
    least, largest = least - ((largest - least) * 0.08 or 0.05 * largest), largest + ((largest - least) * 0.08 or 0.05 * largest)
    unit = 1024.0 ** max(0, int(math.log(largest, 1024)))

    def across(x: float) -> float:
        return left + (right - left) * (x - low) / (high - low)

    def down(y: float) -> float:
        return bottom - (bottom - top) * (y - least) / (largest - least)

    parts = [_text(right, bottom + 34, "times as fast as the job", "end", dim=True), _text(across(1), top - 6, "the job", "middle", dim=True)]
    for x in ticks(low, high):
        parts.append(_line(across(x), top, across(x), bottom) + _text(across(x), bottom + 18, f"{x:.6g}x", "middle", dim=True))
    for y in ticks(least / unit, largest / unit, 4):
        parts.append(_line(left, down(y * unit), right, down(y * unit)) + _text(left - 6, down(y * unit) + 4, bytes_text(y * unit), "end", dim=True))
    parts.append(_line(across(1), top, across(1), bottom, 0.6))
    best = sorted((p for p in known if not any(x >= p[0] and y <= p[1] and (x, y) != p[:2] for x, y, _ in known)), reverse=True)
    if len(best) > 1:
        steps = "".join(f"L{across(x):.1f} {down(y):.1f}" for x, y, _ in best)
        parts.append(f'<path d="M{steps[1:]}" fill="none" stroke="{_VERDICTS["FASTER"]}" stroke-opacity="0.6"/>')
    for point in [*(p for p in known if p not in best), *best]:
        x, y, name = point
        told = html.escape(f"{name}: {x:.3f}x, {bytes_text(y)}")
        colour = _VERDICTS["FASTER"] if point in best else _UNSURE
        parts.append(f'<circle cx="{across(x):.1f}" cy="{down(y):.1f}" r="4.5" fill="{colour}"><title>{told}</title></circle>')
    for i, (x, y, name) in enumerate(best[:most]):
        line = bottom + 60 + i * 20
        parts.append(f'<circle cx="{left + 4:g}" cy="{line - 4:g}" r="4.5" fill="{_VERDICTS["FASTER"]}"/>' + _text(left + 16, line, shortened(name, 62)))
        parts.append(_text(right - 90, line, f"{x:.3f}x", "end") + _text(right, line, bytes_text(y), "end"))
    return Plot(title, bottom + 50 + 20 * min(most, len(best)), parts)


def table(rows: Sequence[Mapping[str, Any]], most: int = 50) -> str:
    """Rows as an HTML table: times and sizes with units, numbers to the right, the first `most` rows."""
    if not rows:
        return "<p>no rows</p>"
    columns = list(rows[0])

    def cell(column: str, value: Any) -> str:
        right = isinstance(value, (int, float))
        return f'<td style="text-align:{"right" if right else "left"}" title="{html.escape(str(value))}">{html.escape(shown(column, value))}</td>'

    head = "".join(f"<th>{html.escape(column[:-3] if column.endswith('_ns') else column)}</th>" for column in columns)
    body = "".join("<tr>" + "".join(cell(c, row[c]) for c in columns) + "</tr>" for row in rows[:most])
    more = f"<p>{len(rows) - most} more rows</p>" if len(rows) > most else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def shown(column: str, value: Any) -> str:
    """A value as text, with the unit that the column's name says."""
    if value is None:
        return ""
    if isinstance(value, float) and column == "share":
        return f"{100 * value:.1f} %"
    if isinstance(value, (int, float)) and column.endswith("_ns"):
        return time_text(value)
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, int) and (column == "bytes" or column.endswith("_bytes")):
        return bytes_text(value)
    return shortened(str(value), 60)


def bytes_text(size: float) -> str:
    """A size with three digits and its unit (KiB = 1024)."""
    number: float = size
    for unit in ("B", "KiB", "MiB", "GiB"):
        if number < 999.5:
            return f"{number:.3g} {unit}"
        number /= 1024
    return f"{number:.3g} TiB"


def kernel_bars(rows: Sequence[Mapping[str, Any]], title: str, most: int) -> Plot:
    """The longest kernels as bars, and in words what the others take together."""
    timed = [row for row in rows if row["total_ns"]]
    shown, rest = timed[:most], timed[most:]
    found: List[Tuple[str, str, float, str]] = [_kernel_row(row) for row in shown]
    if rest:
        share = sum(row["share"] or 0 for row in rest)
        median = sum(row["median_ns"] or 0 for row in rest)
        found.append((f"{len(rest)} other kernels", "", 0, f"{time_text(median)}, {100 * share:.1f} %"))
    return bars(title, found)


def _kernel_row(row: Mapping[str, Any]) -> Tuple[str, str, float, str]:
    share: Optional[float] = row["share"]
    text = time_text(row["median_ns"]) + (f", {100 * share:.1f} %" if share is not None else "")
    return (str(row["node"]).lstrip("/"), str(row["phase"]), float(row["total_ns"]), text)
