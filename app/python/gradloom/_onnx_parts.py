"""A model file cut at its calls to the outside: nodes "Outside" with attributes call and result, one for each result of a call.

Part k runs before call k and the last part after all calls. What only constants lead to is in each part that reads it; other nodes
are in the last part in which they can be, so that what is made of parameters alone lies where it is read and does not cross.
"""

from typing import Dict, Iterator, List, NamedTuple, Sequence, Set, Tuple

from ._onnx_file import _bytes_header, _field, _fields, _graph, _number, _texts, integers


class _Node(NamedTuple):
    reads: List[str]  # by itself and by its subgraphs
    makes: List[str]
    operator: str
    whole: memoryview


class Part(NamedTuple):
    """A part's file, but for the types of what crosses into it."""

    inputs: List[str]
    outputs: List[str]
    nodes: List[memoryview]
    declared: Dict[str, memoryview]  # inputs of the whole
    initializers: List[memoryview]  # that it reads
    rest: List[memoryview]  # other fields of the model

    def file(self, types: Dict[str, Tuple[int, Sequence[int]]]) -> bytes:
        """types: (ONNX's number of the element type, shape) of the inputs that are none of the whole."""
        graph: List[bytes] = [*map(bytes, self.nodes), _field(2, b"part"), *map(bytes, self.initializers)]
        for name in self.inputs:
            graph.append(bytes(self.declared[name]) if name in self.declared else _field(11, _value(name, *types[name])))
        graph += [_field(12, _field(1, name.encode())) for name in self.outputs]
        body = b"".join(graph)
        return b"".join([*map(bytes, self.rest), _bytes_header(7, len(body)), body])


class Parts(NamedTuple):
    parts: List[Part]  # one more than there are calls; those without outputs have nothing to do
    reads: List[List[str]]  # for each call
    makes: List[Dict[int, str]]  # for each call: names of its results by their numbers, of those that are read
    constant: Set[str]  # of what calls read: made of constants alone


def _value(name: str, dtype: int, shape: Sequence[int]) -> bytes:
    dims = b"".join(_field(1, _number(1 << 3) + _number(dim)) for dim in shape)
    return _field(1, name.encode()) + _field(2, _field(1, _number(1 << 3) + _number(dtype) + _field(2, dims)))


def _reads(node: memoryview) -> Iterator[str]:
    """Names that a node, or a graph in it, reads of what surrounds it."""
    for number, contents, _ in _fields(node):
        if number == 1:
            yield bytes(contents).decode()
        elif number == 5:
            for field, graph, _ in _fields(contents):
                if field in (6, 11):
                    yield from _graph_reads(graph)


def _graph_reads(graph: memoryview) -> Set[str]:
    read: Set[str] = set()
    own: Set[str] = set()
    for number, contents, _ in _fields(graph):
        if number == 1:
            read.update(_reads(contents))
            own.update(bytes(name).decode() for field, name, _ in _fields(contents) if field == 2)
        elif number == 12:
            read.add(_texts(contents, 1)[1])
        elif number in (5, 11):
            key = 8 if number == 5 else 1
            own.add(_texts(contents, key)[key])
    return read - own


def _read(whole: memoryview, node: memoryview) -> _Node:
    makes = [bytes(contents).decode() for number, contents, _ in _fields(node) if number == 2]
    return _Node([name for name in _reads(node) if name], [name for name in makes if name], _texts(node, 4).get(4, ""), whole)


def cut(model: bytes, domain: str, calls: int, random: Set[str]) -> Parts:
    """random: operators whose results differ from call to call without inputs that do."""
    nodes: List[_Node] = []
    reads: List[List[str]] = [[] for _ in range(calls)]
    makes: List[Dict[int, str]] = [{} for _ in range(calls)]
    earliest: Dict[str, int] = {}  # part or part behind the call that makes a value; constants and inputs have none
    constant: Set[str] = set()
    declared: Dict[str, memoryview] = {}
    initializers: Dict[str, memoryview] = {}
    outputs: List[str] = []
    graph = list(_fields(_graph(model)))
    for number, contents, whole in graph:
        if number == 5:
            initializers[_texts(contents, 8)[8]] = whole
        elif number == 11:
            declared[_texts(contents, 1)[1]] = whole
        elif number == 12:
            outputs.append(_texts(contents, 1)[1])
    constant.update(initializers)
    for number, contents, whole in graph:
        if number != 1:
            continue
        node = _read(whole, contents)
        if _texts(contents, 7).get(7) == domain:
            numbers = integers(contents)
            reads[numbers["call"]] = node.reads
            makes[numbers["call"]][numbers["result"]] = node.makes[0]
            earliest[node.makes[0]] = numbers["call"] + 1
            continue
        nodes.append(node)
        if node.operator not in random and all(name in constant for name in node.reads):
            constant.update(node.makes)
        else:
            place = max([earliest.get(name, 0) for name in node.reads] + [0])
            earliest.update((name, place) for name in node.makes)
    parts = _place(nodes, reads, outputs, earliest, constant, calls)
    rest = [whole for number, contents, whole in _fields(memoryview(model))
            if number != 7 and not (number == 8 and _texts(contents, 1).get(1) == domain)]  # fmt: skip
    return Parts(
        [_part(own, wanted, declared, initializers, rest) for own, wanted in parts], reads, makes,
        {name for row in reads for name in row if name in constant},
    )  # fmt: skip


def _place(nodes: List[_Node], reads: List[List[str]], outputs: List[str], earliest: Dict[str, int], constant: Set[str],
           calls: int) -> List[Tuple[List[_Node], List[str]]]:  # fmt: skip
    """For each part its nodes and what others read of it."""
    latest: Dict[str, int] = {}  # by name: the first part that reads it

    def read(name: str, part: int) -> None:
        latest[name] = min(latest.get(name, part), part)

    for call, names in enumerate(reads):
        for name in names:
            read(name, call)
    for name in outputs:
        read(name, earliest.get(name, calls))
    of_part: List[List[_Node]] = [[] for _ in range(calls + 1)]
    for node in reversed(nodes):
        places = [latest[name] for name in node.makes if name in latest]
        if not places or all(name in constant for name in node.makes):
            continue
        for name in node.reads:
            read(name, min(places))
        of_part[min(places)].append(node)
    made = {name: part for part, own in enumerate(of_part) for node in own for name in node.makes}
    wanted: List[List[str]] = [[] for _ in range(calls + 1)]

    def want(name: str, part: int) -> None:
        if name in made and made[name] != part and name not in wanted[made[name]]:
            wanted[made[name]].append(name)

    for part, own in enumerate(of_part):
        for node in own:
            for name in node.reads:
                want(name, part)
    for name in [name for names in reads for name in names] + outputs:
        want(name, -1)
    wanted[calls] += [name for name in dict.fromkeys(outputs) if name in constant]
    constants = [node for node in nodes if node.makes and all(name in constant for name in node.makes)]
    return [([*_needed(constants, own, wanted[part]), *reversed(own)], wanted[part]) for part, own in enumerate(of_part)]


def _needed(constants: List[_Node], own: List[_Node], wanted: List[str]) -> List[_Node]:
    names, found = {name for node in own for name in node.reads} | set(wanted), []
    for node in reversed(constants):
        if any(name in names for name in node.makes):
            names.update(node.reads)
            found.append(node)
    return found[::-1]


def _part(nodes: List[_Node], wanted: List[str], declared: Dict[str, memoryview], initializers: Dict[str, memoryview],
          rest: List[memoryview]) -> Part:  # fmt: skip
    if not wanted:
        return Part([], [], [], {}, [], [])
    made = {name for node in nodes for name in node.makes}
    read = list(dict.fromkeys(name for node in nodes for name in node.reads))
    inputs = [name for name in read if name not in made and name not in initializers]
    return Part(inputs, wanted, [node.whole for node in nodes], {name: declared[name] for name in inputs if name in declared},
                [initializers[name] for name in read if name in initializers], rest)  # fmt: skip
