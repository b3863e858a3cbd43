"""A backend of torch.compile: TorchDynamo follows the Python of a forward, also where it reads tensors' values, and hands over the
graphs between; the engine computes each as it computes a wrapped module (_module.py)."""

import collections
import re
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import torch

from ._module import Module

_MEMBER = re.compile(r"_(?:modules|parameters|buffers)\['([^']+)'\]")
_SYMBOLIC: Any = getattr(torch, "SymInt", ())
_MOST_MODULES = 64  # of a graph that many modules of one class share, as the blocks of a network that are compiled one by one


def backend(graph: torch.fx.GraphModule, examples: Sequence[Any], *, mode: Optional[str] = None,
            options: Optional[Dict[str, Any]] = None) -> Callable[..., Any]:  # fmt: skip
    """For torch.compile: forward and backward of what it hands over run in the engine.

        model = torch.compile(model, backend="gradloom")                 # where the wheel is installed
        model = torch.compile(model, backend=gradloom.torch.backend)     # the same

    Parts that Python decides on data (`if x.max() > 1`) run as ever, as does a graph with operators that the engine lacks: a warning
    names them once. Parameters and buffers are members as in Module, under their names.
    options: recipe, memory_budget, plans and fallback, as Module has them; fallback=None makes what the engine lacks an error.
    """
    if mode is not None:
        raise ValueError(f"mode={mode!r} is one of Inductor's: a recipe says what Gradloom does (options={{'recipe': ..}})")
    given = dict(options or {})
    unknown = sorted(set(given) - {"recipe", "memory_budget", "plans", "fallback"})
    if unknown:
        raise ValueError(f"gradloom's options are recipe, memory_budget, plans and fallback, not {', '.join(unknown)}")
    return _Compiled(graph, examples, {"fallback": "torch", **given})


class _Compiled:
    """A graph as it is called: a Module for each set of parameters and buffers that it is called with."""

    def __init__(self, graph: torch.fx.GraphModule, examples: Sequence[Any], options: Dict[str, Any]) -> None:
        self._graph, self._options = graph, options
        nodes = [node for node in graph.graph.nodes if node.op == "placeholder"]
        self._paths = _distinct([_path(node, example) for node, example in zip(nodes, examples)], [node.name for node in nodes])
        self._sizes = _sizes(nodes, examples)
        self._members = [i for i, path in enumerate(self._paths) if path is not None]
        self._arguments = [i for i, path in enumerate(self._paths) if path is None and i not in self._sizes]
        self._modules: "collections.OrderedDict[Tuple[int, ...], Module]" = collections.OrderedDict()

    def __call__(self, *values: Any) -> Any:
        key = tuple([id(values[i]) for i in self._members])
        module = self._modules.get(key)
        if module is None:
            members = {i: (str(self._paths[i]), values[i]) for i in self._members}
            module = self._modules[key] = Module(_Graph(self._graph, len(self._paths), members, self._sizes), **self._options)
            while len(self._modules) > _MOST_MODULES:
                self._modules.popitem(last=False)
        self._modules.move_to_end(key)
        return module(*[values[i] for i in self._arguments])


def _path(node: torch.fx.Node, example: Any) -> Optional[str]:
    """The name of a placeholder that is a module's parameter or buffer, as the module has it; None: it is an argument."""
    fixed = node.meta.get("tensor_dict", {}).get("_dynamo_static_input_type") is not None
    if not fixed and not isinstance(example, torch.nn.Parameter):
        return None
    source = getattr(node, "_dynamo_source", None)
    name = getattr(source, "name", "")
    return ".".join(_MEMBER.findall(name() if callable(name) else name)) or node.name


def _distinct(paths: List[Optional[str]], names: Sequence[str]) -> List[Optional[str]]:
    """Paths of which no two are one, or one is within another: modules of one function may have members of one name. Those have the
    placeholders' names instead."""
    known = [path for path in paths if path is not None]
    within = {path.rpartition(".")[0] for path in known}
    within |= {path[:i] for path in known for i, letter in enumerate(path) if letter == "."}
    return [path if path is None or (known.count(path) == 1 and path not in within) else name for path, name in zip(paths, names)]


def _sizes(nodes: Sequence[torch.fx.Node], examples: Sequence[Any]) -> Dict[int, Tuple[int, int]]:
    """Placeholders that are the size of an argument: of which, and along which axis."""
    known: Dict[str, Tuple[int, int]] = {}
    for i, node in enumerate(nodes):
        shape = getattr(node.meta.get("example_value"), "shape", ())
        for axis, size in enumerate(shape):
            if isinstance(size, _SYMBOLIC):
                known.setdefault(str(size), (i, axis))
    return {i: known[str(example)] for i, example in enumerate(examples) if isinstance(example, _SYMBOLIC) and str(example) in known}


class _Graph(torch.nn.Module):
    """A graph whose parameters and buffers, arguments there, are members again. What it has itself has names that no member can have."""

    def __init__(self, graph: torch.fx.GraphModule, count: int, members: Dict[int, Tuple[str, torch.Tensor]],
                 sizes: Dict[int, Tuple[int, int]]) -> None:  # fmt: skip
        super().__init__()
        self.add_module("(graph)", graph)
        self.__dict__["(places)"] = count, {i: self._held(path, tensor) for i, (path, tensor) in members.items()}, sizes

    def _held(self, path: str, tensor: torch.Tensor) -> Tuple[torch.nn.Module, str]:
        *outer, name = path.split(".")
        owner: torch.nn.Module = self
        for part in outer:
            held = owner._modules.get(part)
            if held is None:
                held = owner._modules[part] = torch.nn.Module()
            owner = held
        kind = owner._parameters if isinstance(tensor, torch.nn.Parameter) else owner._buffers
        kind[name] = tensor  # type: ignore[assignment]
        return owner, name

    def forward(self, *arguments: Any) -> Any:
        rest = iter(arguments)
        count, slots, sizes = self.__dict__["(places)"]
        values: List[Any] = [None] * count
        for i in range(count):
            if i in slots:
                owner, name = slots[i]
                values[i] = owner._parameters.get(name, owner._buffers.get(name))
            elif i not in sizes:
                values[i] = next(rest)
        for i, (tensor, axis) in sizes.items():
            values[i] = values[tensor].shape[axis]
        graph: Any = self._modules["(graph)"]
        return graph(*values)
