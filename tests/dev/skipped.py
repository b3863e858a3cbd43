"""What ctest skipped and why, one line for each reason: how many tests, why, and the first of them. ./dev test ends with it.

skipped.py FILE: FILE is what `ctest --output-junit FILE` wrote. The reason is what the test itself said: GoogleTest's line after
"Skipped", or the last line of a script.
"""
import sys
import xml.etree.ElementTree as xml


def reason(output):
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    for at, line in enumerate(lines[:-1]):
        if line.endswith(": Skipped"):
            said = lines[at + 1]
            return "" if said.startswith("[  SKIPPED ]") else said
    return lines[-1] if lines else ""


def main(path):
    tests = {}  # by reason, in ctest's order
    for case in xml.parse(path).getroot().iter("testcase"):
        if case.find("skipped") is not None:
            why = reason(case.findtext("system-out") or "") or "the test does not say why"
            tests.setdefault(why, []).append(case.get("name"))
    count = sum(map(len, tests.values()))
    if count:
        print(f"{count} {'test was' if count == 1 else 'tests were'} skipped:")
    for why, names in tests.items():
        print(f"  {len(names)}: {why} ({names[0]}{', ..' if len(names) > 1 else ''})")


main(sys.argv[1])
