"""The reference of all settings, written from their declaration.

`python -m penstock.settings.reference docs/reference/settings.md` brings the page up to date.
"""

import inspect
import sys
from pathlib import Path

from penstock.settings.declared import SECTIONS, SETTINGS, Setting

BEGIN = "<!-- begin: written from the declaration of the settings -->"
END = "<!-- end: written from the declaration of the settings -->"


def as_markdown() -> str:
    """Return a table per section, and the whole penstock.toml with every default."""
    parts = ["## All defaults", "", "```toml", "# penstock.toml", as_toml().rstrip(), "```", ""]
    for section, declaration in SECTIONS.items():
        parts += [
            f"## `[{section}]`",
            "",
            inspect.getdoc(declaration) or "",
            "",
            "| key | value | default | environment variable | meaning |",
            "|---|---|---|---|---|",
            *(_row(setting) for setting in SETTINGS.values() if setting.section == section),
            "",
        ]
    return "\n".join(parts).rstrip()


def as_toml() -> str:
    """Return a penstock.toml that says what holds without one."""
    lines = []
    for section in SECTIONS:
        lines.append(f"[{section}]")
        lines += [
            f"{setting.key} = {setting.kind.to_toml(setting.default)}"
            for setting in SETTINGS.values()
            if setting.section == section
        ]
    return "\n".join(lines) + "\n"


def with_reference(page: str) -> str:
    """Return `page` with the part between the two marks written anew."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{as_markdown()}\n\n{END}{after}"


def _row(setting: Setting) -> str:
    cells = (
        f"`{setting.key}`",
        setting.kind.expected,
        f"`{setting.kind.to_toml(setting.default)}`",
        f"`{setting.variable}`",
        setting.meaning,
    )
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.write_text(with_reference(target.read_text(encoding="utf-8")), encoding="utf-8")
