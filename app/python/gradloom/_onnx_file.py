"""The few things that are done to an ONNX file here, on protobuf's wire: no package is needed for them.

ModelProto: graph = 7, opset_import = 8. GraphProto: node = 1, initializer = 5, input = 11, output = 12. NodeProto: input = 1,
op_type = 4, attribute = 5, domain = 7, metadata_props = 9. AttributeProto: g = 6, graphs = 11. ValueInfoProto: name = 1.
TensorProto: dims = 1, data_type = 2, name = 8, raw_data = 9. OperatorSetIdProto: domain = 1.
"""

from typing import Dict, Iterator, List, NamedTuple, Set, Tuple


class Array(NamedTuple):
    """Contents of a tensor; dtype is ONNX's number, data little-endian and row-major."""

    dtype: int
    shape: Tuple[int, ...]
    data: memoryview


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
    """Types of the nodes of the main graph."""
    nodes = [contents for number, contents, _ in _fields(_graph(model)) if number == 1]
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


def _initializer(name: str, array: Array) -> List[bytes]:
    head = b"".join(_number(1 << 3) + _number(dim) for dim in array.shape) + _number(2 << 3) + _number(array.dtype)
    text = name.encode()
    head += _bytes_header(8, len(text)) + text + _bytes_header(9, len(array.data))
    return [_bytes_header(5, len(head) + len(array.data)), head, array.data]


def _texts(message: memoryview, *numbers: int) -> Dict[int, str]:
    return {number: bytes(contents).decode() for number, contents, _ in _fields(message) if number in numbers}


def _field(number: int, contents: bytes) -> bytes:
    return _bytes_header(number, len(contents)) + contents


# What the dynamo exporter says of a detached value: an Identity with the call that it was. Importers that know nothing of it lose nothing.
_DETACHED = _field(9, _field(1, b"pkg.torch.onnx.class_hierarchy") + _field(2, b"['aten.detach.default']"))


def with_detached(model: bytes, domain: str) -> bytes:
    """The model with its nodes of `domain`, all of which detach their input, in ONNX's own words."""
    parts: List[bytes] = []
    for number, node, whole in _fields(_graph(model)):
        if number == 1 and _texts(node, 7).get(7) == domain:
            kept = [bytes(part) for field, _, part in _fields(node) if field not in (4, 7)]
            whole = memoryview(_field(1, b"".join([*kept, _field(4, b"Identity"), _DETACHED])))
        parts.append(whole)
    out: List[bytes] = []
    for number, contents, whole in _fields(memoryview(model)):
        if number == 7:
            out += [_bytes_header(7, sum(len(part) for part in parts)), *parts]
        elif number != 8 or _texts(contents, 1).get(1) != domain:
            out.append(whole)
    return b"".join(out)


def with_initializers(model: bytes, arrays: Dict[str, Array]) -> bytes:
    """The model with the inputs of these names as initializers."""
    parts: List[bytes] = []
    for number, contents, whole in _fields(_graph(model)):
        if number == 11:
            name = next(bytes(text).decode() for field, text, _ in _fields(contents) if field == 1)
            if name in arrays:
                continue
        parts.append(whole)
    for name, array in arrays.items():
        parts += _initializer(name, array)
    out: List[bytes] = []
    for number, _, whole in _fields(memoryview(model)):
        if number == 7:
            out += [_bytes_header(7, sum(len(part) for part in parts)), *parts]
        else:
            out.append(whole)
    return b"".join(out)


def outputs(model: bytes) -> List[str]:
    """Names of the graph's outputs."""
    values = [contents for number, contents, _ in _fields(_graph(model)) if number == 12]
    return [next(bytes(text).decode() for field, text, _ in _fields(value) if field == 1) for value in values]


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


def domains(model: bytes) -> Set[Tuple[str, str]]:
    """(domain, operator) of the nodes of the main graph."""
    found = set()
    for number, node, _ in _fields(_graph(model)):
        if number == 1:
            texts = _texts(node, 4, 7)
            found.add((texts.get(7, ""), texts.get(4, "")))
    return found
