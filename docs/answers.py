#!/usr/bin/env python3
"""answers.py PAGE LOG: writes what the commands of docs/PAGE.md answered (run_page.sh, LOG/N.command and LOG/N.output) into the page.

The page shows some lines of each answer, in blocks. A shown line is replaced by the first line of the answer, behind the block before,
that differs from it in numbers and spaces alone; within a block lines take the order of the answer. Lines that have none are named: the
answer has changed, and so must the page. The text between the answers speaks of them, too: read it.
"""

import glob
import os
import re
import sys

PAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), sys.argv[1] + ".md")
NUMBER = re.compile(r"\b[0-9a-f]{12,}\b|[-+]?\b\d[\d.:eT+-]*Z?( (ns|us|ms|s|B|KiB|MiB|GiB|[kMG]?FLOP)\b)?")
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


def renewed(shown, answer, start, lost):
    """A block of shown lines in the order that the answer has now, and where the answer goes on; `lost` gets what it lacks."""
    found = {}
    for line in shown:
        same = [i for i in range(start, len(answer)) if i not in found and form(answer[i]) == form(line)]
        if same:
            found[same[0]] = answer[same[0]].rstrip()
        else:
            lost.append(line)
            found[max(found, default=start) + 0.5] = line
    return [found[i] for i in sorted(found)], int(max(found, default=start - 1)) + 1


def main():
    logs, page, lost = answers(sys.argv[2]), [], []
    answer, start, block, inside = [], 0, [], False
    with open(PAGE) as file:
        for line in file.read().splitlines():
            if inside and line not in ("", "...", "```") and not line.startswith("$ "):
                block.append(line)
                continue
            lines, start = renewed(block, answer, start, lost)
            page += [*lines, line]
            block = []
            if line.startswith("```"):
                inside = line == "```console"
            elif inside and line.startswith("$ ") and not line.startswith("$ gradloom open"):
                index = next(i for i, (command, _) in enumerate(logs) if command == line[2:])
                answer, start = logs.pop(index)[1], 0
    with open(PAGE, "w") as file:
        file.write("\n".join(page) + "\n")
    for line in lost:
        print(f"docs/{sys.argv[1]}.md: no longer answered so: {line}")
    sys.exit(1 if lost else 0)


if __name__ == "__main__":
    main()
