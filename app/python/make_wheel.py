#!/usr/bin/env python3
"""Writes Gradloom's wheel: the package, libgradloom.so, its plugin for ranks and the libraries it needs; one file for every Python from 3.9.

    make_wheel.py VERSION LIBRARY FOLDER [WHERE=FILE ..]

LIBRARY becomes gradloom/libgradloom.so. WHERE is lib or lib/fallback, where the library's RPATH looks, or ".", beside it. The tag says what the library
needs: x86-64 Linux with glibc 2.36. Equal inputs give equal bytes. Prints the wheel's path. ./dev wheel calls this.
"""

import base64
import hashlib
import os
import sys
import zipfile

PACKAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "gradloom")
TAG = "py3-none-manylinux_2_36_x86_64"
METADATA = """Metadata-Version: 2.1
Name: gradloom
Version: {version}
Summary: Profiler and optimizer of neural-network training graphs, with its own training engine
Requires-Python: >=3.9
License: MIT
Description-Content-Type: text/markdown

Two lines in a PyTorch script:

```python
from gradloom.torch import Module
model = Module(model)
```

PyTorch 1.13 or newer is needed for gradloom.torch; it is not installed with this package.
"""
# torch.compile(model, backend="gradloom")
ENTRY_POINTS = """[torch_dynamo_backends]
gradloom = gradloom.torch:backend
"""


def sources():
    """(name in the wheel, file) of the package."""
    for folder, folders, files in os.walk(PACKAGE):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        for name in sorted(files):
            path = os.path.join(folder, name)
            yield "gradloom/" + os.path.relpath(path, PACKAGE), path


def main(version, library, folder, *libraries):
    info = f"gradloom-{version}.dist-info"
    path = os.path.join(folder, f"gradloom-{version}-{TAG}.whl")
    record = []
    with zipfile.ZipFile(path + ".part", "w", zipfile.ZIP_DEFLATED) as wheel:

        def write(name, data, mode=0o644):
            entry = zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0))
            entry.external_attr, entry.compress_type = (0o100000 | mode) << 16, zipfile.ZIP_DEFLATED
            wheel.writestr(entry, data)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record.append(f"{name},sha256={digest},{len(data)}")

        def copy(name, source, mode=0o644):
            with open(source, "rb") as file:
                write(name, file.read(), mode)

        for name, source in sources():
            copy(name, source)
        copy("gradloom/libgradloom.so", library, 0o755)
        for pair in libraries:
            where, source = pair.split("=", 1)
            copy(os.path.normpath(f"gradloom/{where}/{os.path.basename(source)}"), source, 0o755)
        write(f"{info}/METADATA", METADATA.format(version=version).encode())
        write(f"{info}/WHEEL", f"Wheel-Version: 1.0\nGenerator: gradloom\nRoot-Is-Purelib: false\nTag: {TAG}\n".encode())
        write(f"{info}/top_level.txt", b"gradloom\n")
        write(f"{info}/entry_points.txt", ENTRY_POINTS.encode())
        record.append(f"{info}/RECORD,,")
        wheel.writestr(zipfile.ZipInfo(f"{info}/RECORD", (2020, 1, 1, 0, 0, 0)), "\n".join(record) + "\n")
    os.replace(path + ".part", path)
    print(path)


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
