"""Checks of a forward that is traced: a tensor whose truth decides whether the code goes on or raises.

    if labels.max() >= vocabulary: raise ValueError(..)        assert mask.all()

A trace goes on, and the file tells whether a call would have raised. Which way leads to nothing but a raise is seen in the code of the
frame that asks for the truth. So is what an `if` skips that asks whether there is anything to do (_rows.py).
"""

import dis
import re
import sys
from types import FrameType
from typing import Dict, List, NamedTuple, Optional, Set, Tuple

import torch

# What may lie on the way to a raise changes nothing that outlives it.
_ENDS = ("RETURN", "YIELD", "STORE_ATTR", "STORE_SUBSCR", "STORE_GLOBAL", "STORE_DEREF", "DELETE", "RERAISE", "SETUP", "IMPORT", "SEND", "FOR_ITER", "GET_")
_GOES = ("JUMP_FORWARD", "JUMP_ABSOLUTE", "JUMP_BACKWARD")


def _current(frame: FrameType) -> Tuple[int, List[dis.Instruction], Dict[int, int]]:
    """The index of the instruction that runs, the code, and the index by offset."""
    code: List[dis.Instruction] = []
    places: Dict[int, int] = {}
    for one in dis.get_instructions(frame.f_code):
        places[one.offset] = len(code)  # of a prefix: what follows it
        if one.opname in ("CACHE", "EXTENDED_ARG", "PRECALL"):
            continue
        code.append(one)
    return max(index for offset, index in places.items() if offset <= max(frame.f_lasti, 0)), code, places


class _Branch(NamedTuple):
    """Where code goes on."""

    frame: FrameType
    code: List[dis.Instruction]
    places: Dict[int, int]  # the index by offset
    ways: Dict[bool, int]  # the index of the instruction to which a truth leads


def _branch(frame: FrameType, compares: bool = False) -> Optional[_Branch]:
    """Behind what the frame's current instruction asks for; None: no jump follows. compares: the truth is a comparison's result."""
    at, code, places = _current(frame)
    while code[at].opname.startswith("CALL") and code[at + 1].opname.startswith("RETURN") and frame.f_back is not None:
        frame = frame.f_back  # whose call gives the truth
        at, code, places = _current(frame)
    negated = False
    if compares or code[at].opname.startswith("CALL") or (code[at].opname == "COMPARE_OP" and "bool" in code[at].argrepr):
        at += 1  # what asks for the truth of its result
    while at < len(code) and code[at].opname in ("UNARY_NOT", "TO_BOOL"):
        negated = negated != (code[at].opname == "UNARY_NOT")
        at += 1
    jump = code[at] if at < len(code) else None
    if jump is None or not jump.opname.startswith("POP_JUMP") or not jump.opname.endswith(("IF_TRUE", "IF_FALSE")) or jump.argval not in places:
        return None
    jumps_if = jump.opname.endswith("IF_TRUE") != negated
    return _Branch(frame, code, places, {jumps_if: places[jump.argval], not jumps_if: at + 1})


def passing(frame: FrameType) -> Optional[bool]:
    """The truth of what the frame's current instruction asks for with which its code goes on, where the other leads to a raise alone."""
    branch = _branch(frame)
    if branch is None:
        return None
    raising = [truth for truth, index in branch.ways.items() if _raises(branch.code, branch.places, index, branch.frame)]
    return not raising[0] if len(raising) == 1 else None


class Region(NamedTuple):
    """Code of a frame that a truth skips."""

    frame: FrameType
    indices: Set[int]  # of its instructions

    def runs(self) -> bool:
        """Whether this thread is in it, or in what it calls."""
        frame: Optional[FrameType] = sys._getframe(1)
        while frame is not None and frame is not self.frame:
            frame = frame.f_back
        return frame is not None and _current(frame)[0] in self.indices


# Methods that change what outlives the code, but tensors, whose changes a trace sees.
_CHANGES = {"append", "appendleft", "extend", "insert", "update", "setdefault", "pop", "remove", "clear"}


def skipped(frame: FrameType, truth: bool, compares: bool = False) -> Optional[Region]:
    """What `truth` of the frame's question skips; None where more than tensors may be changed there."""
    branch = _branch(frame, compares)
    if branch is None:
        return None
    behind = branch.ways[truth]
    while branch.code[behind].opname.startswith(_GOES):
        behind = branch.places[branch.code[behind].argval]
    return _region(branch.frame, branch.code, branch.places, branch.ways[not truth], behind)


def loop_body(frame: FrameType) -> Optional[Region]:
    """Of the `for` that begins in the frame; None: there is none, or more than tensors may be changed there."""
    at, code, places = _current(frame)
    if code[at].opname != "GET_ITER" or code[at + 1].opname != "FOR_ITER":
        return None
    return _region(frame, code, places, at + 2, at + 1)


def _region(frame: FrameType, code: List[dis.Instruction], places: Dict[int, int], start: int, behind: int) -> Optional[Region]:
    """The instructions from `start` to `behind`; None where more than tensors may be changed there, as far as the code tells: where it ends
    elsewhere, writes to objects, or leaves names that are read later."""
    left, region = [start], set()  # type: List[int], Set[int]
    while left:
        index = left.pop()
        if index == behind or index in region:
            continue
        region.add(index)
        one = code[index]
        if one.opname.startswith(_ENDS) and one.opname != "STORE_SUBSCR":
            return None
        left += _after(code, places, index)
    holders = [frame.f_locals.get(name) for index in region for kind, name in _names(code[index]) if kind == "LOAD"]
    writes = any(code[index].opname == "STORE_SUBSCR" for index in region)
    if any(code[index].argval in _CHANGES for index in region) or (writes and any(isinstance(value, (list, dict, set)) for value in holders)):
        return None
    stored = {name for index in region for kind, name in _names(code[index]) if kind == "STORE"}
    return None if any(_is_read(code, places, behind, name) for name in stored) else Region(frame, region)


def _after(code: List[dis.Instruction], places: Dict[int, int], index: int) -> List[int]:
    """The instructions that may follow one."""
    one = code[index]
    ends = index + 1 >= len(code) or one.opname.startswith((*_GOES, "RETURN", "RAISE", "RERAISE"))
    jumps = [places[one.argval]] if "JUMP" in one.opname or one.opname == "FOR_ITER" else []
    return jumps + ([] if ends else [index + 1])


def _names(one: dis.Instruction) -> List[Tuple[str, str]]:
    """The variables that an instruction loads and stores, in order."""
    kinds = re.findall(r"(LOAD|STORE|DELETE)_(?:FAST|NAME|DEREF|CLOSURE|CLASSDEREF|GLOBAL)", one.opname)
    return list(zip(kinds, one.argval if isinstance(one.argval, tuple) else (one.argval,)))


def _is_read(code: List[dis.Instruction], places: Dict[int, int], start: int, name: str) -> bool:
    """Whether a variable may be read from an instruction on before it is set."""
    left, seen = [start], set()  # type: List[int], Set[int]
    while left:
        index = left.pop()
        if index in seen:
            continue
        seen.add(index)
        kind = next((kind for kind, known in _names(code[index]) if known == name), None)
        if kind == "LOAD":
            return True
        if kind is None:
            left += _after(code, places, index)
    return False


def _caught(frame: FrameType, offset: int) -> bool:
    """Whether the frame's own code may catch what is raised there."""
    parse = getattr(dis, "_parse_exception_table", None)
    if parse is None:  # before Python 3.11, whose blocks are set up by instructions
        return any(one.opname.startswith("SETUP") for one in dis.get_instructions(frame.f_code))
    return any(entry.start <= offset < entry.end for entry in parse(frame.f_code))


def _raises(code: List[dis.Instruction], places: Dict[int, int], start: int, frame: FrameType) -> bool:
    """Whether all ways from an instruction of the frame end in a raise that leaves it."""
    left, seen = [start], set()
    while left:
        index = left.pop()
        if index in seen:
            continue
        seen.add(index)
        if index >= len(code):
            return False
        one = code[index]
        if one.opname == "RAISE_VARARGS":
            if _caught(frame, one.offset):
                return False
            continue
        if one.opname.startswith(_ENDS):
            return False
        if "JUMP" in one.opname:
            if one.argval not in places:
                return False
            left.append(places[one.argval])
        if not one.opname.startswith(_GOES):
            left.append(index + 1)
    return True


def failing(value: torch.Tensor, wanted: bool) -> torch.Tensor:
    """Whether a call's value is not what the code goes on with: one boolean."""
    value = value.reshape(())
    if value.dtype != torch.bool:
        return value == 0 if wanted else value != 0
    unlike = ~value
    return unlike if wanted else ~unlike
