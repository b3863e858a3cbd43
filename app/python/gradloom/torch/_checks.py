"""Checks of a forward that is traced: a tensor whose truth decides whether the code goes on or raises.

    if labels.max() >= vocabulary: raise ValueError(..)        assert mask.all()

A trace goes on, and the file tells whether a call would have raised. Which way leads to nothing but a raise is seen in the code of the
frame that asks for the truth.
"""

import dis
from types import FrameType
from typing import Dict, List, Optional, Tuple

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


def passing(frame: FrameType) -> Optional[bool]:
    """The truth of what the frame's current instruction asks for with which its code goes on, where the other leads to a raise alone."""
    at, code, places = _current(frame)
    while code[at].opname.startswith("CALL") and code[at + 1].opname.startswith("RETURN") and frame.f_back is not None:
        frame = frame.f_back  # whose call gives the truth
        at, code, places = _current(frame)
    negated = False
    if code[at].opname.startswith("CALL") or (code[at].opname == "COMPARE_OP" and "bool" in code[at].argrepr):
        at += 1  # what asks for the truth of its result
    while at < len(code) and code[at].opname in ("UNARY_NOT", "TO_BOOL"):
        negated = negated != (code[at].opname == "UNARY_NOT")
        at += 1
    jump = code[at] if at < len(code) else None
    if jump is None or not jump.opname.startswith("POP_JUMP") or not jump.opname.endswith(("IF_TRUE", "IF_FALSE")) or jump.argval not in places:
        return None
    jumps_if = jump.opname.endswith("IF_TRUE") != negated
    ways = {jumps_if: places[jump.argval], not jumps_if: at + 1}
    raising = [truth for truth, index in ways.items() if _raises(code, places, index, frame)]
    return not raising[0] if len(raising) == 1 else None


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
