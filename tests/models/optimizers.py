"""Optimizers that PyTorch 1.13 lacks, or has in another precision, in NumPy and in the dtype of their parameters: the references of export.py. Each is written
from the publication that its docstring names; options are spelled as on the command line of gradloom."""

import numpy as np
import torch


class Optimizer:
    """What torch.optim.Optimizer is to export.py. A class below is one update: new_value(p, g, state, step, **options)."""

    def __init__(self, parameters, **options):
        self.parameters, self.options, self.step_count = list(parameters), options, 0
        self.states = [{} for _ in self.parameters]

    def zero_grad(self):
        for parameter in self.parameters:
            parameter.grad = None

    def step(self):
        self.step_count += 1
        for parameter, state in zip(self.parameters, self.states):
            p, g = parameter.detach().numpy(), parameter.grad.numpy()
            parameter.data.copy_(torch.from_numpy(np.asarray(self.new_value(p, g, state, self.step_count, **self.options))))


def moments(g, state, beta1, beta2):
    """The moving averages of g and of its square, which start at 0."""
    state["m"] = beta1 * state.get("m", 0.0) + (1 - beta1) * g
    state["v"] = beta2 * state.get("v", 0.0) + (1 - beta2) * g * g
    return state["m"], state["v"]


class NAdam(torch.optim.NAdam):
    """In the form of PyTorch 1.13 that counts no momentum twice, with the product of momenta in the dtype of its parameters."""

    def __init__(self, parameters, **options):
        super().__init__(parameters, foreach=True, **options)

    def step(self, closure=None):
        before = torch.get_default_dtype()
        torch.set_default_dtype(self.param_groups[0]["params"][0].dtype)
        try:
            return super().step(closure)
        finally:
            torch.set_default_dtype(before)


class Lamb(Optimizer):
    """Algorithm 2 of You et al., "Large batch optimization for deep learning" (ICLR 2020), with bias correction, phi(x) = x."""

    @staticmethod
    def new_value(p, g, state, step, lr=1e-2, beta1=0.9, beta2=0.999, eps=1e-6, weight_decay=0.01):
        m, v = moments(g, state, beta1, beta2)
        m_hat, v_hat = m / (1 - beta1**step), v / (1 - beta2**step)
        update = m_hat / (np.sqrt(v_hat) + eps) + weight_decay * p
        p_norm, update_norm = np.sqrt((p * p).sum()), np.sqrt((update * update).sum())
        trust = p_norm / update_norm if p_norm > 0 and update_norm > 0 else 1.0
        return p - lr * trust * update


class Lion(Optimizer):
    """Program 2 of Chen et al., "Symbolic discovery of optimization algorithms" (2023)."""

    @staticmethod
    def new_value(p, g, state, step, lr=1e-4, beta1=0.9, beta2=0.99, weight_decay=0.0):
        m = state.get("m", 0.0)
        update = np.sign(beta1 * m + (1 - beta1) * g)
        state["m"] = beta2 * m + (1 - beta2) * g
        return p - lr * (update + weight_decay * p)


class AdamWOfHuggingFace(Optimizer):
    """AdamW as transformers 4 documents it: eps is added to the uncorrected root, the decay follows the update."""

    @staticmethod
    def new_value(p, g, state, step, lr=1e-3, beta1=0.9, beta2=0.999, eps=1e-6, weight_decay=0.0, correct_bias=True):
        m, v = moments(g, state, beta1, beta2)
        rate = lr * np.sqrt(1 - beta2**step) / (1 - beta1**step) if correct_bias else lr
        p = p - rate * m / (np.sqrt(v) + eps)
        return p - lr * weight_decay * p


def rms(x):
    return np.sqrt(np.mean(x * x))


class Adafactor(Optimizer):
    """Algorithms 4 and 5 of Shazeer and Stern, "Adafactor: adaptive learning rates with sublinear memory cost" (ICML 2018), with the
    options of transformers 4. With relative_step, lr is a factor of the step's size (transformers takes none: 1)."""

    @staticmethod
    def new_value(p, g, state, step, lr=1.0, eps=1e-30, eps2=1e-3, clip_threshold=1.0, decay_rate=-0.8, beta1=0.0, weight_decay=0.0,
                  scale_parameter=True, relative_step=True, warmup_init=False):  # fmt: skip
        rate = lr
        if relative_step:
            rate *= min(1e-6 * step if warmup_init else 1e-2, 1 / np.sqrt(step))
        if scale_parameter:
            rate *= max(eps2, rms(p))
        keep = 1 - step**decay_rate
        squares = g * g + eps

        def average(name, value):
            state[name] = keep * state.get(name, 0.0) + (1 - keep) * value
            return state[name]

        if g.ndim >= 2:
            row, column = average("row", squares.mean(axis=-1)), average("column", squares.mean(axis=-2))
            # Two roots: where gradients are 0, the product of both is too small for float32.
            update = g / np.sqrt(row / row.mean(axis=-1, keepdims=True))[..., :, None] / np.sqrt(column)[..., None, :]
        else:
            update = g / np.sqrt(average("v", squares))
        update = rate * update / max(1.0, rms(update) / clip_threshold)
        if beta1 > 0:
            state["m"] = update = beta1 * state.get("m", 0.0) + (1 - beta1) * update
        return p - weight_decay * rate * p - update
