"""A torch optimizer as the engine has it: its rule in a recipe's words, what it keeps, and what of it changes from step to step.

States have the engine's names here, PARAMETER/STATE ("0.weight/m"); files of states have PyTorch's, PARAMETER.KEY ("0.weight.exp_avg"),
as checkpoints do.
"""

import functools
import json
import os
import re
from collections import Counter
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Optional, Sequence, Set, Tuple

import torch

from .._library import UnsupportedError, UsageError
from ._tensors import contents

# The engine's names of states, and PyTorch's keys where they are others.
_KEYS = {"momentum": "momentum_buffer", "m": "exp_avg", "v": "exp_avg_sq", "vmax": "max_exp_avg_sq", "row": "exp_avg_sq_row",
         "column": "exp_avg_sq_col", "sum": "sum", "square_avg": "square_avg", "grad_avg": "grad_avg", "acc_delta": "acc_delta", "ema": "ema"}  # fmt: skip
_ONE = {"lr": 1.0}  # transformers' Adafactor: a rate of None is a factor of its own


class _Rule(NamedTuple):
    word: str  # the engine's name
    options: Tuple[str, ...]  # called alike in both
    states: Tuple[str, ...]
    counts: bool = True  # the updates of each parameter, as "step"
    follows: Tuple[str, ...] = ("lr", "weight_decay")  # what may change from step to step, in the engine's words
    pairs: Tuple[Tuple[str, Tuple[str, str]], ...] = ()  # options that are two
    needs: Tuple[Tuple[str, Any], ...] = ()  # what other options must say


_BETAS = (("betas", ("beta1", "beta2")),)
_MOMENTS = ("lr", "weight_decay", "beta1", "beta2")
_MOMENTS_EPS = (*_MOMENTS, "eps")
_NO_MOMENTS_EPS = ("lr", "weight_decay", "eps")
_DECOUPLED = ("lr", "eps", "weight_decay", "decoupled_weight_decay", "maximize")
_ADAM = ("lr", "eps", "weight_decay", "amsgrad", "maximize")

# By the package and name of their classes.
_RULES: Dict[Tuple[str, str], _Rule] = {
    ("torch", "SGD"): _Rule("sgd", ("lr", "momentum", "dampening", "weight_decay", "nesterov", "maximize"), ("momentum",), False,
                            ("lr", "weight_decay", "momentum")),
    ("torch", "Adam"): _Rule("adam", _ADAM, ("m", "v", "vmax"), True, _MOMENTS_EPS, _BETAS),
    ("torch", "AdamW"): _Rule("adamw", _ADAM, ("m", "v", "vmax"), True, _MOMENTS_EPS, _BETAS),
    ("torch", "RMSprop"): _Rule("rmsprop", ("lr", "alpha", "eps", "weight_decay", "momentum", "centered", "maximize"),
                                ("square_avg", "momentum", "grad_avg"), True, (*_NO_MOMENTS_EPS, "momentum")),
    ("torch", "NAdam"): _Rule("nadam", (*_DECOUPLED, "momentum_decay"), ("m", "v"), True, ("lr", "weight_decay", "beta2", "eps"), _BETAS),
    ("torch", "RAdam"): _Rule("radam", _DECOUPLED, ("m", "v"), True, _MOMENTS_EPS, _BETAS),
    ("torch", "Adadelta"): _Rule("adadelta", ("lr", "rho", "eps", "weight_decay", "maximize"), ("square_avg", "acc_delta"), True, _NO_MOMENTS_EPS),
    ("torch", "Adagrad"): _Rule("adagrad", ("lr", "lr_decay", "weight_decay", "initial_accumulator_value", "eps", "maximize"), ("sum",), True,
                                _NO_MOMENTS_EPS),
    ("transformers", "AdamW"): _Rule("adamw_hf", ("lr", "eps", "weight_decay", "correct_bias"), ("m", "v"), True, _MOMENTS_EPS, _BETAS),
    ("transformers", "Adafactor"): _Rule(
        "adafactor", ("lr", "clip_threshold", "decay_rate", "beta1", "weight_decay", "scale_parameter", "relative_step", "warmup_init"),
        ("row", "column", "v", "m"), True, _NO_MOMENTS_EPS, (("eps", ("eps", "eps2")),)),
    ("timm", "Lion"): _Rule("lion", ("lr", "weight_decay", "maximize"), ("m",), False, _MOMENTS, _BETAS,
                            (("caution", False), ("corrected_weight_decay", False))),
    ("timm", "Lamb"): _Rule("lamb", ("lr", "eps", "weight_decay"), ("m", "v"), True, _MOMENTS_EPS, _BETAS,
                            (("max_grad_norm", None), ("always_adapt", True), ("bias_correction", True), ("grad_averaging", True), ("trust_clip", False),
                             ("caution", False), ("decoupled_decay", False))),
}  # fmt: skip
_OTHERS = {("torch", "Adafactor"): "its formula is another one than transformers.Adafactor's, which is here"}


def _title(optimizer: Any) -> Tuple[str, str]:
    kind = type(optimizer)
    return kind.__module__.partition(".")[0], kind.__name__


def rule_of(optimizer: Any) -> _Rule:
    """Raises UnsupportedError for optimizers, and options of them, that the engine lacks."""
    title = _title(optimizer)
    rule = _RULES.get(title)
    if rule is None or not isinstance(optimizer, torch.optim.Optimizer):
        known = ", ".join(".".join(("torch.optim" if package == "torch" else package, name)) for package, name in _RULES)
        why = f" ({_OTHERS[title]})" if title in _OTHERS else ""
        raise UnsupportedError(f"no optimizer here does what {title[1]} does{why}: {known}, or a recipe's text (gradloom recipe optimizer)")
    groups = optimizer.param_groups
    for option, value in rule.needs:
        if any(group.get(option, value) != value for group in groups):
            hint = " (TrainStep's clip does that)" if option == "max_grad_norm" else ""
            raise UnsupportedError(f"{title[1]} is here with {option}={value} only{hint}")
    decoupled = {bool(group.get("decoupled_weight_decay", rule.word == "adamw")) for group in groups}
    if rule.word in ("adam", "adamw"):
        if len(decoupled) > 1:
            raise UnsupportedError(f"groups of {title[1]} may not differ in decoupled_weight_decay")
        rule = rule._replace(word="adamw" if decoupled.pop() else "adam")
    return rule


def _options(rule: _Rule, group: Dict[str, Any]) -> Dict[str, Any]:
    """What a group says, in the engine's words."""
    found = {option: group[option] for option in rule.options if option in group}
    for pair, names in rule.pairs:
        if pair in group:
            found.update(zip(names, group[pair]))
    return {key: value if isinstance(value, bool) else float(_ONE.get(key, 0.0) if value is None else value) for key, value in found.items()}


class Options:
    """What a torch optimizer's groups say, group by group: what may change between steps, and what may not."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizer, self.rule, self.name = optimizer, rule_of(optimizer), type(optimizer).__name__
        self.groups = self._now()
        self.text = dict(self.groups[0])  # of the optimizer's word, which tells what it keeps
        if "momentum" in self.text:
            self.text["momentum"] = max(group["momentum"] for group in self.groups)
            if self.text["momentum"] > 0 and self.text.get("dampening") and any(group["momentum"] == 0 for group in self.groups):
                raise UnsupportedError(f"groups of {self.name} with dampening must all have momentum, or none")
        self._fixed = self.groups[0]
        for group in self.groups[1:]:
            if others := self._others(group):
                raise UnsupportedError(f"groups of {self.name} may differ in {self._followed()} only, not in {', '.join(others)}")

    def _followed(self) -> str:
        *first, last = self.rule.follows
        return f"{', '.join(first)} and {last}"

    def _others(self, group: Dict[str, Any]) -> List[str]:
        """Options that steps do not follow, in which the group is not as the first one was at the beginning."""
        return [key for key in self._fixed if key not in self.rule.follows and group.get(key) != self._fixed[key]]

    def _now(self) -> List[Dict[str, Any]]:
        return [_options(self.rule, group) for group in self._optimizer.param_groups]

    def changed(self) -> Optional[List[Dict[str, float]]]:
        """What each group's followed options are now; None: as they were when this was last asked. Raises UsageError where others have
        changed, or groups were added."""
        now = self._now()
        if now == self.groups:
            return None
        if len(now) != len(self.groups):
            raise UsageError(f"{self.name} has {len(now)} groups of parameters, and had {len(self.groups)} at the first step")
        for group in now:
            if others := self._others(group):
                raise UsageError(f"{', '.join(others)} of {self.name} changed after the first step; steps follow {self._followed()} alone")
        self.groups = now
        return self.followed()

    def followed(self) -> List[Dict[str, float]]:
        return [{key: group[key] for key in self.rule.follows if key in group} for group in self.groups]


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(float(value))


def optimizer_words(options: Options, names: Dict[int, str], groups: Sequence[Dict[str, Any]], numbered: bool) -> Dict[str, Any]:
    """The settings `optimizer` and `group` for parameters with these names.

    numbered: groups have numbers, by which their options are changed; else they have rates of their own, if these differ.
    """
    first = dict(options.text)
    lr = first["lr"] if first["lr"] > 0 or numbered else max(group["lr"] for group in options.groups)
    text = ",".join(f"{key}={_text(value)}" for key, value in {**first, "lr": lr}.items())
    words: Dict[str, Any] = {"optimizer": f"{options.rule.word}{{{text}}}"}
    found: List[str] = []
    for number, (group, own) in enumerate(zip(groups, options.groups)):
        said = {"number": str(number)} if numbered else {"lr": _text(own["lr"])} if own["lr"] != lr else {}
        if own.get("weight_decay", 0.0) != first.get("weight_decay", 0.0):
            said["weight_decay"] = _text(own["weight_decay"])
        held = [names[id(p)] for p in group["params"] if id(p) in names]
        others = set(names.values()) - set(held)
        if said and not (numbered and number == 0):
            found += [f"{glob}{{{','.join(f'{key}={value}' for key, value in said.items())}}}" for glob in _before_options(globs(held, others), others)]
        elif said:
            found.append("*{number=0}")
    differing = {key for own in options.groups for key in options.rule.follows if own.get(key) != options.groups[0].get(key)} - {"lr", "weight_decay"}
    if differing and not numbered:
        raise UnsupportedError(f"groups of {options.name} in a recipe may differ in lr and weight_decay only, not in {', '.join(sorted(differing))} "
                               f"(TrainStep takes them)")  # fmt: skip
    if found:
        words["group"] = found
    return words


def globs(names: Sequence[str], others: Iterable[str]) -> List[str]:
    """`names`, with MODULE.* in place of those of a module that has none of `others`: patterns that fit them alone, as short as a person
    would say it."""
    own = Counter(module for name in names for module in _modules(name))
    shared = {module for name in set(others) for module in _modules(name)}
    found: List[str] = []
    covered: Set[str] = set()
    for name in names:
        modules = _modules(name)
        if covered.intersection(modules):
            continue
        whole = next((m for m in modules if own[m] > 1 and m not in shared), None)
        if whole is not None:
            covered.add(whole)
        found.append(_glob(name) if whole is None else _glob(whole) + "*")
    return found


def _before_options(patterns: Sequence[str], others: Iterable[str]) -> List[str]:
    """In a recipe's group the options begin with the first brace: those of names are any character."""
    for pattern in patterns:
        if set("{}") & set(pattern):
            parts = re.findall(r"\\[*?\\]|.", pattern, re.DOTALL)
            fit = "".join({"*": ".*", "?": ".", "{": ".", "}": "."}.get(part, re.escape(part[-1])) for part in parts)
            also = next((name for name in others if re.fullmatch(fit, name, re.DOTALL)), None)
            if also is not None:
                raise UnsupportedError(f"a group of the optimizer cannot be told from '{also}' by '{pattern}': braces begin a group's options")
    return [re.sub("[{}]", "?", pattern) for pattern in patterns]


def _glob(text: str) -> str:
    """The pattern that fits this alone."""
    return re.sub(r"([*?\\])", r"\\\1", text)


def _modules(name: str) -> List[str]:
    """The modules that a name lies in, the outermost first: "a.", "a.b." of "a.b.weight"."""
    parts = name.split(".")
    return [".".join(parts[:depth]) + "." for depth in range(1, len(parts))]


class States(NamedTuple):
    """What an optimizer keeps after some updates."""

    updates: int
    tensors: Dict[str, torch.Tensor]  # by the engine's names
    skipped: int = 0  # steps beside the updates, by loss scaling

    @property
    def steps(self) -> int:
        return self.updates + self.skipped


def states_of(optimizer: Any, names: Dict[int, str]) -> States:
    """Of the parameters with these names. Raises UsageError where they have not had equally many updates."""
    rule, title = rule_of(optimizer), type(optimizer).__name__
    tensors: Dict[str, torch.Tensor] = {}
    averages = any(group.get("momentum") for group in optimizer.param_groups)
    unmoved: Dict[str, torch.Tensor] = {}  # without momentum: read where other groups have it
    updates: Dict[str, int] = {}
    for group in optimizer.param_groups:
        for p in group["params"]:
            if id(p) not in names:
                continue
            kept = optimizer.state[p] if p in optimizer.state else {}
            held = {state: kept[_KEYS[state]] for state in rule.states if kept.get(_KEYS[state]) is not None}
            if not averages:  # what it kept when there was momentum
                held.pop("momentum", None)
            if group.get("momentum") == 0 and averages and not (rule.counts and "momentum" in held):
                unmoved[f"{names[id(p)]}/momentum"] = torch.zeros_like(p)
            if group.get("momentum") == 0 and not rule.counts:
                continue
            made = int(kept.get("step", group.get("step", 0))) if rule.counts else int(bool(held))  # SGD begins its average with the first update
            updates[names[id(p)]] = made
            if made and "mu_product" in kept:
                _check_momenta(title, group, made, float(kept["mu_product"]))
            if made:
                tensors.update({f"{names[id(p)]}/{state}": tensor.detach() for state, tensor in held.items()})
    if not updates:
        return States(0, {})
    least, most = min(updates, key=lambda name: updates[name]), max(updates, key=lambda name: updates[name])
    if updates[least] != updates[most]:
        counted = f"made {updates[most]} updates of '{most}' and {updates[least]} of '{least}'"
        counted = counted if rule.counts else f"kept a state of '{most}', none of '{least}'"
        raise UsageError(f"{title} has {counted}: the engine counts those of all parameters together")
    return States(updates[most], {**tensors, **unmoved} if updates[most] else {})


def _momenta(group: Dict[str, Any], updates: int) -> float:
    """NAdam's mu_product after so many updates with the betas of now."""
    return _momenta_of(float(group["betas"][0]), float(group["momentum_decay"]), updates)


@functools.lru_cache(maxsize=64)  # asked for each parameter
def _momenta_of(beta1: float, decay: float, updates: int) -> float:
    product = 1.0
    for step in range(1, updates + 1):
        product *= beta1 * (1.0 - 0.5 * 0.96 ** (step * decay))
        if product == 0.0:
            break
    return product


def _check_momenta(title: str, group: Dict[str, Any], updates: int, found: float) -> None:
    expected = _momenta(group, updates)
    if abs(found - expected) > 1e-3 * expected + 1e-6:  # PyTorch's is rounded to f32 with every update
        raise UsageError(f"{title} has mu_product={found:g} after {updates} updates, where its beta1 and momentum_decay make {expected:g}: "
                         f"they changed on the way, which the engine does not follow")  # fmt: skip


def put_states(optimizer: Any, names: Dict[int, str], updates: int, read: Callable[[str], Optional[torch.Tensor]]) -> None:
    """The engine's states as the optimizer's own, after so many updates. read: a state by its name; None: there is none."""
    rule = rule_of(optimizer)
    for group in optimizer.param_groups:
        momenta = _momenta(group, updates) if rule.word == "nadam" else None
        for p in group["params"]:
            found = {state: read(f"{names[id(p)]}/{state}") for state in rule.states} if id(p) in names else {}
            if all(tensor is None for tensor in found.values()) or updates == 0:
                continue
            kept = optimizer.state[p]
            for state, tensor in found.items():
                if tensor is None:
                    continue
                key, like = _KEYS[state], {"dtype": p.dtype, "device": p.device}
                if kept.get(key) is None or kept[key].shape != tensor.shape:
                    kept[key] = torch.empty(tensor.shape, **like)
                kept[key].copy_(tensor)
            if rule.word == "lamb":
                group["step"] = torch.tensor(float(updates))
            elif rule.counts:
                on = p.device if group.get("capturable") or group.get("fused") else "cpu"
                _put_number(kept, "step", updates, on, _title(optimizer)[0] == "torch")
            if momenta is not None:
                _put_number(kept, "mu_product", momenta, p.device if group.get("capturable") else "cpu", True)
            if rule.word == "adafactor":
                kept.setdefault("RMS", 0)


def _put_number(kept: Dict[str, Any], key: str, number: float, device: Any, as_tensor: bool) -> None:
    """In the form in which it is there; else a tensor or not."""
    if isinstance(kept.get(key), torch.Tensor):
        kept[key].fill_(number)
    elif key in kept or not as_tensor:
        kept[key] = number
    else:
        kept[key] = torch.tensor(float(number), device=device)


# Safetensors' names.
_TYPES = {torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.int64: "I64", torch.uint8: "U8"}


def is_in_file(name: str) -> bool:
    """Whether write_states() keeps the state with this name: not those of loss scaling."""
    return name.rpartition("/")[2] in _KEYS


def write_states(states: States, folder: str) -> str:
    """A file for --load-optimizer, which goes on after so many steps; its path. Where some were skipped, updates are in a state of loss scaling."""
    named = {f"{name.rpartition('/')[0]}.{_KEYS[name.rpartition('/')[2]]}": tensor for name, tensor in states.tensors.items() if is_in_file(name)}
    named["step"] = torch.tensor(states.steps)
    header, at = {}, 0
    for name, tensor in named.items():
        size = tensor.numel() * tensor.element_size()
        header[name] = {"dtype": _TYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path = os.path.join(folder, "optimizer.safetensors")
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for tensor in named.values():
            file.write(contents(tensor))
    return path
