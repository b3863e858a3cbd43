"""The few things that are done to an ONNX file here, on protobuf's wire: no package is needed for them.

ModelProto: graph = 7, opset_import = 8, functions = 25. FunctionProto: node = 7. GraphProto: node = 1, initializer = 5, input = 11, output = 12. NodeProto: input = 1,
output = 2, name = 3, op_type = 4, attribute = 5, domain = 7, metadata_props = 9. AttributeProto: t = 5, g = 6, graphs = 11. ValueInfoProto: name = 1.
AttributeProto: name = 1, i = 3, s = 4, ints = 8, type = 20 (INT 2, STRING 3, INTS 7).
TensorProto: dims = 1, data_type = 2, name = 8, raw_data = 9, external_data = 13, data_location = 14. StringStringEntryProto: key = 1,
value = 2. OperatorSetIdProto: domain = 1.
"""

import re
from typing import Dict, Iterator, List, Mapping, NamedTuple, Sequence, Set, Tuple, Union

Piece = Union[bytes, memoryview]  # of a file


class Array(NamedTuple):
    """Contents of a tensor; dtype is ONNX's number, data little-endian and row-major."""

    dtype: int
    shape: Tuple[int, ...]
    data: memoryview


class External(NamedTuple):
    """A tensor whose contents are in another file of the model's folder."""

    dtype: int
    shape: Tuple[int, ...]
    file: str
    offset: int
    size: int  # bytes


def _varint(data: memoryview, at: int) -> Tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7


def _fields(data: memoryview) -> Iterator[Tuple[int, memoryview, memoryview]]:
    """(number, contents, the field as a whole); contents are empty where the field is a number."""
    at = 0
    while at < len(data):
        begin = at
        key, at = _varint(data, at)
        wire, contents = key & 7, data[0:0]
        if wire == 0:
            _, at = _varint(data, at)
        elif wire == 1:
            at += 8
        elif wire == 5:
            at += 4
        elif wire == 2:
            size, at = _varint(data, at)
            contents = data[at : at + size]
            at += size
        else:
            raise ValueError("no ONNX file")
        yield key >> 3, contents, data[begin:at]


def _graph(model: bytes) -> memoryview:
    return next((contents for number, contents, _ in _fields(memoryview(model)) if number == 7), memoryview(b""))


def operators(model: bytes) -> Set[str]:
    """Types of the nodes of the main graph, and of the model's functions."""
    nodes = [contents for number, contents, _ in _fields(_graph(model)) if number == 1]
    nodes += [node for field, function, _ in _fields(memoryview(model)) if field == 25 for number, node, _ in _fields(function) if number == 7]
    return {bytes(contents).decode() for node in nodes for number, contents, _ in _fields(node) if number == 4}


def _number(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _bytes_header(field: int, size: int) -> bytes:
    return _number(field << 3 | 2) + _number(size)


def _initializer(name: str, array: Union[Array, External]) -> List[Piece]:
    head = b"".join(_number(1 << 3) + _number(dim) for dim in array.shape) + _number(2 << 3) + _number(array.dtype) + _field(8, name.encode())
    if isinstance(array, External):
        for key, value in (("location", array.file), ("offset", str(array.offset)), ("length", str(array.size))):
            head += _field(13, _field(1, key.encode()) + _field(2, value.encode()))
        head += _number(14 << 3) + _number(1)
        return [_bytes_header(5, len(head)), head]
    head += _bytes_header(9, len(array.data))
    return [_bytes_header(5, len(head) + len(array.data)), head, array.data]


def _texts(message: memoryview, *numbers: int) -> Dict[int, str]:
    return {number: bytes(contents).decode() for number, contents, _ in _fields(message) if number in numbers}


def _field(number: int, contents: bytes) -> bytes:
    return _bytes_header(number, len(contents)) + contents


def _with_graph(model: bytes, parts: Sequence[Piece], without: str = "") -> bytes:
    """The model with a graph of these fields, and without the operators' domain that it has no more."""
    out: List[Piece] = []
    for number, contents, whole in _fields(memoryview(model)):
        if number == 7:
            out += [_bytes_header(7, sum(len(part) for part in parts)), *parts]
        elif number != 8 or not without or _texts(contents, 1).get(1) != without:
            out.append(whole)
    return b"".join(out)


# What the dynamo exporter says of a detached value: an Identity with the call that it was. Importers that know nothing of it lose nothing.
_DETACHED = _field(9, _field(1, b"pkg.torch.onnx.class_hierarchy") + _field(2, b"['aten.detach.default']"))


def with_detached(model: bytes, domain: str) -> bytes:
    """The model with the nodes of `domain` that detach their input in ONNX's own words."""
    parts: List[Piece] = []
    for number, node, whole in _fields(_graph(model)):
        if number == 1 and _texts(node, 4, 7) == {4: "StopGradient", 7: domain}:
            kept = [bytes(part) for field, _, part in _fields(node) if field not in (4, 7)]
            whole = memoryview(_field(1, b"".join([*kept, _field(4, b"Identity"), _DETACHED])))
        parts.append(whole)
    return _with_graph(model, parts, domain)


def with_scopes(model: bytes, scopes: Sequence[str]) -> bytes:
    """The model whose nodes have these scopes under their own names: an exporter puts numbers behind those that one module has again."""
    numbered = re.compile("/(" + "|".join(map(re.escape, scopes)) + r")_\d+(?=/)")
    taken = {name for name, _ in names(model)}
    if not any(map(numbered.search, taken)):
        return model
    parts: List[Piece] = []
    for number, node, whole in _fields(_graph(model)):
        name = _texts(node, 3).get(3, "") if number == 1 else ""
        plain = free = numbered.sub(r"/\1", name)
        if plain != name:
            count = 0
            while free in taken:
                count += 1
                free = f"{plain}_{count}"
            taken.add(free)
            whole = memoryview(_field(1, b"".join([*[part for field, _, part in _fields(node) if field != 3], _field(3, free.encode())])))
        parts.append(whole)
    return _with_graph(model, parts)


# What moves elements, and products, which have types of their own.
_MOVES = {"Identity", "StopGradient", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Expand", "Slice"}
_PRODUCTS = {"MatMul", "Gemm", "Conv", "ConvTranspose", "Einsum", "LSTM", "GRU", "RNN"}


class Label(NamedTuple):
    """A type that a script gives: what is behind the names of nodes that read such a value, and ONNX's number of a type that rounds."""

    behind: str
    rounds: int = 0


class _Typed(NamedTuple):
    """A value that has a type in the script: what it is made of."""

    source: str
    label: Label
    scope: str


def with_labels(model: bytes, domain: str, labels: Mapping[str, Label]) -> bytes:
    """The model without its nodes Typed of `domain`, in scopes that are called as the keys of `labels` where they have a type. What reads their values,
    also moved, has a label behind its name: one that rounds where it reads nothing else but constants. Others, but for products, read
    what is rounded."""
    if b"Typed" not in model:
        return model
    graph, typed = _graph(model), {}  # type: memoryview, Dict[str, _Typed]
    inside, rounded = _inner_names(graph) | set(outputs(model)), {}  # type: Set[str], Dict[str, str]
    parts: List[Piece] = []
    constants: Set[str] = {""}

    def read_as(name: str, rounding: bool) -> str:
        value = typed.get(name)
        if value is None or not (rounding and value.label.rounds):
            return name if value is None else value.source
        if name not in rounded:
            rounded[name] = f"{value.source}/rounded_{len(rounded)}"
            made = (f"{rounded[name]}/low", rounded[name])
            for source, result, to in zip((value.source, made[0]), made, (value.label.rounds, 1)):
                parts.append(_node([source], [result], f"{value.scope}/Cast/{result}", "Cast", [_attribute("to", to)]))
        return rounded[name]

    for number, node, whole in _fields(graph):
        if number != 1:
            parts.append(whole)
            continue
        texts = _texts(node, 3, 4, 7)
        name, operator, own = texts.get(3, ""), texts.get(4, ""), texts.get(7, "") == domain
        read, made = ([bytes(contents).decode() for field, contents, _ in _fields(node) if field == kind] for kind in (1, 2))
        found = [typed[value].label for value in read if value in typed and typed[value].label.behind]
        kept = [bytes(part) for field, _, part in _fields(node) if field not in (1, 2, 3, 4)]
        if operator == "Typed" and own:
            label = next((labels[part] for part in name.split("/") if part in labels), found[0] if found else Label(""))
            source = read_as(read[0], not label.rounds)
            typed[made[0]] = _Typed(source, label, "/".join(part for part in name.split("/")[:-1] if part not in labels))
            if made[0] in inside:
                parts.append(_node([source], made, name, "Identity", []))
            continue
        if found and operator in _MOVES:
            typed.update({value: _Typed(value, found[0], name) for value in made})
        constants.update(made if operator == "Constant" else ())
        plain = operator in _PRODUCTS or (own and operator != "StopGradient")
        rounds = bool(found) and all(label.rounds for label in found) and all(value in typed or value in constants for value in read)
        behind = "" if plain or not found else found[0].behind if rounds else next((label.behind for label in found if not label.rounds), "")
        sources = [read_as(value, not plain and not rounds) for value in read]
        parts.append(_node(sources, made, name + behind, operator, kept))
    return _with_graph(model, parts) if typed else model


def _node(read: Sequence[str], made: Sequence[str], name: str, operator: str, rest: Sequence[bytes]) -> bytes:
    fields = [_field(number, text.encode()) for number, texts in ((1, read), (2, made), (3, [name]), (4, [operator])) for text in texts]
    return _field(1, b"".join([*fields, *rest]))


def _inner_names(graph: memoryview) -> Set[str]:
    """Names of what the nodes of a graph's subgraphs read."""
    nodes = [contents for number, contents, _ in _fields(graph) if number == 1]
    graphs = [inner for node in nodes for field, attribute, _ in _fields(node) if field == 5
              for number, inner, _ in _fields(attribute) if number in (6, 11)]  # fmt: skip
    return {bytes(contents).decode() for inner in graphs for number, node, _ in _fields(inner) if number == 1
            for field, contents, _ in _fields(node) if field == 1}.union(*map(_inner_names, graphs))  # fmt: skip


# Other programs take the variance of the batch as ONNX says.
_UNBIASED = _field(9, _field(1, b"gradloom.running_variance") + _field(2, b"unbiased"))


def with_unbiased(model: bytes) -> bytes:
    """The model with PyTorch's running variance in its BatchNormalizations: that of a batch of n numbers times n / (n - 1)."""
    parts: List[Piece] = []
    for number, node, whole in _fields(_graph(model)):
        if number == 1 and _texts(node, 4)[4] == "BatchNormalization":
            whole = memoryview(_field(1, bytes(node) + _UNBIASED))
        parts.append(whole)
    return _with_graph(model, parts)


def _attribute(name: str, value: Union[int, str, Sequence[int]]) -> bytes:
    if isinstance(value, str):
        contents, kind = _field(4, value.encode()), 3
    elif isinstance(value, int):
        contents, kind = _number(3 << 3) + _number(value), 2
    else:
        contents, kind = b"".join(_number(8 << 3) + _number(item) for item in value), 7
    return _field(5, _field(1, name.encode()) + contents + _number(20 << 3) + _number(kind))


def integers(node: memoryview) -> Dict[str, int]:
    """Attributes of a node that are numbers."""
    found = {}
    for number, contents, _ in _fields(node):
        if number == 5:
            whole = next((whole for field, _, whole in _fields(contents) if field == 3), None)
            found[_texts(contents, 1)[1]] = _varint(whole, 1)[0] if whole is not None else 0
    return found


def with_host_calls(model: bytes, domain: str, calls: Sequence[Tuple[str, Mapping[str, Union[int, str, Sequence[int]]]]]) -> bytes:
    """The model whose nodes Outside, one for each result of a call, are one HostCall each, with this name and these attributes."""
    results: Dict[int, Dict[int, bytes]] = {}

    def is_outside(number: int, node: memoryview) -> bool:
        return number == 1 and _texts(node, 4, 7) == {4: "Outside", 7: domain}

    for number, node, _ in _fields(_graph(model)):
        if is_outside(number, node):
            numbers = integers(node)
            made = next(bytes(contents) for field, contents, _ in _fields(node) if field == 2)
            results.setdefault(numbers["call"], {})[numbers["result"]] = made
    parts: List[Piece] = []
    for number, node, whole in _fields(_graph(model)):
        if is_outside(number, node):
            call = integers(node)["call"]
            outputs_of = results.pop(call, None)
            if outputs_of is None:  # the first node has them all
                continue
            title, attributes = calls[call]
            kept = [bytes(part) for field, _, part in _fields(node) if field == 1]
            kept.append(_field(3, _texts(node, 3).get(3, "").replace("Outside", title).encode()))
            kept += [_field(2, outputs_of.get(index, b"")) for index in range(max(outputs_of) + 1)]
            kept += [_field(4, b"HostCall"), _field(7, domain.encode())]
            kept += [_attribute(name, value) for name, value in attributes.items()]
            whole = memoryview(_field(1, b"".join(kept)))
        parts.append(whole)
    return _with_graph(model, parts)


def with_constants(model: bytes) -> bytes:
    """The model with nodes Constant for its initializers: nothing of it is a parameter."""
    parts: List[Piece] = []
    for number, contents, whole in _fields(_graph(model)):
        if number == 5:
            name = _texts(contents, 8)[8].encode()
            value = _field(5, _field(1, b"value") + _field(5, bytes(contents)) + _number(20 << 3) + _number(4))
            parts.insert(0, _field(1, _field(2, name) + _field(3, b"/Constant/" + name) + _field(4, b"Constant") + value))
        else:
            parts.append(whole)
    return _with_graph(model, parts)


def with_initializers(model: bytes, arrays: Mapping[str, Union[Array, External]]) -> bytes:
    """The model with the inputs of these names as initializers."""
    parts: List[Piece] = []
    for number, contents, whole in _fields(_graph(model)):
        if number == 11:
            if _texts(contents, 1)[1] in arrays:
                continue
        parts.append(whole)
    for name, array in arrays.items():
        parts += _initializer(name, array)
    return _with_graph(model, parts)


def outputs(model: bytes) -> List[str]:
    """Names of the graph's outputs."""
    return [_texts(contents, 1)[1] for number, contents, _ in _fields(_graph(model)) if number == 12]


def read_names(model: bytes) -> Set[str]:
    """Names of what the nodes of the graph, those of its subgraphs, and its outputs read."""
    names, graphs = set(outputs(model)), [_graph(model)]
    while graphs:
        nodes = [contents for number, contents, _ in _fields(graphs.pop()) if number == 1]
        for field, contents, _ in (row for node in nodes for row in _fields(node)):
            if field == 1:
                names.add(bytes(contents).decode())
            elif field == 5:
                graphs += [graph for number, graph, _ in _fields(contents) if number in (6, 11)]
    return names


def names(model: bytes) -> List[Tuple[str, str]]:
    """(name, operator) of the nodes of the main graph."""
    texts = [_texts(node, 3, 4) for number, node, _ in _fields(_graph(model)) if number == 1]
    return [(text.get(3, ""), text.get(4, "")) for text in texts]
