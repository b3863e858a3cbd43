#!/usr/bin/env python3
"""Times one training step here and in PyTorch, interleaved, and prints PyTorch's time over ours.

    /usr/bin/python3 bench/vs_torch.py [--models gpt-char,mlp] [--blocks 24] [--tune] [--json]
    python3 bench/vs_torch.py --device cuda [--precision bf16] [--blocks 8] [--models gpt2-124m@64,resnet50]

    gpt-char f32 2 threads: 1.34x [1.30, 1.38]

Workloads: gpt-char (tests/models/gpt-char, batch 8) and mlp (784-2048-2048-10, batch 256; exported to a temporary folder), and
when asked for bert-base (an encoder of BERT's size, batch 8 of 128 tokens), resnet50 (torchvision's, batch 8 of 224x224), gpt-4x256 (4 layers of
width 256, batch 8 of 128 tokens) and gpt2-4x256 (GPT-2 124M, batch 4 of 256 tokens; give these --blocks 6 --launches 1), and the networks of bench/zoo.py by name, or all of them as `zoo`; f32, AdamW with PyTorch's defaults. Both sides are resident processes with their weights and buffers warm, and both speak one
protocol: a line `N` on stdin runs N steps and answers {"paced": N, "elapsed_ns": ...}; the end of stdin ends the process.
Each block runs ours, PyTorch, PyTorch, ours (ABBA, so that a drift of the machine cancels), every leg at least --leg
seconds; the number printed is the median over blocks of the ratio of times per step with its 95 % bootstrap interval. The
blocks are shared out over several launches of both processes: one launch can be luckier with memory than the next.

PyTorch gets 2 threads, AVX-512 kernels in OpenBLAS where the processor has them, passive OpenMP waiting without spinning,
gradients set to None instead of zeroed, and the fastest of AdamW's implementations, measured at start. Which waiting,
instruction set and allocator settings are best depends on the workload and on the OpenBLAS package (pthread or OpenMP): --tune
tries those of TORCH_SETTINGS first and compares with the fastest. Debian's PyTorch multiplies with whatever libblas.so.3 is
installed; with the reference BLAS it is 15 to 35 times slower and the comparison would mean nothing, so that is an error.

With --device cuda both sides compute on the GPU: PyTorch with its batch there already, waiting for the device at both ends of a
leg, in f32 without TF32 or under bfloat16 autocast; eager, and where it is (PyTorch 2) torch.compile as it is and with max-autotune, all as
bench/peer.py sets them up. NAME@N is a workload with batch N. gpt2-124m is timed with batches of 64, 16 and 4, gpt2-350m, bert-large and
resnet50 join it, and models come from bench/twins.py: PyTorch needs no exporter. Before a workload is timed both sides compute its first loss
with the same weights and batch; where they differ by more than bench/figures.py allows, that is an error. Beside the ratio a row tells of each
side items (tokens, images, samples) a second, MFU, the share of what `gradloom plan --roofline` expects, peak bytes and launches a step.
"""

import argparse
import json
import os
import random
import select
import statistics
import subprocess
import sys
import tempfile
import time

import figures
import twins

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MLP_WIDTHS = twins.MLP_WIDTHS
BERT_BASE = {"layers": 12, "width": 768, "heads": 12, "hidden": 3072, "context": 128, "vocabulary": 30522, "classes": 2}
WORKLOADS = {
    "gpt-char": {"batch": 8}, "mlp": {"batch": 256}, "gpt2-124m": {"batch": 4}, "bert-base": {"batch": 8}, "resnet50": {"batch": 8},
    "gpt2-350m": {"batch": 16}, "bert-large": {"batch": 64}, "gpt-4x256": {"batch": 8}, "gpt2-4x256": {"batch": 4},
}  # fmt: skip
DECODERS = {"gpt2-124m": twins.GPT2_124M, "gpt2-350m": twins.GPT2_350M, "gpt2-4x256": {**twins.GPT2_124M, "context": 256},
            "gpt-4x256": {"layers": 4, "width": 256, "heads": 4, "context": 128, "vocabulary": 5000},
            "gpt-char": {"layers": 4, "width": 128, "heads": 4, "context": 64, "vocabulary": 256}}  # fmt: skip
ENCODERS = {"bert-base": BERT_BASE, "bert-large": twins.BERT_LARGE}
EXPORTED = ("mlp", "bert-base", "resnet50", "gpt-4x256", "gpt2-4x256")  # when they are needed, by the PyTorch of this Python
DEFAULT_MODELS = {"cpu": "gpt-char,mlp",
                  "cuda": "gpt-char,mlp,gpt2-124m@64,gpt2-124m@16,gpt2-124m@4,gpt2-350m@16,bert-large@64,resnet50@256"}  # fmt: skip
ANSWER_TIMEOUT_S = 300
PASSIVE = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "0"}
KEEP_MEMORY = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "100000000000", "MALLOC_TOP_PAD_": "67108864"}
AVX512 = {"ATEN_CPU_CAPABILITY": "avx512"}
# The first is the default, the others are what --tune tries. {} waits as libgomp does by default: it spins a while.
TORCH_SETTINGS = [
    PASSIVE,
    {**PASSIVE, **AVX512, **KEEP_MEMORY},
    {},
    {**AVX512, **KEEP_MEMORY},
    {"GOMP_SPINCOUNT": "2000", **AVX512},
]


def load_modules():
    sys.dont_write_bytecode = True
    sys.path.insert(0, os.path.join(ROOT, "tests", "models"))
    import modules

    return modules


def make_workload(name, batch):
    """The PyTorch module of a workload with one batch of inputs and labels."""
    import torch

    modules = load_modules()
    torch.manual_seed(1)
    if name == "mlp":
        return modules.Mlp(MLP_WIDTHS), torch.rand(batch, MLP_WIDTHS[0]), torch.randint(MLP_WIDTHS[-1], (batch,))
    if name in ENCODERS:
        sizes = ENCODERS[name]
        tokens = torch.randint(sizes["vocabulary"], (batch, sizes["context"]))
        return modules.BertTiny(**sizes), tokens, torch.randint(sizes["classes"], (batch,))
    if name == "resnet50":
        return make_resnet50(modules), torch.rand(batch, 3, 224, 224), torch.randint(1000, (batch,))
    sizes = DECODERS[name]
    shape, vocabulary = (batch, sizes["context"]), sizes["vocabulary"]
    return modules.GptChar(**sizes), torch.randint(vocabulary, shape), torch.randint(vocabulary, shape)


def uses_peer(workload, options):
    """Whether bench/peer.py is the PyTorch side; networks of the zoo have what is below."""
    return options.peer and split_name(workload)[0] in WORKLOADS


def input_name(name):
    return "tokens" if name in ENCODERS or name in DECODERS else "x"


def split_name(workload):
    """A workload's name and batch: "gpt2-124m@64", or the name alone with the batch that it has."""
    name, _, batch = workload.partition("@")
    return name, int(batch) if batch else WORKLOADS.get(name, {}).get("batch")


def make_resnet50(modules):
    """torchvision's ResNet-50 with random weights, and its loss."""
    import torch
    import torchvision

    class ResNet50(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = torchvision.models.resnet50()

        def forward(self, x, labels=None):
            return modules.with_loss(self.net(x), labels)

    return ResNet50()


# ---- the PyTorch side ------------------------------------------------------------------------------------------------


def has_fast_blas():
    import torch

    with open("/proc/self/maps") as file:
        mapped = file.read()
    return torch.backends.mkl.is_available() or any(name in mapped for name in ("openblas", "blis", "mkl_rt", "mkl_core"))


def import_zoo():
    sys.dont_write_bytecode = True
    import zoo

    return zoo


def report_torch():
    """What the driver asks of PyTorch: its version, whether it can use a GPU, and what networks there are."""
    import torch

    try:
        networks = list(import_zoo().NETWORKS)
    except ImportError:  # no torchvision
        networks = []
    cuda = torch.cuda.is_available()
    name = torch.cuda.get_device_name() if cuda else ""
    print(json.dumps({"version": torch.__version__, "cuda": cuda, "compile": hasattr(torch, "compile"), "gpu": name, "networks": networks}))


def peer_worker(workload, options):
    """The PyTorch side by bench/peer.py, or, with --gate, its first loss."""
    import peer

    name, batch = split_name(workload)
    model, *inputs = make_workload(name, batch)
    if options.gate:
        return peer.write_gate(model, inputs, input_name(name), options)
    if name in DECODERS:
        peer.pad_vocabulary(model, DECODERS[name]["vocabulary"])
    side = peer.Peer(model, inputs, load_modules(), options)
    for line in sys.stdin:
        print(json.dumps(side.run(int(line))), flush=True)


def torch_worker(name, options):
    import torch

    if uses_peer(name, options):
        return peer_worker(name, options)
    import peer

    cuda = options.device == "cuda"
    if not cuda and not has_fast_blas():
        sys.exit("PyTorch runs on the reference BLAS: install libopenblas0-openmp or libopenblas0-pthread")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.set_num_threads(options.threads)
    if name in WORKLOADS:
        model, *inputs = make_workload(name, WORKLOADS[name]["batch"])
    else:
        model, named = import_zoo().make(name)
        inputs = named.values()
    model, *inputs = (part.to(options.device) for part in (model, *inputs))
    model.train()
    forward = peer.compiled(model, options.variant)
    wait = torch.cuda.synchronize if cuda else lambda: None

    def loss():
        with torch.autocast(options.device, dtype=torch.bfloat16, enabled=options.precision == "bf16"):
            result = forward(*inputs)
        return result if torch.is_tensor(result) else result[0]

    def run(optimizer, steps):
        wait()
        start = time.perf_counter_ns()
        for _ in range(steps):
            optimizer.zero_grad(set_to_none=True)
            loss().backward()
            optimizer.step()
        wait()
        return time.perf_counter_ns() - start

    def fastest_optimizer():
        kinds = [{"foreach": False}, {"foreach": True}, {"fused": True}]
        candidates = []
        for kind in kinds:
            try:
                candidates.append(torch.optim.AdamW(model.parameters(), lr=1e-3, **kind))
            except (TypeError, RuntimeError):
                pass  # an older PyTorch without fused, or without it on this device
        for optimizer in candidates:
            run(optimizer, 1)
        slow = run(candidates[0], 1) > 0.3e9
        rounds = [[run(optimizer, 1 if slow else 5) for optimizer in candidates] for _ in range(2 if slow else 5)]
        totals = [min(times) for times in zip(*rounds)]
        return candidates[totals.index(min(totals))]

    optimizer = fastest_optimizer()
    for line in sys.stdin:
        steps = int(line)
        print(json.dumps({"paced": steps, "elapsed_ns": run(optimizer, steps)}), flush=True)


def export_workload(name, path):
    """Exports a workload the way tests/models/export.py does (run in its own process: it loads PyTorch)."""
    if name not in WORKLOADS:
        return import_zoo().export(name, os.path.dirname(path))
    load_modules()
    import export

    model, inputs, labels = make_workload(name, WORKLOADS[name]["batch"])
    export.export_onnx(model, {input_name(name): inputs}, labels, path, opset=17)


# ---- the driver --------------------------------------------------------------------------------------------------------


class BenchError(Exception):
    pass


class Side:
    """A resident process that runs steps on request."""

    def __init__(self, name, command, environment):
        self.name = name
        self.facts = {}  # what it told beside times
        self.errors = tempfile.TemporaryFile()
        try:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, env=environment
            )
        except OSError as error:
            raise BenchError(f"{name}: {error}") from error
        self.pending = b""

    def failure(self, what):
        self.errors.seek(0)
        lines = self.errors.read().decode(errors="replace").strip().splitlines()
        return BenchError(f"{self.name}: {what}" + (f": {lines[-1]}" if lines else ""))

    def read_line(self, deadline):
        while b"\n" not in self.pending:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.process.stdout], [], [], left)[0]:
                raise self.failure(f"no answer in {ANSWER_TIMEOUT_S} s")
            data = os.read(self.process.stdout.fileno(), 65536)
            if not data:
                raise self.failure(f"ended with exit code {self.process.wait()}")
            self.pending += data
        line, self.pending = self.pending.split(b"\n", 1)
        return line

    def run(self, steps):
        """Runs steps and returns nanoseconds per step."""
        try:
            self.process.stdin.write(b"%d\n" % steps)
            self.process.stdin.flush()
        except BrokenPipeError:
            raise self.failure(f"ended with exit code {self.process.wait()}") from None
        deadline = time.monotonic() + ANSWER_TIMEOUT_S
        while True:
            line = self.read_line(deadline)
            try:
                answer = json.loads(line)
            except ValueError:
                raise self.failure(f"unexpected output {line[:80]!r}") from None
            self.facts.update(answer)
            if "paced" in answer:
                if answer["paced"] != steps:
                    raise self.failure(f"ran {answer['paced']} steps instead of {steps}")
                return answer["elapsed_ns"] / steps

    def close(self):
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass  # it has ended by itself
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def steps_per_leg(side, leg_s):
    """Warms a side up until a step stops getting faster and returns how many steps fill a leg."""
    side.run(3)
    per_step_ns = side.run(5)
    for _ in range(10):
        steps = max(1, round(0.1e9 / per_step_ns))
        now_ns = side.run(steps)
        settled = now_ns > 0.97 * per_step_ns
        per_step_ns = min(per_step_ns, now_ns)
        if settled:
            break
    return max(1, -(-int(leg_s * 1e9) // int(per_step_ns)))


def bootstrap_interval(ratios, resamples=10000):
    generator = random.Random(1)
    medians = sorted(statistics.median(generator.choices(ratios, k=len(ratios))) for _ in range(resamples))
    return medians[int(0.025 * resamples)], medians[int(0.975 * resamples) - 1]


def time_blocks(ours, theirs, blocks, leg_s):
    """ABBA blocks: each gives a pair, our and PyTorch's mean nanoseconds per step."""
    counts = {side: steps_per_leg(side, leg_s) for side in (ours, theirs)}
    pairs = []
    for _ in range(blocks):
        sums = {ours: 0.0, theirs: 0.0}
        for side in (ours, theirs, theirs, ours):
            time.sleep(0.005)  # the other side's worker threads stop spinning
            sums[side] += side.run(counts[side])
        pairs.append((sums[ours] / 2, sums[theirs] / 2))
    return pairs


def summarize(pairs):
    ratios = [theirs / ours for ours, theirs in pairs]
    low, high = bootstrap_interval(ratios)
    ours_ns, torch_ns = (statistics.median(times) for times in zip(*pairs))
    return {"ratio": statistics.median(ratios), "low": low, "high": high, "ours_step_ns": ours_ns,
            "torch_step_ns": torch_ns, "ratios": ratios}  # fmt: skip


def has_avx512():
    try:
        with open("/proc/cpuinfo") as file:
            return "avx512f" in file.read()
    except OSError:
        return False


def torch_environment(threads, settings):
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("OPENBLAS_", "OMP_", "GOMP_", "MKL_"))}
    environment.update(settings, OMP_NUM_THREADS=str(threads))
    if has_avx512():
        environment["OPENBLAS_CORETYPE"] = "SKYLAKEX"
    else:
        environment.pop("ATEN_CPU_CAPABILITY", None)
    return environment


def fastest_settings(command, threads):
    """Runs the PyTorch side alone under each of TORCH_SETTINGS and returns the one with the shortest median leg."""
    medians = []
    for settings in TORCH_SETTINGS:
        side = Side("torch", command, torch_environment(threads, settings))
        try:
            count = steps_per_leg(side, 0.25)
            medians.append(statistics.median(side.run(count) for _ in range(9)))
        finally:
            side.close()
    return TORCH_SETTINGS[medians.index(min(medians))]


def worker_command(options, variant="eager"):
    return [sys.executable, os.path.abspath(__file__), "--threads", str(options.threads), "--device", options.device,
            "--precision", options.precision, "--variant", variant] + (["--peer"] if options.peer else [])  # fmt: skip


def ask_torch(options):
    """report_torch() of a process of its own: this one does not load PyTorch."""
    done = subprocess.run(worker_command(options) + ["--report"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if done.returncode:
        raise BenchError(f"PyTorch: {(done.stderr.decode(errors='replace').strip().splitlines() or ['failed'])[-1]}")
    return json.loads(done.stdout)


def variants_of(options):
    """The ways in which PyTorch runs a workload, each compared with us."""
    if options.device == "cpu" and not options.peer:
        return ["eager"]
    report = ask_torch(options)
    if options.device == "cpu":  # max-autotune is about GPUs' kernels
        return ["eager", "compile"] if report["compile"] else ["eager"]
    if not report["cuda"]:
        raise BenchError(f"PyTorch {report['version']} has no GPU")
    print(f"PyTorch {report['version']} on {report['gpu']}", file=sys.stderr)
    options.on = options.on or figures.card_of(report["gpu"])
    return ["eager", "compile", "max-autotune"] if report["compile"] else ["eager"]


def last_line(text):
    return (text.decode(errors="replace").strip().splitlines() or ["failed"])[-1]


def run_once(command, what, environment=None):
    """The standard output of a command that has to succeed."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)
    if done.returncode:
        raise BenchError(f"{what}: {last_line(done.stderr)}")
    return done.stdout.decode()


def workload_job(batch):
    return ["--loss", "ce:logits,labels", "--dim", f"batch={batch}"]


def our_command(options, model, job):
    return [options.gradloom, "train", model, *job, "--optimizer", "adamw{lr=1e-3}",
            "--threads", str(options.threads), "--passes", options.passes, "--json",
            "--device", "cuda:0" if options.device == "cuda" else "cpu", "--precision", options.precision]  # fmt: skip


def time_sides(ours, theirs, environment, options):
    """Pairs of legs of the two commands, started anew for each launch, and what PyTorch's side told of itself."""
    our_environment = {k: v for k, v in os.environ.items() if not k.startswith(("OMP_", "GOMP_"))}
    pairs = []
    for launch in range(options.launches):
        sides = []
        try:
            sides.append(Side("gradloom", ours + ["--steps", "100000000", "--paced"], our_environment))
            sides.append(Side("torch", theirs, environment))
            blocks = options.blocks * (launch + 1) // options.launches - len(pairs)
            pairs += time_blocks(*sides, blocks, options.leg)
        finally:
            for side in sides:
                side.close()
    return pairs, sides[1].facts


def pass_gate(workload, model, options, folder):
    """Both sides' first losses with the same weights and batch; what they say, or an error."""
    name, batch = split_name(workload)
    theirs = run_once(worker_command(options) + ["--worker", workload, "--gate", folder], workload)
    given = ["--load-params", os.path.join(folder, "params.npz"), "--data", "npz:" + os.path.join(folder, "batch.npz"), "--steps", "1"]
    ours = [json.loads(line) for line in run_once(our_command(options, model, workload_job(batch)) + given, workload).splitlines()]
    loss = next(row["loss"] for row in ours if "loss" in row)
    passed, why = figures.gate(loss, json.loads(theirs.splitlines()[-1])["loss"], options.precision, name in ENCODERS)
    if not passed:
        raise BenchError(f"{workload}: {why}")
    return why


def planned(model, batch, options):
    """What our side plans: kernels and peak of a step, and with a card their FLOPs and the time that is expected of them there."""
    device = "cuda:0" if options.device == "cuda" or options.on else "cpu"
    command = [options.gradloom, "plan", model, *workload_job(batch), "--optimizer", "adamw{lr=1e-3}",
               "--device", device, "--precision", options.precision, "--passes", options.passes, "--json"]  # fmt: skip
    plan = json.loads(run_once(command, "plan"))
    return {**plan, **(json.loads(run_once(command + ["--roofline", "--on", options.on], "plan"))["roofline"] if options.on else {})}


def twin_or_model(name, options, folder):
    """The file of a workload: its twin, the model of the tests, or what this Python's PyTorch exports."""
    path = os.path.join(folder, name + ".onnx")
    if os.path.exists(os.path.join(twins.TWINS, name + ".json")):
        return path if os.path.exists(path) else twins.fill(name, folder)
    if name == "gpt-char":
        return os.path.join(ROOT, "tests", "models", name, "model.onnx")
    if not os.path.exists(path):
        run_once(worker_command(options) + ["--worker", name, "--export", path], f"{name}: export failed")
    return path


def side_figures(workload, step_ns, facts, expected, options):
    name, batch = split_name(workload)
    sizes = DECODERS.get(name) or ENCODERS.get(name)
    flops = figures.transformer_flops(sizes, batch) if sizes else expected.get("flops")
    items = batch * (sizes["context"] if sizes else 1)
    told = figures.figures(step_ns, items, flops, options.on, options.precision, expected.get("expected_ns"))
    return {**told, **{key: facts.get(key) for key in ("peak_bytes", "launches")}}


def bench_peer(workload, variant, options, folder):
    """A workload against PyTorch at its best (bench/peer.py)."""
    name, batch = split_name(workload)
    model = twin_or_model(name, options, folder)
    gate = pass_gate(workload, model, options, folder)
    expected = planned(model, batch, options)
    command = our_command(options, model, workload_job(batch) + ["--data", "synthetic"])
    worker = worker_command(options, variant) + ["--worker", workload]
    pairs, theirs = time_sides(command, worker, torch_environment(options.threads, TORCH_SETTINGS[0]), options)
    result = summarize(pairs)
    ours = {"peak_bytes": expected["plan_peak_bytes"], "launches": expected["kernels_per_step"]}
    peer = {key: theirs.get(key) for key in ("attention", "optimizer", "layout")}
    return {"gate": gate, "peer": peer, **result, "ours": side_figures(workload, result["ours_step_ns"], ours, expected, options),
            "theirs": side_figures(workload, result["torch_step_ns"], theirs, expected, options)}  # fmt: skip


def bench(name, variant, options, folder):
    if uses_peer(name, options):
        return bench_peer(name, variant, options, folder)
    environment = torch_environment(options.threads, PASSIVE)
    worker = worker_command(options, variant)
    model = os.path.join(ROOT, "tests", "models", name, "model.onnx")
    if name == "gpt2-124m":
        model = os.path.join(folder, name + ".onnx")
        if not os.path.exists(model):
            twins.fill(name, folder)
    elif name in EXPORTED or name not in WORKLOADS:
        model = os.path.join(folder, name + ".onnx")
        run_once(worker + ["--worker", name, "--export", model], f"{name}: export failed", environment)
    job = ["--loss", "loss", "--data", "npz:" + os.path.join(folder, name + ".npz")]
    if name in WORKLOADS:
        job = workload_job(WORKLOADS[name]["batch"]) + ["--data", "synthetic"]
    settings = TORCH_SETTINGS[0]
    if options.tune:
        settings = fastest_settings(worker + ["--worker", name], options.threads)
    environment = torch_environment(options.threads, settings)
    pairs, _ = time_sides(our_command(options, model, job), worker + ["--worker", name], environment, options)
    return {"torch_settings": settings, **summarize(pairs)}


def label(name, variant, options):
    if options.device == "cpu" and not options.peer:
        return f"{name} {options.precision} {options.threads} threads"
    return f"{name} {options.precision} {options.device} {variant}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where both sides compute (default: %(default)s)")
    parser.add_argument("--models", help="workloads, comma separated (default: gpt-char,mlp; on a GPU also gpt2-124m; zoo: all of zoo.py)")
    parser.add_argument("--precision", choices=("f32", "bf16"), default="f32", help="of both sides (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--blocks", type=int, default=24, help="ABBA blocks per workload (default: %(default)s)")
    parser.add_argument("--launches", type=int, default=3, help="launches of both processes (default: %(default)s)")
    parser.add_argument("--leg", type=float, default=0.25, help="seconds of each of a block's four legs (default: %(default)s)")
    parser.add_argument("--passes", default="default", help="pass pipeline of our side (default: %(default)s)")
    parser.add_argument("--gradloom", default=os.path.join(ROOT, "build", "release", "gradloom"), help="our command")
    parser.add_argument("--tune", action="store_true", help="compare with the fastest of several settings of PyTorch")
    parser.add_argument("--json", action="store_true", help="one JSON object per workload, with the block ratios")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--export", metavar="FILE", help=argparse.SUPPRESS)
    parser.add_argument("--report", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--variant", choices=("eager", "compile", "max-autotune"), default="eager", help=argparse.SUPPRESS)
    parser.add_argument("--gate", metavar="FOLDER", help=argparse.SUPPRESS)
    parser.add_argument("--peer", action="store_true", help="PyTorch as bench/peer.py sets it up, on the CPU too (on a GPU it always is)")
    parser.add_argument("--on", default="", help="the card of `gradloom plan --roofline`, for the share of the limit (default: by the GPU's name)")
    options = parser.parse_args()
    options.peer = options.peer or options.device == "cuda"
    if options.report:
        return report_torch()
    if options.export:
        return export_workload(options.worker, options.export)
    if options.worker:
        return torch_worker(options.worker, options)
    names = (options.models or DEFAULT_MODELS[options.device]).split(",")
    if any(split_name(name)[0] not in WORKLOADS for name in names):
        try:
            networks = ask_torch(options)["networks"]
        except BenchError as error:
            print(f"vs_torch: {error}", file=sys.stderr)
            return 1
        names = [each for name in names for each in (networks if name == "zoo" else [name])]
        unknown = [name for name in names if split_name(name)[0] not in WORKLOADS and name not in networks]
        if unknown:
            parser.error(f"no workload '{unknown[0]}'")
    if not 1 <= options.launches <= options.blocks or options.threads < 1 or options.leg <= 0:
        parser.error("--launches, --threads and --leg must be positive, --blocks at least --launches")
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        try:
            rows = [(name, variant) for variant in variants_of(options) for name in names]
        except BenchError as error:
            print(f"vs_torch: {error}", file=sys.stderr)
            return 1
        for name, variant in rows:
            try:
                result = bench(name, variant, options, folder)
            except BenchError as error:
                print(f"vs_torch: {label(name, variant, options)}: {error}", file=sys.stderr)
                failed = True
                continue
            if options.json:
                row = {"model": name, "precision": options.precision, "threads": options.threads, **result}
                if options.peer:
                    row.update(device=options.device, variant=variant)
                print(json.dumps(row), flush=True)
            else:
                print(f"{label(name, variant, options)}: {result['ratio']:.2f}x "
                      f"[{result['low']:.2f}, {result['high']:.2f}]", flush=True)  # fmt: skip
                for side in ("ours", "theirs") if "ours" in result else ():
                    print(f"  {side}: {figures.describe(result[side])}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
