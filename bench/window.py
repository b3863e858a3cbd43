#!/usr/bin/env python3
"""How long the window takes over large graphs: until its first picture, for a plan with other passes, for a frame.

    /usr/bin/python3 bench/window.py [--nodes 1000,10000,50000] [--runs 3] [--size 1600x900]

    nodes   first picture  whole step  planned again  frame at rest  frame panned  rasterized  peak memory
    10000   0.61 s         2.10 s      1.02 s         3.1 ms         3.4 ms        210 ms      272 MiB

The first picture has the model's graph; the whole step is there when its plan is, with and without passes.

A decoder-like model is written for each size: `--nodes` is what the whole training step has before passes, about. The window is the
headless one, driven by scripts. Times are between pictures that it writes, less what writing one takes, the median of some runs. A
frame is what the program makes of it, from panels to draw lists; the pixels are the graphics driver's and are timed by themselves:
`rasterized` is a picture by the software rasterizer of a machine without a GPU, with its PNG file.
`--opened` tries the whole graph with every scope open, where nothing is folded.
"""

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time

import numpy
import onnx
import onnx.numpy_helper as numpy_helper

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
WIDTH = 16
PER_BLOCK = 6  # ONNX nodes
STEP_PER_NODE = 3.2  # nodes of the step for each of the model
PANS = 20
PAN_FRAMES = 18  # of one drag


def write_model(path, nodes):
    """Blocks of two linear layers with a residual, named by module as exporters do."""
    make = onnx.helper.make_node
    blocks = max(1, round(nodes / STEP_PER_NODE / PER_BLOCK))
    rng = numpy.random.default_rng(0)
    graph_nodes, parameters, x = [], [], "x"
    for b in range(blocks):
        scope = f"/blocks.{b // 32}/layers.{b % 32}"
        names = {}
        for part in ("fc1", "fc2"):
            for kind, shape in (("weight", (WIDTH, WIDTH)), ("bias", (WIDTH,))):
                name = f"blocks.{b // 32}.layers.{b % 32}.{part}.{kind}"
                value = (rng.standard_normal(shape) * 0.05).astype(numpy.float32)
                parameters.append(numpy_helper.from_array(value, name))
                names[part, kind] = name
        y = x
        for part in ("fc1", "fc2"):
            out = f"{scope}/{part}"
            graph_nodes.append(make("MatMul", [y, names[part, "weight"]], [out + "/MatMul_out"], f"{out}/MatMul"))
            graph_nodes.append(make("Add", [out + "/MatMul_out", names[part, "bias"]], [out + "/Add_out"], f"{out}/Add"))
            y = out + "/Add_out"
            if part == "fc1":
                graph_nodes.append(make("Relu", [y], [f"{scope}/act/Relu_out"], f"{scope}/act/Relu"))
                y = f"{scope}/act/Relu_out"
        graph_nodes.append(make("Add", [x, y], [f"{scope}/Add_out"], f"{scope}/Add"))
        x = f"{scope}/Add_out"
    graph_nodes.append(make("ReduceMean", [x], ["loss"], "/loss/ReduceMean", keepdims=0))
    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        graph_nodes, "deep", [value("x", onnx.TensorProto.FLOAT, [4, WIDTH])], [value("loss", onnx.TensorProto.FLOAT, [])], parameters
    )
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 13)], ir_version=8), path)


def drive(options, folder, model, script):
    """Runs a script; pictures by name and when each was there, in seconds from the start."""
    path = os.path.join(folder, "script")
    pictures = []
    with open(path, "w") as out:
        for line in script:
            if line.startswith("picture "):
                pictures.append(line.split()[1])
                line = "screenshot " + os.path.join(folder, pictures[-1] + ".png")
            out.write(line + "\n")
    start = time.time_ns()
    subprocess.run(
        [options.gradloom, "open", model, "--loss", "loss", "--optimizer", "sgd", "--headless", "--script", path, "--size", options.size],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return {p: (os.stat(os.path.join(folder, p + ".png")).st_mtime_ns - start) * 1e-9 for p in pictures}


def measure(options, folder, model):
    pan = [f"drag graph {dx} 0 right" for _ in range(PANS // 2) for dx in (-200, 200)]
    opened = ["hover graph", "click graph.expand", "wait idle", "hover graph", "key home", "wait 5"] if options.opened else []
    script = ["wait until graph ?*", "picture first", "wait idle", "picture whole"] + opened + ["picture a", "picture b", "wait 200", "picture rest"] + pan + ["picture panned"]
    script += ["click pass.fuse-elementwise", "wait idle", "picture planned"]
    at = drive(options, folder, model, script)
    picture = at["b"] - at["a"]
    return {
        "first": at["first"],
        "whole": at["whole"],
        "planned": at["planned"] - at["panned"] - picture,
        "rest": (at["rest"] - at["b"] - picture) / 200,
        "panned": (at["panned"] - at["rest"] - picture) / (PANS * PAN_FRAMES),
        "picture": picture,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", default="1000,10000,50000")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--size", default="1600x900")
    parser.add_argument("--opened", action="store_true")
    parser.add_argument("--gradloom", default=os.path.join(ROOT, "build", "release", "gradloom"))
    options = parser.parse_args()
    print("nodes   first picture  whole step  planned again  frame at rest  frame panned  rasterized  peak memory")
    with tempfile.TemporaryDirectory() as folder:
        for nodes in map(int, options.nodes.split(",")):
            model = os.path.join(folder, f"deep-{nodes}.onnx")
            write_model(model, nodes)
            runs = [measure(options, folder, model) for _ in range(options.runs)]
            m = {key: statistics.median(run[key] for run in runs) for key in runs[0]}
            # The largest child so far: sizes are measured from the smallest up.
            peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
            print(
                f"{nodes:<7} {m['first']:<12.2f} s {m['whole']:<9.2f} s {m['planned']:<12.2f} s {1e3 * m['rest']:<11.2f} ms "
                f"{1e3 * m['panned']:<10.2f} ms {1e3 * m['picture']:<8.0f} ms {peak:.0f} MiB",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
