"""The PyTorch side of bench/vs_torch.py on a GPU, as its users would have it: the fastest that this PyTorch offers.

Attention is scaled_dot_product_attention with the fastest of its backends, AdamW the fastest of its implementations, the vocabulary is
padded to a multiple of 64 as nanoGPT does (ours keeps the model's own), images lie channels last, torch.compile has its default mode or
max-autotune. What an older PyTorch lacks is left out and told: everything here also runs on a CPU with PyTorch 1.13 (tests/bench).
"""

import json
import math
import os
import time
import types

import torch
from torch.nn import functional as F

torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
VOCABULARY_MULTIPLE = 64
VARIANTS = {"eager": None, "compile": {}, "max-autotune": {"mode": "max-autotune"}}
# torch.backends.cuda.enable_NAME_sdp; all of them on: PyTorch chooses.
SLOW_STEP_NS = 0.3e9  # a step that takes longer is judged by one
BACKENDS = ("cudnn", "flash", "mem_efficient", "math")


def padded(vocabulary):
    return -(-vocabulary // VOCABULARY_MULTIPLE) * VOCABULARY_MULTIPLE


def has_sdpa():
    return hasattr(F, "scaled_dot_product_attention")


def causal_attention(self, x, future):
    """modules.CausalSelfAttention.forward by one call."""
    batch, time_, width = x.size()
    q, k, v = (part.view(batch, time_, self.heads, width // self.heads).transpose(1, 2) for part in self.qkv(x).split(width, dim=2))
    mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return self.proj(mixed.transpose(1, 2).reshape(batch, time_, width))


def encoder_layer(self, x):
    """modules.BertLayer.forward by one call."""
    q, k, v = (self.split_heads(part(x)) for part in (self.query, self.key, self.value))
    mixed = F.scaled_dot_product_attention(q, k, v, dropout_p=self.attention_dropout.p if self.training else 0.0)
    x = self.attention_norm(x + self.output_dropout(self.attention_output(mixed.permute(0, 2, 1, 3).reshape(x.size()))))
    return self.output_norm(x + self.hidden_dropout(self.output(self.gelu(self.intermediate(x)))))


def use_sdpa(model, modules):
    """Gives the model's attentions the fused call. How many there are."""
    forwards = {modules.CausalSelfAttention: causal_attention, modules.BertLayer: encoder_layer}
    count = 0
    for module in model.modules():
        if has_sdpa() and type(module) in forwards:
            module.forward = types.MethodType(forwards[type(module)], module)
            count += 1
    return count


def choose_backend(name):
    """Leaves attention that backend alone, or, for "", all of them."""
    for each in BACKENDS:
        enable = getattr(torch.backends.cuda, f"enable_{each}_sdp", None)
        if enable is not None:
            enable(name in ("", each))


def backends():
    return [each for each in BACKENDS if hasattr(torch.backends.cuda, f"enable_{each}_sdp")]


def fastest(candidates, measure):
    """The candidate with the least measure, and that; one that PyTorch refuses here is left out."""
    best, least = None, math.inf
    for candidate in candidates:
        try:
            value = measure(candidate)
        except (RuntimeError, TypeError, ValueError, AttributeError):
            continue
        if value < least:
            best, least = candidate, value
    return best, least


def compiled(model, variant):
    arguments = VARIANTS[variant]
    return model if arguments is None else torch.compile(model, **arguments)


class Peer:
    """A model with its batch, ready to train. `facts` tells what was chosen."""

    def __init__(self, model, inputs, modules, options):
        torch.set_num_threads(options.threads)
        self.device, self.bf16 = options.device, options.precision == "bf16"
        self.wait = torch.cuda.synchronize if self.device == "cuda" else lambda: None
        images = inputs[0].dim() == 4
        layout = {"memory_format": torch.channels_last} if images else {}
        self.model = model.to(self.device, **layout).train()
        self.inputs = [inputs[0].to(self.device, **layout), *(part.to(self.device) for part in inputs[1:])]
        self.facts = {"attention": "", "optimizer": "", "layout": "channels last" if images else ""}
        attentions = use_sdpa(self.model, modules)
        self.forward = self.model
        self.choose_optimizer()
        if attentions:
            self.choose_attention()
        elif any(type(each) in (modules.CausalSelfAttention, modules.BertLayer) for each in self.model.modules()):
            self.facts["attention"] = "explicit softmax"
        self.forward = compiled(self.model, options.variant)
        self.new_step = getattr(getattr(torch, "compiler", None), "cudagraph_mark_step_begin", lambda: None)
        self.launches = None

    def loss(self):
        with torch.autocast(self.device, dtype=torch.bfloat16, enabled=self.bf16):
            result = self.forward(*self.inputs)
        return result if torch.is_tensor(result) else result[0]

    def steps(self, count, optimizer=None):
        """Nanoseconds of so many steps."""
        optimizer = optimizer or self.optimizer
        self.wait()
        start = time.perf_counter_ns()
        for _ in range(count):
            getattr(self, "new_step", lambda: None)()
            optimizer.zero_grad(set_to_none=True)
            self.loss().backward()
            optimizer.step()
        self.wait()
        return time.perf_counter_ns() - start

    def measured(self, optimizer=None):
        if self.steps(1, optimizer) > SLOW_STEP_NS:
            return self.steps(1, optimizer)
        return min(self.steps(2, optimizer) for _ in range(3))

    def choose_optimizer(self):
        made = {}
        for kind in ({"fused": True}, {"foreach": True}, {"foreach": False}):
            try:
                made[next(iter(kind)) if any(kind.values()) else "loop"] = torch.optim.AdamW(self.model.parameters(), lr=1e-3, **kind)
            except (TypeError, RuntimeError):
                pass  # an older PyTorch without it, or without it on this device
        name, _ = fastest(made, lambda each: self.measured(made[each]))
        self.facts["optimizer"], self.optimizer = name, made[name]
        self.optimizer.state.clear()

    def choose_attention(self):
        def measure(name):
            choose_backend(name)
            return self.measured()

        # The switches are those of GPUs; a CPU has one kernel of its own, which PyTorch chooses where it takes the call.
        name, _ = fastest(["", *backends()], measure) if self.device == "cuda" else ("", None)
        choose_backend(name or "")
        self.facts["attention"] = "scaled_dot_product_attention, " + (name or "PyTorch's choice")

    def count_launches(self):
        """Kernels of a step, where PyTorch's profiler sees the GPU; else None."""
        if self.device != "cuda":
            return None
        from torch.profiler import ProfilerActivity, profile

        with profile(activities=[ProfilerActivity.CUDA]) as seen:
            self.steps(1)
        kernels = [e for e in seen.events() if "CUDA" in str(e.device_type) and not e.name.startswith(("Memcpy", "Memset"))]
        return len(kernels) or None

    def run(self, count):
        """The answer to a request for so many steps (vs_torch.py)."""
        if self.launches is None:
            self.steps(3)  # compiles
            self.launches = self.count_launches() or 0
            if self.device == "cuda":
                torch.cuda.reset_peak_memory_stats()
        answer = {"paced": count, "elapsed_ns": self.steps(count), **self.facts, "launches": self.launches or None}
        answer["peak_bytes"] = torch.cuda.max_memory_allocated() if self.device == "cuda" else None
        return answer


def pad_vocabulary(model, vocabulary):
    """Rows of zeros after the embedding that is the head too, up to the padded vocabulary."""
    extra = padded(vocabulary) - vocabulary
    table = model.wte.weight.detach()
    model.wte = torch.nn.Embedding(vocabulary + extra, table.size(1))
    with torch.no_grad():
        model.wte.weight.copy_(torch.cat([table, table.new_zeros(extra, table.size(1))]))


def first_loss(model, inputs, options):
    """The loss before any step, which our side's first step must tell too."""
    with torch.no_grad(), torch.autocast(options.device, dtype=torch.bfloat16, enabled=options.precision == "bf16"):
        result = model.to(options.device).train()(*(part.to(options.device) for part in inputs))
    return float(result if torch.is_tensor(result) else result[0])


def write_gate(model, inputs, name, options):
    """Leaves weights and batch in the folder options.gate, as our side reads them, and prints the first loss. name: of the input."""
    import numpy as np

    np.savez(os.path.join(options.gate, "params.npz"), **{key: p.detach().numpy() for key, p in model.named_parameters()})
    np.savez(os.path.join(options.gate, "batch.npz"), **{name: inputs[0].numpy()[None], "labels": inputs[1].numpy()[None]})
    print(json.dumps({"loss": first_loss(model, inputs, options)}))
