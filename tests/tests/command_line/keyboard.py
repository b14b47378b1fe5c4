"""Runs a program on a pseudo-terminal: waits for each text, then types the keys that belong to it."""
import json
import os
import pty
import select
import sys
import time

# How long a text may take to appear: the machine may build at the same time.
DEADLINE_SECONDS = 25

steps = json.loads(sys.argv[1])
pid, terminal = pty.fork()
if pid == 0:
    os.execv(sys.argv[2], sys.argv[2:])

screen = b""
# Each text is looked for after the one before it.
place = 0


def read():
    """Adds what the program writes; False when it has ended."""
    global screen
    ready, _, _ = select.select([terminal], [], [], 0.1)
    if not ready:
        return True
    try:
        part = os.read(terminal, 65536)
    except OSError:
        return False
    screen += part
    # A program that asks where the cursor is gets an answer, as from any terminal.
    if b"\x1b[6n" in part:
        os.write(terminal, b"\x1b[1;1R")
    return bool(part)


for text, keys in steps:
    end = time.monotonic() + DEADLINE_SECONDS
    while (found := screen.find(text.encode(), place)) < 0:
        if not read() or time.monotonic() > end:
            sys.stdout.write(screen.decode(errors="replace"))
            sys.exit(f"{text!r} did not appear")
    place = found + len(text.encode())
    os.write(terminal, keys.encode())

end = time.monotonic() + DEADLINE_SECONDS
while read():
    if time.monotonic() > end:
        sys.exit("the program did not end")
_, status = os.waitpid(pid, 0)
sys.stdout.write(screen.decode(errors="replace"))
sys.stdout.flush()
sys.exit(os.waitstatus_to_exitcode(status) & 0xFF)
