"""What a measured step says of a GPU: tokens a second, model FLOPs utilization, the share of what the roofline expects, and the gate."""

# Dense TFLOP/s by the data sheets, f32 without TF32; names as torch.cuda.get_device_name() has them, and --on of `gradloom plan --roofline`.
PEAKS = {"h200": {"bf16": 989.5, "f32": 67.0}, "h100": {"bf16": 989.5, "f32": 67.0}, "a100": {"bf16": 312.0, "f32": 19.5}}
GATES = {"f32": 1e-4, "bf16": 2e-2}  # most that the first losses of the two sides may differ, relative


def card_of(name):
    """The key of PEAKS for a device's name, "" for a card that is not there."""
    return next((card for card in PEAKS if card in name.lower()), "")


def transformer_flops(sizes, batch):
    """6 N + 12 L C T for each token, as nanoGPT and PaLM count: N without the positions, the full square of attention."""
    layers, width, tokens = sizes["layers"], sizes["width"], sizes["context"]
    hidden = sizes.get("hidden", 4 * width)
    parameters = layers * (4 * width * width + 2 * width * hidden)
    if "classes" not in sizes:
        parameters += width * sizes["vocabulary"]  # the head, a product; the encoders' embedding is a lookup
    return batch * tokens * (6 * parameters + 12 * layers * width * tokens)


def figures(step_ns, items, flops, card, precision, expected_ns=None):
    """Of one side: items a second, MFU and the share of the limit, None where it is not known."""
    peak = PEAKS.get(card, {}).get(precision)
    return {
        "items_per_s": items / (step_ns * 1e-9),
        "mfu": flops / (step_ns * 1e-9) / (peak * 1e12) if flops and peak else None,
        "share_of_limit": expected_ns / step_ns if expected_ns else None,
    }


def gate(ours, theirs, precision, dropout):
    """Whether the two sides compute the same: (passed, why)."""
    if not ours == ours or abs(ours) == float("inf"):
        return False, f"our first loss is {ours}"
    if dropout:
        return True, f"first losses {ours:.6g} and {theirs:.6g} have dropouts of their own"
    difference = abs(ours - theirs) / max(abs(theirs), 1e-30)
    return difference <= GATES[precision], f"first losses {ours:.6g} and {theirs:.6g} differ by {difference:.2g} (at most {GATES[precision]:g})"


def describe(told):
    """One side's figures as text."""
    parts = [f"{told['items_per_s']:,.0f}/s"]
    for key, word in (("mfu", "MFU"), ("share_of_limit", "of the limit")):
        if told[key] is not None:
            parts.append(f"{100 * told[key]:.1f} % {word}")
    if told["peak_bytes"]:
        parts.append(f"{told['peak_bytes'] / 1e9:.2f} GB")
    if told["launches"]:
        parts.append(f"{told['launches']:.0f} launches")
    return ", ".join(parts)
