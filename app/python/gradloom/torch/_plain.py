"""Attributes of modules that are no parameters, buffers and submodules: numbers, texts, tensors, the fields of a config.

A trace holds what Python's code made of them. So calls with others are other calls: a temperature that a script lowers, a Dropout's p, a
flag. What a forward changes itself (a counter, a size that it keeps) is as after one call, however often a trace runs it.
"""

import argparse
import dataclasses
import operator
import types
from typing import Any, Dict, Iterable, List, NamedTuple, Set, Tuple

import torch

_OWN = {*vars(torch.nn.Module()), "_is_hf_initialized"}  # what every module has
_PLAIN = (bool, int, float, complex, str, type(None), torch.dtype)
_MOST = 256  # states that are told apart


def _is_plain(value: Any) -> bool:
    return type(value) in _PLAIN or (type(value) is tuple and all(map(_is_plain, value)))


def _has_fields(value: Any) -> bool:
    kind = type(value)
    return isinstance(value, (argparse.Namespace, types.SimpleNamespace)) or (hasattr(value, "__dict__") and (dataclasses.is_dataclass(kind) or kind.__name__.endswith("Config")))


class Snapshot(NamedTuple):
    """What plain attributes were, and which attributes there were."""

    rows: List[Tuple[Dict[str, Any], str, Any]]
    names: List[Tuple[Dict[str, Any], Set[str]]]

    def restore(self) -> None:
        for members, known in self.names:
            for name in [name for name, value in members.items() if name not in known and _is_plain(value)]:
                del members[name]
        for members, name, value in self.rows:
            members[name] = value


class Plain:
    """The attributes of some modules, and the states in which they were."""

    def __init__(self, modules: Iterable[torch.nn.Module]) -> None:
        self._modules = [vars(module) for module in modules]
        self._left: Set[Tuple[int, str]] = set()  # of those that a forward gives
        self._numbers: Dict[Any, Tuple[int, List[Any]]] = {}
        self.count, self._number = 0, -1  # states that there were
        self.differing: List[str] = []  # names of those that had others before the state of now
        self._scan()

    def _scan(self) -> None:
        self._holders: List[Dict[str, Any]] = []
        self._names: List[str] = []
        self._tensors: List[Tuple[Dict[str, Any], str]] = []
        self._all = list(self._modules)
        seen: Set[int] = set()
        for members in self._modules:
            self._add(members, _OWN)
            for name, value in members.items():
                if name not in _OWN and _has_fields(value) and id(value) not in seen:
                    seen.add(id(value))
                    self._all.append(vars(value))
                    self._add(vars(value), set())
        self._sizes = list(map(len, self._all))
        self._values = self._now()
        self._versions = list(map(_version, self._tensors))

    def _add(self, members: Dict[str, Any], but: Set[str]) -> None:
        for name, value in members.items():
            if name in but or (id(members), name) in self._left:
                continue
            if _is_plain(value):
                self._holders.append(members)
                self._names.append(name)
            elif type(value) is torch.Tensor and value.is_leaf and not value.requires_grad:
                self._tensors.append((members, name))

    def _now(self) -> List[Any]:
        return [members.get(name) for members, name in zip(self._holders, self._names)]

    def changed(self) -> bool:
        """Whether they are others than when this was asked last, or number()."""
        if list(map(len, self._all)) != self._sizes:
            names = self._names
            self._scan()
            self._number, self.differing = -1, sorted(set(self._names) ^ set(names)) or names
            return True
        now = self._now()
        versions = [_version(row) for row in self._tensors] if self._tensors else self._versions
        if all(map(operator.is_, now, self._values)) and versions == self._versions:
            return False
        differing = [name for name, before, value in zip(self._names, self._values, now) if not _same(before, value)]
        differing += [name for (_, name), before, version in zip(self._tensors, self._versions, versions) if before != version]
        self._values, self._versions = now, versions
        if differing:
            self._number, self.differing = -1, differing
        return bool(differing)

    def number(self) -> int:
        """Of the state of now: equal ones have equal numbers."""
        if not self.changed() and self._number >= 0:
            return self._number
        rows = zip(map(id, self._holders), self._names, [value if _is_plain(value) else id(value) for value in self._values])
        key = tuple(rows), tuple([(id(members), name) for members, name in self._tensors]), tuple(self._versions)
        if key not in self._numbers:
            if len(self._numbers) >= _MOST:
                self._numbers.clear()
            self.count += 1
            kept = [*self._all, *self._values, *[members.get(name) for members, name in self._tensors]]  # no other gets the id of one
            self._numbers[key] = self.count, kept
        self._number = self._numbers[key][0]
        return self._number

    def snapshot(self) -> Snapshot:
        self.changed()
        return Snapshot(list(zip(self._holders, self._names, self._values)), [(members, set(members)) for members in self._all])

    def follow(self, before: Snapshot) -> Dict[str, bool]:
        """The names of those that a forward has changed since then, and whether one was something before, and not None. What it gives that is not plain,
        and tensors, are its own from now on."""
        changed: Dict[str, bool] = {}
        for members, name, value in before.rows:
            now = members.get(name)
            if not _is_plain(now):
                self._left.add((id(members), name))
            elif not _same(value, now):
                changed[name] = changed.get(name, False) or value is not None
        for members, known in before.names:
            of_class = {name for name, value in members.items() if name not in known and _is_plain(value)}
            changed.update({name: name in changed or members[name] is not None for name in of_class})
        self._left.update((id(row[0]), row[1]) for row, version in zip(self._tensors, self._versions) if _version(row) != version)
        self._scan()
        self._number = -1
        return changed


def _version(row: Tuple[Dict[str, Any], str]) -> Tuple[int, int]:
    tensor = row[0].get(row[1])
    return id(tensor), tensor._version if isinstance(tensor, torch.Tensor) and not tensor.is_inference() else 0


def _same(before: Any, now: Any) -> bool:
    return before is now or (_is_plain(now) and bool(before == now))
