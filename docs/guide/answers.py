#!/usr/bin/env python3
"""answers.py LOG: writes what the commands of docs/guide.md answered (run.sh, LOG/N.command and LOG/N.output) into the page.

The page shows some lines of each answer. A shown line is replaced by the first line of the answer, behind those already taken, that
differs from it in numbers and spaces alone. Lines that have none are named: the answer has changed, and so must the page. The text
between the answers speaks of them, too: read it.
"""

import glob
import os
import re
import sys

PAGE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "guide.md")
NUMBER = re.compile(r"-?\b\d[\d.:e+-]*Z?( (ns|us|ms|s|B|KiB|MiB|GiB|[kMG]?FLOP)\b)?|\b[0-9a-f]{12,}\b")
STEP = re.compile(r"^step +(\d+)")  # the same step again
VARIES = re.compile(r"^/blocks\S+|^(FASTER|SLOWER|SAME|UNSURE) .*")  # which of a kind comes first, and what is found


def form(line):
    line = STEP.sub(lambda step: "step" + "i" * int(step[1]), " ".join(line.split()))
    return NUMBER.sub("#", VARIES.sub("varies", line)).removesuffix(" *")


def answers(folder):
    """Lines of the answers by command, in the order of the page."""
    found = []
    for path in sorted(glob.glob(os.path.join(folder, "*.command"))):
        with open(path) as command, open(path.replace(".command", ".output")) as output:
            found.append((command.read().strip(), output.read().splitlines()))
    return found


def main():
    logs, page, lost = answers(sys.argv[1]), [], []
    answer, inside = iter([]), False
    with open(PAGE) as file:
        for line in file.read().splitlines():
            if line.startswith("```"):
                inside = line == "```console"
            elif inside and line.startswith("$ ") and not line.startswith("$ gradloom open"):
                index = next(i for i, (command, _) in enumerate(logs) if command == line[2:])
                answer = logs.pop(index)[1]
            elif inside and line != "..." and line and not line.startswith("$ "):
                same = [i for i, text in enumerate(answer) if form(text) == form(line)]
                if same:
                    line, answer = answer[same[0]].rstrip(), answer[same[0] + 1 :]
                else:
                    lost.append(line)
            page.append(line)
    with open(PAGE, "w") as file:
        file.write("\n".join(page) + "\n")
    for line in lost:
        print(f"docs/guide.md: no longer answered so: {line}")
    sys.exit(1 if lost else 0)


if __name__ == "__main__":
    main()
