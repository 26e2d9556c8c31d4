"""The chart for the README: bars, as an SVG that needs nothing and suits light and dark pages."""

from collections.abc import Iterator
from html import escape

from benchmarks.figures import Results
from benchmarks.systems import SYSTEMS

PANELS = (
    ("drain 1", "No-op tasks drained by one process, per second", ("postgres", "redis")),
    ("runs", "Five-step workflows by one process, per second", ("postgres", "redis")),
    ("drain 1", "No-op tasks drained by one process on SQLite, per second", ("sqlite",)),
)
WIDTH, BAR, GAP, HEAD = 720, 18, 8, 44
LETTER = 7  # wide in most fonts of that size
LEFT = 24 + LETTER * max(len(system.title) for system in SYSTEMS)
OURS, OTHERS, INK = "#0f766e", "#94a3b8", "#64748b"


def as_svg(results: Results) -> str:
    """Draw every panel of which there are figures."""
    body: list[str] = []
    height = 8
    for key, title, kinds in PANELS:
        values = [
            (system, value)
            for system in SYSTEMS
            if system.kind in kinds and (value := results.get(key, system.name)) is not None
        ]
        if values:
            values.sort(key=lambda one: -one[1])
            bars = [(system.title, value, system.ours) for system, value in values]
            body += _panel(title, bars, top=height)
            height += HEAD + len(values) * (BAR + GAP)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}" role="img" '
        'font-family="system-ui, sans-serif" font-size="13">'
    )
    return "\n".join(
        [
            head,
            "<title>Penstock beside other systems, in one run on one machine</title>",
            *body,
            "</svg>\n",
        ]
    )


def _panel(title: str, bars: list[tuple[str, float, bool]], *, top: int) -> Iterator[str]:
    yield f'<text x="8" y="{top + 24}" fill="{INK}" font-weight="600">{escape(title)}</text>'
    most = max(value for _, value, _ in bars)
    room = WIDTH - LEFT - 80
    for place, (name, value, ours) in enumerate(bars):
        y = top + HEAD - 8 + place * (BAR + GAP)
        length = max(2, round(room * value / most))
        middle = y + BAR - 5
        yield (
            f'<text x="{LEFT - 8}" y="{middle}" fill="{INK}" text-anchor="end">'
            f"{escape(name)}</text>"
        )
        yield (
            f'<rect x="{LEFT}" y="{y}" width="{length}" height="{BAR}" rx="2" '
            f'fill="{OURS if ours else OTHERS}"/>'
        )
        yield f'<text x="{LEFT + length + 6}" y="{middle}" fill="{INK}">{value:,.0f}</text>'
