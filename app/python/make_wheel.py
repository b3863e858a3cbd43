#!/usr/bin/env python3
"""Writes Gradloom's wheel: the package, the program and libgradloom.so with what they need; one file for every Python from 3.9.

    make_wheel.py VERSION PLATFORM TREE FOLDER

TREE/gradloom holds what is not Python and becomes part of the package: the program (gradloom), libgradloom.so, plugins, libraries of
others, the sample job. PLATFORM is the tag, which says what these need, such as manylinux_2_35_x86_64: glibc 2.35, and the libraries that every
such system has (PEP 600). Equal inputs give equal bytes. Prints the wheel's path in FOLDER. ./dev wheel calls this.
"""

import base64
import hashlib
import os
import sys
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
LICENSE = os.path.join(os.path.dirname(os.path.dirname(HERE)), "LICENSE")
METADATA = """Metadata-Version: 2.1
Name: gradloom
Version: {version}
Summary: Profiler and optimizer of neural-network training graphs, with its own training engine
Requires-Python: >=3.9
License: MIT
License-File: LICENSE
Description-Content-Type: text/markdown

Two lines in a PyTorch script:

```python
from gradloom.torch import Module
model = Module(model)
```

and the command `gradloom`, with its window: `gradloom open`, `train`, `compare`, `tune`, .. (`gradloom help`).

PyTorch 1.13 or newer is needed for gradloom.torch; it is not installed with this package.
"""
# The command; torch.compile(model, backend="gradloom").
ENTRY_POINTS = """[console_scripts]
gradloom = gradloom.__main__:main

[torch_dynamo_backends]
gradloom = gradloom.torch:backend
"""


def files_of(tree):
    """(name in the wheel, file) of all in the folder tree/gradloom."""
    for folder, folders, files in os.walk(os.path.join(tree, "gradloom")):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        for name in sorted(files):
            path = os.path.join(folder, name)
            yield os.path.relpath(path, tree), path


def main(version, platform, tree, folder):
    info, tag = f"gradloom-{version}.dist-info", f"py3-none-{platform}"
    path = os.path.join(folder, f"gradloom-{version}-{tag}.whl")
    record = []
    with zipfile.ZipFile(path + ".part", "w", zipfile.ZIP_DEFLATED) as wheel:

        def write(name, data, mode=0o644):
            entry = zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0))
            entry.external_attr, entry.compress_type = (0o100000 | mode) << 16, zipfile.ZIP_DEFLATED
            wheel.writestr(entry, data)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record.append(f"{name},sha256={digest},{len(data)}")

        def copy(name, source):
            with open(source, "rb") as file:
                write(name, file.read(), 0o755 if os.access(source, os.X_OK) else 0o644)

        for part in (HERE, tree):
            for name, source in files_of(part):
                copy(name, source)
        copy(f"{info}/LICENSE", LICENSE)
        write(f"{info}/METADATA", METADATA.format(version=version).encode())
        write(f"{info}/WHEEL", f"Wheel-Version: 1.0\nGenerator: gradloom\nRoot-Is-Purelib: false\nTag: {tag}\n".encode())
        write(f"{info}/top_level.txt", b"gradloom\n")
        write(f"{info}/entry_points.txt", ENTRY_POINTS.encode())
        record.append(f"{info}/RECORD,,")
        wheel.writestr(zipfile.ZipInfo(f"{info}/RECORD", (2020, 1, 1, 0, 0, 0)), "\n".join(record) + "\n")
    os.replace(path + ".part", path)
    print(path)


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    main(*sys.argv[1:])
