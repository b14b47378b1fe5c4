"""A recording of a terminal: `abide chat` with a node that is killed while a call waits for an approval.

Arguments: the program, a directory for the node's store, the animated SVG to write. The picture is made of what the
program has written to a real terminal, at its own pace.
"""

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from html import escape
from pathlib import Path

COLUMNS, ROWS = 88, 16
CHAR, LINE, MARGIN = 8.43, 19, 16
COLOURS = {"31": "#ff8a80", "32": "#8ce0ac", "33": "#f2c46d", "36": "#84cfff"}
#: A reader needs no longer for what has come; a program may.
MAX_PAUSE = 1.6
SEQUENCE = re.compile(r"\x1b\[([?0-9;]*)([A-Za-z])|(.)", re.S)


class Screen:
    """What a terminal shows, as far as the program uses it: rows of (character, style)."""

    def __init__(self) -> None:
        self.rows: list[list[tuple[str, str]]] = [[]]
        self.row = self.column = 0
        self.style = ""

    def write(self, text: str) -> None:
        for number, command, char in SEQUENCE.findall(text):
            if char:
                self.put(char)
            elif command == "m":
                self.style = "" if number in ("", "0") else number
            elif command == "A":
                self.row = max(self.row - int(number or 1), 0)
            elif command == "C":
                self.column += int(number or 1)
            elif command == "K":
                self.rows[self.row][0 if number == "2" else self.column :] = []

    def put(self, char: str) -> None:
        if char == "\r":
            self.column = 0
        elif char == "\n":
            self.row += 1
            while len(self.rows) <= self.row:
                self.rows.append([])
        elif char == "\b":
            self.column = max(self.column - 1, 0)
        elif char >= " ":
            if self.column == COLUMNS:
                self.put("\r")
                self.put("\n")
            row = self.rows[self.row]
            row.extend([(" ", "")] * (self.column + 1 - len(row)))
            row[self.column] = (char, self.style)
            self.column += 1

    def lines(self) -> list[str]:
        """The last rows, as the spans of SVG."""
        return [spans(row) for row in self.rows[-ROWS:]]


def spans(row: list[tuple[str, str]]) -> str:
    parts: list[tuple[str, str]] = []
    for char, style in row:
        if parts and parts[-1][1] == style:
            parts[-1] = (parts[-1][0] + char, style)
        else:
            parts.append((char, style))
    spans = []
    for text, style in parts:
        fill = f' fill="{COLOURS[style]}"' if style in COLOURS else ' opacity="0.6"' if style == "2" else ""
        spans.append(f"<tspan{fill}>{escape(text)}</tspan>" if fill else escape(text))
    return "".join(spans)


class Recording:
    """Frames, each with the second from which it stands and the line below the terminal."""

    def __init__(self, program: str) -> None:
        self.screen, self.frames, self.note = Screen(), [], ""
        self.screen.write("$ abide chat trip --agent demo\r\n")
        self.clock = 0.0
        pid, self.terminal = pty.fork()
        if pid == 0:
            os.environ.update(TERM="xterm-256color", ABIDE_URL=URL)
            os.environ.pop("NO_COLOR", None)
            os.execv(program, ["abide", "chat", "trip", "--agent", "demo"])
        fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        self.take()

    def take(self) -> None:
        frame = (self.screen.lines(), self.note)
        if not self.frames or self.frames[-1][1:] != frame:
            self.frames.append((self.clock, *frame))

    def read(self, until: str, seconds: float = 20) -> None:
        """Shows what comes up to this text."""
        text, end = "", time.monotonic() + seconds
        while until not in text:
            since = time.monotonic()
            if since > end:
                raise SystemExit(f"the terminal never showed {until!r}, but {text!r}")
            if select.select([self.terminal], [], [], 0.5)[0]:
                piece = os.read(self.terminal, 65_536).decode()
                self.clock += min(max(time.monotonic() - since, 0.03), MAX_PAUSE)
                self.screen.write(piece)
                text += piece
                self.take()

    def type(self, text: str) -> None:
        for char in text:
            os.write(self.terminal, char.encode())
            time.sleep(0.06)
            if char == "\r":
                continue
            self.read(char)

    def hold(self, seconds: float, note: str | None = None) -> None:
        self.note = self.note if note is None else note
        self.take()
        self.clock += seconds


def svg(frames: list[tuple[float, list[str], str]], end: float) -> str:
    """All frames side by side, moved past the window by steps; lines that are alike are there once."""
    width, height = round(COLUMNS * CHAR) + 2 * MARGIN, (ROWS + 2) * LINE + 2 * MARGIN
    known: dict[str, int] = {}
    pictures, steps = [], []
    for number, (at, lines, note) in enumerate(frames):
        uses = []
        for row, line in enumerate(lines):
            if line.strip():
                uses.append(f'<use href="#l{known.setdefault(line, len(known))}" y="{MARGIN + (row + 1) * LINE}"/>')
        said = f'<tspan fill="#ffb86b">{escape(note)}</tspan>'
        below = f'<text x="{MARGIN}" y="{height - MARGIN}">{said}</text>' if note else ""
        pictures.append(f'<svg x="{number * width}" width="{width}" height="{height}">{"".join(uses)}{below}</svg>')
        steps.append(f"{at / end * 100:.2f}%{{transform:translateX({-number * width}px)}}")
    last = f"translateX({-(len(frames) - 1) * width}px)"
    texts = "".join(f'<text id="l{number}" x="{MARGIN}">{line}</text>' for line, number in known.items())
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" aria-label="A chat in a terminal that goes on after its node was killed">\n<style>'
        "text{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;fill:#e8e6e1;"
        "white-space:pre}"
        f"@keyframes play{{{''.join(steps)}100%{{transform:{last}}}}}"
        f"#strip{{animation:play {end:.2f}s step-end infinite}}"
        f"@media (prefers-reduced-motion:reduce){{#strip{{animation:none;transform:{last}}}}}"
        f'</style>\n<defs>{texts}</defs>\n<rect width="{width}" height="{height}" rx="10" fill="#1b1e26"/>\n'
        f'<g id="strip">{"".join(pictures)}</g>\n</svg>\n'
    )


def start(program: str, store: str) -> subprocess.Popen[bytes]:
    """Starts the node, and returns when it serves."""
    listen = ["--listen", URL.removeprefix("http://"), "--admin-listen", "127.0.0.1:0"]
    command = [program, "serve", "--store", f"embedded:{store}", "--workspaces", f"{store}/files", *listen]
    node = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert node.stdout is not None and node.stdout.readline().startswith(b"ready")
    return node


if __name__ == "__main__":
    program, store, output = sys.argv[1:]
    URL = f"http://127.78.{os.getpid() >> 8 & 255}.{os.getpid() & 255 or 1}:8080"
    node = start(program, store)
    it = Recording(program)
    it.read("> \r\x1b[2C")
    it.hold(0.8)
    it.type("Please send a mail\r")
    it.read("leaves it open")
    it.hold(2.0)
    node.kill()
    node.wait()
    it.hold(1.8, "The node is killed with -9 …")
    node = start(program, store)
    it.hold(1.5, "… and started again. The call still waits.")
    it.type("\r")
    it.read("> \r\x1b[2C")
    it.hold(4.0, "The answer revived the conversation, and the turn went on.")
    node.terminate()
    node.wait()
    picture = svg(it.frames, it.clock)
    Path(output).write_text(picture, "utf-8")
    print(f"{output}: {len(it.frames)} frames, {len(picture)} bytes")
