#!/usr/bin/env python3
"""Makes onnxruntime_profile.json.gz: what ONNX Runtime 1.19 writes of three calls of tests/models/bert-tiny.

    python3 tests/profiler/import/make_onnxruntime_profile.py      # of a Python with onnxruntime and numpy

Its test is of a real file of that program, beside those of texts that were made for it.
"""

import gzip
import os
import tempfile

import numpy
import onnxruntime

HERE = os.path.dirname(os.path.abspath(__file__))
MODEL = os.path.join(os.path.dirname(os.path.dirname(HERE)), "models", "bert-tiny", "model.onnx")


def main():
    with tempfile.TemporaryDirectory() as folder:
        options = onnxruntime.SessionOptions()
        options.enable_profiling = True
        options.profile_file_prefix = os.path.join(folder, "p")
        options.intra_op_num_threads = 1
        session = onnxruntime.InferenceSession(MODEL, options, providers=["CPUExecutionProvider"])
        feeds = {}
        for value in session.get_inputs():
            shape = [dim if isinstance(dim, int) else 4 for dim in value.shape]
            kind = numpy.int64 if "int64" in value.type else numpy.float32
            feeds[value.name] = numpy.zeros(shape, kind) if kind is numpy.int64 else numpy.ones(shape, kind)
        for _ in range(3):
            session.run(None, feeds)
        with open(session.end_profiling(), "rb") as profile:
            text = profile.read()
    with gzip.GzipFile(os.path.join(HERE, "onnxruntime_profile.json.gz"), "wb", 9, mtime=0) as packed:
        packed.write(text)


if __name__ == "__main__":
    main()
