"""The command `gradloom` (also `python -m gradloom`): the program beside this package, in a wheel, or that of the source tree.

It takes this process's place, so that signals, terminal and exit code are its own.
"""

import os
import sys

from ._library import places


def main() -> None:
    """Becomes the program, with the words of this process's command line."""
    tried = places("gradloom")
    program = next((place for place in tried if os.access(place, os.X_OK)), None)
    if program is None:
        print(f"gradloom: there is no program {' or '.join(tried)}: install Gradloom's wheel, or run ./dev build", file=sys.stderr)
        sys.exit(5)
    try:
        os.execv(program, ["gradloom", *sys.argv[1:]])
    except OSError as error:
        print(f"gradloom: {program} does not start: {error.strerror}", file=sys.stderr)
        sys.exit(5)


if __name__ == "__main__":
    main()
