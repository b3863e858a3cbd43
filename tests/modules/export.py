#!/usr/bin/env python3
"""Writes the test folders of this directory: modules of cases.py as PyTorch exports them, with float64 references.

    /usr/bin/python3 tests/modules/export.py [--only GLOB] [--out FOLDER]    # cases of the TorchScript exporter
    VENV/bin/python  tests/modules/export.py [--only GLOB] [--out FOLDER]    # cases of the dynamo exporter

The first needs Debian's python3-torch (1.13.1) and python3-onnx; VENV holds torch 2.15.0, onnx 1.19.0 and onnxscript 0.7.2
from PyPI (onnx 1.23.2 for the cases of opset 22 and of IR 9 and 11). An interpreter writes the cases whose exporter it has. The repository's build and tests need none of this,
because what is written is committed.

NAME/model.onnx
    Exported as for training: training mode unless the case is one of inference, no constant folding by TorchScript.
    Output 0 is `loss`, a scalar: the module's own, or the mean of each of its outputs times the input `weight_N`. What the
    dynamo exporter keeps of a node besides its scope (the Python stack, the traced node) is left out, and what it keeps of
    initializers where no parameter is merged or folded; cases that are `traced` keep the traced node.
NAME/test_data_set_0/
    Inputs (floats in float32), the loss and its gradient by every parameter and float input, computed by PyTorch in
    float64 from the float32 inputs and weights and stored in float64. The gradient by weight_N is output N over its size,
    so the module's outputs are compared as well.

NAME/batches.npz, NAME/training.json
    Of cases with `steps`: the inputs as a batch that repeats, and the losses of that many steps of Adam in float64.

Constants: an exported file holds epsilons, slopes and the like as float32. The cases use numbers that float32 has, and
semantics_of_file() gives the references the rest (GELU's square roots, SELU's two constants, a sixth).
"""

import argparse
import contextlib
import fnmatch
import json
import logging
import math
import os
import shutil
import sys
import warnings
import zlib
from unittest import mock

import numpy as np
import onnx
import onnx.checker
import onnx.numpy_helper
import torch
from torch.nn import functional

sys.dont_write_bytecode = True
import cases  # noqa: E402

FOLDER = os.path.dirname(os.path.abspath(__file__))
LEARNING_RATE = 0.02
HAS_DYNAMO = int(torch.__version__.split(".")[0]) >= 2
KEPT_METADATA = ("pkg.torch.onnx.name_scopes", "pkg.torch.onnx.class_hierarchy", "namespace")
PROVENANCE = ("pkg.torch.export.ExportedProgram.graph_signature", "pkg.torch.export.graph_signature.InputSpec.kind",
              "pkg.onnxscript.optimizer.folded_from")  # fmt: skip


TRACED = ("pkg.torch.onnx.fx_node",)


class WithLoss(torch.nn.Module):
    """`module` with one scalar output; `weights` inputs follow its own."""

    def __init__(self, module, weights):
        super().__init__()
        self.body, self.weights = module, weights

    def forward(self, *inputs):
        if self.weights == 0:
            return self.body(*inputs)
        own = len(inputs) - self.weights
        outputs = tensors(self.body(*inputs[:own]))
        return sum((y * weight).mean() for y, weight in zip(outputs, inputs[own:]))


def tensors(outputs):
    """The tensors of nested tuples, in order."""
    if isinstance(outputs, torch.Tensor):
        return [outputs]
    return [tensor for output in outputs for tensor in tensors(output)]


def gelu_of_file(x, approximate="none"):
    if approximate == "tanh":
        beta, kappa = cases.f32(math.sqrt(2 / math.pi)), cases.f32(0.044715)
        return 0.5 * (x * (1.0 + torch.tanh(beta * (x + kappa * (x * (x * x))))))
    return x * (torch.erf(x / cases.f32(math.sqrt(2))) + 1.0) * 0.5


def selu_of_file(x):
    alpha, gamma = cases.f32(1.67326324), cases.f32(1.05070099)
    return gamma * torch.where(x > 0, x, alpha * (torch.exp(x) - 1))


def hardsigmoid_of_file(x):
    return torch.clamp(x * cases.f32(1 / 6) + 0.5, 0, 1)


@contextlib.contextmanager
def semantics_of_file(case):
    with contextlib.ExitStack() as stack:
        if case.exporter == "torchscript" or case.opset < 20:  # before Gelu was an operator
            for name, body in [("gelu", gelu_of_file), ("selu", selu_of_file), ("hardsigmoid", hardsigmoid_of_file)]:
                stack.enter_context(mock.patch.object(functional, name, body))
        yield


def make_module(case):
    """Always the same, by the case's name; float32."""
    torch.manual_seed(zlib.crc32(case.name.encode()))
    module = case.make()
    with torch.no_grad():
        for parameter in () if case.fresh else module.parameters():
            parameter += 0.125 * torch.randn_like(parameter)  # no ones and zeros: each weight counts
        for name, buffer in module.named_buffers():
            if name.endswith("running_mean"):
                buffer += 0.25 * torch.randn_like(buffer)
            if name.endswith("running_var"):
                buffer *= 0.5 + torch.rand_like(buffer)
    return module.train(case.train)


def make_inputs(case):
    torch.manual_seed(zlib.crc32(case.name.encode()) + 1)
    inputs = {name: make() for name, make in case.inputs.items()}
    outputs = tensors(make_module(case)(*(value.clone() for value in inputs.values())))
    if len(outputs) > 1 or outputs[0].dim() > 0:
        inputs.update({f"weight_{i}": torch.randn(y.shape) for i, y in enumerate(outputs)})
    return inputs


def make_pair(case):
    """A module with a loss for a float32 export or a float64 reference, and its inputs."""
    inputs = make_inputs(case)
    return WithLoss(make_module(case), len(inputs) - len(case.inputs)).train(case.train), inputs


def export_torchscript(case, module, inputs, path):
    torch.onnx.export(
        module,
        tuple(inputs.values()),
        path,
        input_names=list(inputs),
        output_names=["loss"],
        dynamic_axes={name: {0: "batch"} for name in case.dynamic + (("weight_0",) if module.weights and case.dynamic else ())},
        training=torch.onnx.TrainingMode.TRAINING if case.train else torch.onnx.TrainingMode.EVAL,
        do_constant_folding=False,
        opset_version=case.opset,
    )


def export_dynamo(case, module, inputs, path):
    batch = torch.export.Dim("batch", min=2) if case.dynamic else None
    dynamic = {name: {0: batch} if name in case.dynamic + ("weight_0",) else None for name in inputs} if batch else None
    torch.onnx.export(
        module,
        tuple(inputs.values()),
        path,
        input_names=list(inputs),
        output_names=["loss"],
        dynamic_shapes=None if dynamic is None else (tuple(dynamic.values()),),
        dynamo=True,
        opset_version=case.opset,
        external_data=case.external,
        optimize=case.optimize,
        verbose=False,
    )


def strip(path, ir, kept_metadata):
    """Leaves that of what the dynamo exporter writes about nodes and values, and sets the IR version (0: leaves it too)."""
    proto = onnx.load(path, load_external_data=False)
    proto.ir_version = ir or proto.ir_version
    containers = [proto, proto.graph, *proto.graph.input, *proto.graph.output, *proto.graph.value_info, *proto.graph.initializer]
    for f in proto.functions:
        containers += [f, *f.node, *f.value_info]
    for item in containers + list(proto.graph.node):
        kept = [p for p in item.metadata_props if p.key in kept_metadata]
        del item.metadata_props[:]
        item.metadata_props.extend(kept)
        item.doc_string = ""
    onnx.save(proto, path)


def equal_part(array):
    """The first of the equal parts along each axis where they are equal."""
    for axis in range(array.ndim):
        first = array.take([0], axis)
        if np.array_equal(array, np.broadcast_to(first, array.shape)):
            array = first
    return array


def slice_of(array, value):
    """Where the part of `value` along its second axis lies that `array` is; None: it is no such part."""
    if array.ndim != value.ndim or array.ndim < 2:
        return None
    for start in range(value.shape[1] - array.shape[1] + 1):
        if np.array_equal(value[:, start : start + array.shape[1]], array):
            return slice(start, start + array.shape[1])
    return None


def rows_of(array, table):
    """(axis, order): the table's rows along `axis`, in the order of their first use, that all vectors of `array` along one of
    its axes are among; None: there are others."""
    for axis in range(table.ndim):
        rows = np.moveaxis(table, axis, 0).reshape(table.shape[axis], -1)
        for along in range(array.ndim):
            if array.shape[along] != rows.shape[1]:
                continue
            equal = (np.moveaxis(array, along, -1).reshape(-1, 1, rows.shape[1]) == rows).all(-1)
            if equal.any(1).all():
                return axis, list(dict.fromkeys(equal.argmax(1).tolist()))
    return None


def places_in_file(path, module, restored):
    """{parameter: (its initializer's name, shape, transposed)}: by name, else by contents, which the dynamo exporter may
    have transposed or given another shape. A second copy of a parameter is an error: its gradient is in two parts.
    restored: unless the file tells that it is one; and parameters of equal numbers, and expanded ones, come back under
    their names."""
    initializers = {i.name: onnx.numpy_helper.to_array(i) for i in onnx.load(path).graph.initializer}
    parameters = {name: parameter.detach().numpy() for name, parameter in module.named_parameters()}
    places = {name: (name, value.shape, False) for name, value in parameters.items() if name in initializers}
    if restored:
        places.update({name: (name, value.shape, False) for name, value in parameters.items() if np.ptp(value) == 0})
    free = {name: array for name, array in initializers.items() if name not in places}
    for name, value in parameters.items():
        for transposed in (False, True):
            flat = (value.T if transposed else value).reshape(-1)
            match = [n for n, array in free.items() if np.array_equal(array.reshape(-1), flat)]
            if match and name not in places:
                places[name] = (match[0], free.pop(match[0]).shape, transposed)
    if restored:
        for name, value in parameters.items():
            if name in places:
                continue
            gathered = [found for array in free.values() if array.size > value.size and (found := rows_of(array, value))]
            contracted = [part for array in free.values() if np.array_equal((part := equal_part(array)).reshape(-1), value.reshape(-1))]
            if contracted:
                places[name] = (name, contracted[0].shape, False)
            elif gathered:
                places[name] = (name + "/rows", gathered[0], False)
            else:  # a slice
                slices = [(n, at) for n, array in free.items() if (at := slice_of(array, value)) is not None]
                if slices:
                    places[name] = (slices[0][0], slices[0][1], False)
    for name, (place, _, _) in places.items():
        value = parameters[name]
        copies = [n for n, a in free.items() if a.size > 4 and any(np.array_equal(a, v) for v in (value, value.T))]
        assert restored or not copies, f"{copies[0]} is a copy of parameter {name}"
    return places


def write_tensor(folder, name, array, tensor_name):
    with open(os.path.join(folder, name), "wb") as file:
        file.write(onnx.numpy_helper.from_array(np.asarray(array, order="C"), tensor_name).SerializeToString())


def write_references(case, folder, places):
    os.makedirs(folder)
    with semantics_of_file(case):
        module, inputs = make_pair(case)
    module = module.double()
    values = [value.double() if value.is_floating_point() else value for value in inputs.values()]
    for value in values:
        value.requires_grad_(value.is_floating_point())
    with semantics_of_file(case):
        loss = module(*values)
    loss.backward()
    assert loss.dim() == 0 and bool(torch.isfinite(loss)), loss
    gradients = {name: value.grad for name, value in zip(inputs, values) if value.is_floating_point()}
    for name, parameter in module.named_parameters():
        if parameter.grad is None:
            continue
        assert name in places, f"parameter {name} is not in the file"
        initializer, shape, transposed = places[name]
        if isinstance(shape, slice):
            gradients[initializer] = parameter.grad[:, shape]
            continue
        if initializer.endswith("/rows"):
            axis, order = shape
            gradients[initializer] = parameter.grad.movedim(axis, 0)[order].contiguous()
            continue
        gradients[initializer] = (parameter.grad.t() if transposed else parameter.grad).reshape(shape)
    for index, (name, value) in enumerate(inputs.items()):
        write_tensor(folder, f"input_{index}.pb", value.detach().numpy(), name)
    write_tensor(folder, "output_0.pb", loss.detach().numpy(), "loss")
    written = {name: value for name, value in gradients.items() if value is not None}
    for index, (name, value) in enumerate(written.items()):
        assert bool(torch.isfinite(value).all()), name
        write_tensor(folder, f"grad_{index}.pb", value.numpy(), name)
    return len(written)


def write_training(case, folder):
    with semantics_of_file(case):
        module, inputs = make_pair(case)
        module = module.double()
        values = [value.double() if value.is_floating_point() else value for value in inputs.values()]
        optimizer = torch.optim.Adam(module.parameters(), lr=LEARNING_RATE)
        losses = []
        for _ in range(case.steps):
            optimizer.zero_grad()
            loss = module(*values)
            loss.backward()
            optimizer.step()
            losses.append(float(loss))
    np.savez_compressed(os.path.join(folder, "batches.npz"), **{name: value.numpy()[None] for name, value in inputs.items()})
    with open(os.path.join(folder, "training.json"), "w") as file:
        json.dump({"optimizer": f"adam{{lr={LEARNING_RATE}}}", "losses": losses}, file, indent=1)
        file.write("\n")


def write_case(case, root):
    folder = os.path.join(root, case.name)
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    path = os.path.join(folder, "model.onnx")
    module, inputs = make_pair(case)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        export = export_dynamo if case.exporter == "dynamo" else export_torchscript
        export(case, module, inputs, path)
    if case.exporter == "dynamo":
        strip(path, case.ir, KEPT_METADATA + (PROVENANCE if case.restored else ()) + (TRACED if case.traced else ()))
    onnx.checker.check_model(path)
    count = write_references(case, os.path.join(folder, "test_data_set_0"), places_in_file(path, module, case.restored))
    if case.steps:
        write_training(case, folder)
    operators = sorted({node.op_type for node in onnx.load(path, load_external_data=False).graph.node})
    print(f"{case.name}: opset {case.opset}, {count} gradients, {', '.join(operators)}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="*", metavar="GLOB", help="write the cases of these names")
    parser.add_argument("--out", default=FOLDER, help="the folder to write to (default: the script's own)")
    options = parser.parse_args()
    logging.disable(logging.WARNING)  # of the exporter, about packages it does not find
    torch.set_num_threads(1)  # sums in one order: the same bytes from every run
    assert len({case.name for case in cases.CASES}) == len(cases.CASES), "names are distinct"
    failed = []
    for case in cases.CASES:
        if (case.exporter == "dynamo") != HAS_DYNAMO or not fnmatch.fnmatch(case.name, options.only):
            continue
        try:
            write_case(case, options.out)
        except Exception as error:
            shutil.rmtree(os.path.join(options.out, case.name), ignore_errors=True)
            failed.append(f"{case.name}: {type(error).__name__}: {str(error)[:300]}")
            print("FAILED " + failed[-1], flush=True)
    sys.exit("\n".join(failed) if failed else 0)


if __name__ == "__main__":
    main()
