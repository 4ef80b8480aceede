"""What the assembly of x86-64 says of its functions."""

from __future__ import annotations

import re


def stack_of(assembly: str, name: str, every: bool = False) -> int:
    """Bytes of stack that a function of x86-64 assembly takes, and the largest of the module's others, or all.

    NOTE: calls go through registers, so whatever else there is may be what is called.
    """
    own: dict[str, int] = {}
    current = ""
    for line in assembly.splitlines():
        label = re.match(r'^"?([\w.$]+)"?:', line)
        if label and not label[1].startswith(".L"):
            current = label[1]
            own[current] = 8
        elif current:
            words = line.split("#")[0].replace(",", " ").split()
            match words:
                case ["pushq", *_]:
                    own[current] += 8
                case ["subq" | "addq", size, "%rsp"] if size.startswith("$"):
                    own[current] += max(int(size[1:]) * (1 if words[0] == "subq" else -1), 0)
                case ["andq", size, "%rsp"]:
                    own[current] += -int(size[1:]) - 8
    return own.pop(name) + (sum if every else max)(own.values() or [0])
