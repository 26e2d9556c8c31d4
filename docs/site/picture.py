"""Records `penstock demo` on a terminal and draws what stands there in the end.

    python docs/site/picture.py docs/assets/demo.svg

It is a real run: a pseudo-terminal, a worker that is killed, and the numbers that came of it.
"""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

WIDTH = 108
HEIGHT = 100  # more than it prints: nothing may scroll away

_CONTROL = re.compile(r"\x1b\[(?P<number>\??\d*)(?P<letter>[AKhl])|\r?\n|\r")
_THEME = TerminalTheme(
    (22, 27, 34),
    (201, 209, 217),
    [
        (72, 79, 88),
        (255, 123, 114),
        (63, 185, 80),
        (210, 153, 34),
        (88, 166, 255),
        (210, 168, 255),
        (57, 197, 207),
        (201, 209, 217),
    ],
)
# rich asks another host for a font; the reader's own serves as well.
_FROM_ELSEWHERE = re.compile(r"@font-face \{.*?\}\s*|<!--.*?-->\s*", re.DOTALL)
_FONTS = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"


def record(command: list[str]) -> str:
    """Run a command on a terminal; return all that it wrote there."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", HEIGHT, WIDTH, 0, 0))
    environment = os.environ | {"TERM": "xterm-256color", "COLUMNS": str(WIDTH)}
    environment.pop("NO_COLOR", None)
    with subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment
    ) as it:
        os.close(theirs)
        written = b""
        while chunk := _read(ours):
            written += chunk
    os.close(ours)
    if it.returncode:
        sys.exit(f"{' '.join(command)} ended with {it.returncode}:\n{written.decode()}")
    return written.decode()


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 4096)
    except OSError:  # how a terminal says that nobody is left on the other side
        return b""


def shown(written: str) -> list[str]:
    """What is left on the lines, with their colours, after progress bars were drawn over.

    Knows what rich uses for that: a line is erased before it is written again.
    """
    lines = [""]
    row = 0
    place = 0
    for control in _CONTROL.finditer(written):
        lines[row] += written[place : control.start()]
        place = control.end()
        match control["letter"]:
            case "A":
                row -= int(control["number"] or 1)
            case "K":
                lines[row] = ""
            case None if control[0].endswith("\n"):
                row += 1
                if row == len(lines):
                    lines.append("")
            case _:
                pass
    return lines


def picture(lines: list[str], title: str) -> str:
    """Draw a terminal with these lines, as SVG that needs nothing from anywhere."""
    console = Console(record=True, width=WIDTH, file=StringIO(), force_terminal=True)
    for line in lines:
        console.print(Text.from_ansi(line), soft_wrap=True)
    drawn = console.export_svg(title=title, theme=_THEME, unique_id="penstock-demo")
    drawn = _FROM_ELSEWHERE.sub("", drawn).replace("Fira Code, monospace", _FONTS)
    return re.sub(r"[ \t]+$", "", drawn, flags=re.MULTILINE)


def main() -> None:
    command = [sys.executable, "-m", "penstock", "demo"]
    lines = shown(record(command))
    while not lines[-1].strip():
        lines.pop()
    Path(sys.argv[1]).write_text(picture(lines, "penstock demo") + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
