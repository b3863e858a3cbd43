#!/usr/bin/env python3
"""Times a training step on several ranks here and in PyTorch's DistributedDataParallel (gloo), one thread each, in turns.

    /usr/bin/python3 bench/ranks.py [--ranks 2] [--models gpt-char,mlp-30m] [--rounds 6] [--steps 60]

    gpt-char 2 ranks: gradloom 31.9 ms, DDP 56.4 ms: 1.76x [1.74, 1.78]

Workloads: gpt-char (tests/models, batch 8 for each rank) and mlp-30m (784-3700-3700-3700-10, batch 32 for each rank), f32, AdamW. Every
round runs both sides once, in changing order, each in new processes; a side's number is the median of its steps after the first
ten, the ratio that of the two numbers of a round; printed are medians over the rounds and the range of the ratios.

With --predict, instead of PyTorch's: what `plan --ranks` says of a step from the kernels of one rank and from the link that
`devices --measure --ranks` found, both measured in the same round, beside what so many ranks then take.

    gpt-char 2 ranks: predicted 31.7 ms, measured 33.2 ms: 0.95 [0.95, 0.96], error 5 % (at most 5 %)

With --rates 0.2,1,5 as well the same on slower links: every rank in a network namespace of its own, whose sending is limited to so many Gbit/s
(tc tbf; root and iproute2 are needed). Where no pairs of devices (veth) can be made, as in many containers, or with --loopback, all ranks are in one
private namespace, whose loopback device is limited so: they share it, as ranks of a machine share its memory. So they are with --transport mpi.

    gpt-char 2 ranks, 1 Gbit/s: predicted .., measured ..
    gpt-char 2 ranks, 1 Gbit/s of one loopback: predicted .., measured ..

With --hidden: how much of the exchanges the backward pass hides, over links on which they take half as long as it does (or of --rates).
A step that exchanges, one that exchanges in the background, and one of as many ranks that know nothing of each other, in turns.

    gpt-char 2 ranks, 2.20 Gbit/s: exchange 13.5 ms of a step of 52.6 ms, 36 % hidden [-11, 44]
"""

import argparse
import contextlib
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

import vs_torch

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
WIDTHS = [784, 3700, 3700, 3700, 10]
BATCH = {"gpt-char": 8, "mlp-30m": 32}
WARM_UP = 10  # steps, but a third of them at most


def make_workload(name):
    import torch

    batch = BATCH[name]
    if name == "gpt-char":
        return vs_torch.make_workload(name, batch)
    torch.manual_seed(1)
    modules = vs_torch.load_modules()
    return modules.Mlp(WIDTHS), torch.rand(batch, WIDTHS[0]), torch.randint(WIDTHS[-1], (batch,))


def export_workload(name, path):
    model, inputs, labels = make_workload(name)
    import export  # where make_workload found the modules

    export.export_onnx(model, {"x": inputs}, labels, path, opset=17)


def torch_rank(name, rank, options):
    import torch
    import torch.distributed

    torch.set_num_threads(1)
    if not vs_torch.has_fast_blas():
        sys.exit("PyTorch runs on the reference BLAS: install libopenblas0-openmp or libopenblas0-pthread")
    torch.distributed.init_process_group("gloo", rank=rank, world_size=options.ranks, init_method=f"tcp://127.0.0.1:{options.port}")
    model, inputs, labels = make_workload(name)
    model.train()
    # Masks of truth values, which gloo cannot send, are the same on every rank.
    DataParallel = torch.nn.parallel.DistributedDataParallel
    DataParallel._set_params_and_buffers_to_ignore_for_model(model, [name for name, _ in model.named_buffers()])
    parallel = DataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=options.foreach)
    times = []
    for _ in range(options.steps):
        start = time.perf_counter_ns()
        optimizer.zero_grad(set_to_none=True)
        result = parallel(inputs, labels)
        (result if torch.is_tensor(result) else result[0]).backward()
        optimizer.step()
        times.append(time.perf_counter_ns() - start)
    if rank == 0:
        print(json.dumps(times))


def warm(times):
    return times[min(WARM_UP, len(times) // 3) :]


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def run_torch(name, options, foreach):
    """The time of a step, in ns, with one of AdamW's two implementations."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    words = [options.python, os.path.abspath(__file__), "--steps", str(options.steps), "--ranks", str(options.ranks), "--port", str(free_port())]
    words += ["--foreach"] if foreach else []
    ranks = [
        subprocess.Popen(words + ["--torch-rank", str(rank), "--models", name], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)
        for rank in range(options.ranks)
    ]
    outputs = [rank.communicate() for rank in ranks]
    for rank, (_, errors) in zip(ranks, outputs):
        if rank.returncode:
            sys.exit(f"{name}: a rank of PyTorch failed: {errors.decode(errors='replace').strip().splitlines()[-1:]}")
    return statistics.median(warm(json.loads(outputs[0][0])))


@contextlib.contextmanager
def namespaces(ranks, rate):
    """Names of network namespaces, one for each rank, behind one bridge; each sends `rate` Gbit/s at most."""
    bridge, names = f"glb{os.getpid()}", [f"gl{os.getpid()}-{rank}" for rank in range(ranks)]

    def ip(*words):
        subprocess.run(["ip", *words], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

    try:
        ip("link", "add", bridge, "type", "bridge")
        ip("link", "set", bridge, "up")
        for rank, name in enumerate(names):
            ip("netns", "add", name)
            ip("link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", name)
            ip("link", "set", name, "master", bridge, "up")
            ip("-n", name, "addr", "add", f"10.77.0.{rank + 1}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")
            ip("-n", name, "link", "set", "lo", "up")
            ip("netns", "exec", name, *limit_words("eth0", rate))
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], stderr=subprocess.DEVNULL)
        subprocess.run(["ip", "link", "del", bridge], stderr=subprocess.DEVNULL)


def limit_words(device, rate):
    return ["tc", "qdisc", "add", "dev", device, "root", "tbf", "rate", f"{rate}gbit", "burst", "256kb", "latency", "100ms"]


@contextlib.contextmanager
def loopback(rate):
    """What enters a private network namespace, which has a loopback device that carries `rate` Gbit/s and nothing else."""
    script = f"ip link set lo up && {' '.join(limit_words('lo', rate))} && echo ready && exec cat"
    with subprocess.Popen(["unshare", "-n", "sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as keeper:
        if keeper.stdout.readline() != "ready\n":
            sys.exit("--rates needs root, iproute2 and either veth pairs or tbf on a loopback device")
        try:
            yield ["nsenter", "-t", str(keeper.pid), "-n"]
        finally:
            keeper.stdin.close()  # cat ends, and the namespace with it


@contextlib.contextmanager
def slow_links(options, rate):
    """Ranks exchange over links of `rate` Gbit/s: each in a namespace, else all over one loopback device."""
    with contextlib.ExitStack() as stack:
        options.namespaces, options.enter, options.link = None, [], f", {rate} Gbit/s"
        try:
            if not options.loopback and options.transport != "mpi":  # whose daemon would have to be in all of them
                options.namespaces = stack.enter_context(namespaces(options.ranks, rate))
        except (OSError, subprocess.CalledProcessError) as error:
            said = getattr(error, "stderr", None) or str(error).encode()
            print(f"no veth pairs here ({said.decode(errors='replace').strip()}): one loopback device", file=sys.stderr)
        if not options.namespaces:
            options.enter = stack.enter_context(loopback(rate))
            options.link += " of one loopback"
        yield


def answer_of_ranks(options, *words):
    """The JSON lines of a command that all ranks run: by --ranks, or each in its namespace."""
    if not options.namespaces:
        return answer(options, *words)
    place = {"WORLD_SIZE": str(options.ranks), "MASTER_ADDR": "10.77.0.1", "MASTER_PORT": "29500", "LOCAL_WORLD_SIZE": "1"}
    ranks = [
        subprocess.Popen(["ip", "netns", "exec", name, options.gradloom, *words, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                         text=True, env={**os.environ, **place, "RANK": str(rank)})
        for rank, name in enumerate(options.namespaces)
    ]  # fmt: skip
    try:
        outputs = [rank.communicate() for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    if any(rank.returncode for rank in ranks):
        sys.exit(f"{words[0]}: {''.join(errors for _, errors in outputs)}")
    return [json.loads(line) for line in outputs[0][0].splitlines()]


def answer(options, *words):
    """The JSON lines of a command of ours."""
    enter = getattr(options, "enter", [])
    transport = getattr(options, "transport", None) or ("tcp" if enter else None)
    environment = {**os.environ, **({"GRADLOOM_TRANSPORT": transport} if transport else {})}
    if enter:  # Open MPI's ranks would meet in shared memory, past the loopback device
        environment |= {"OMPI_MCA_btl": "self,tcp", "OMPI_MCA_btl_tcp_if_include": "lo"}
    done = subprocess.run([*enter, options.gradloom, *words, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    if done.returncode:
        sys.exit(f"{words[0]}: {done.stderr}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def job_words(name, options, folder, ranks):
    model = os.path.join(ROOT, "tests", "models", name, "model.onnx")
    if name != "gpt-char":
        model = os.path.join(folder, name + ".onnx")
    return [
        model, "--dim", f"batch={BATCH[name]}", "--loss", "ce:logits,labels", "--optimizer", "adamw{lr=1e-3}",
        "--ranks", str(ranks), "--threads", "1", "--passes", options.passes,
    ]  # fmt: skip


def step_times(lines):
    """Of the JSON lines of a training, without its first steps."""
    return warm([line["step_ns"] for line in lines if "step_ns" in line and "loss" in line])


def run_gradloom(name, options, folder):
    lines = answer_of_ranks(options, "train", *job_words(name, options, folder, options.ranks), "--steps", str(options.steps))
    return statistics.median(step_times(lines))


def predict(name, options, folder):
    """The time of a step on so many ranks, in ns, from one rank and the link."""
    session = os.path.join(folder, "one.db")
    if os.path.exists(session):
        os.remove(session)
    link = answer_of_ranks(options, "devices", "--measure", "--ranks", str(options.ranks))[-1]["link"]
    answer(options, "train", *job_words(name, options, folder, 1), "--steps", str(options.steps), "--session", session)
    # In namespaces every rank is a machine, and all of them have one machine's cores.
    cluster = ["--local-link", link]
    if options.namespaces:
        cluster = ["--local", "1", "--link", link, "--cores", str(len(os.sched_getaffinity(0)) / options.ranks)]
    plan = answer(options, "plan", *job_words(name, options, folder, options.ranks), "--costs", session, *cluster)[-1]
    return next(row for row in plan["scaling"]["rows"] if row["ranks"] == options.ranks)["predicted_step_ns"]


def steps_apart(name, options, folder):
    """The time of a step of as many ranks as processes that know nothing of each other."""
    words = [options.gradloom, "train", *job_words(name, options, folder, 1), "--steps", str(options.steps), "--json"]
    ranks = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True) for _ in range(options.ranks)]
    outputs = [rank.communicate()[0] for rank in ranks]
    if any(rank.returncode for rank in ranks):
        sys.exit(f"train of one rank ended with exit code {max(rank.returncode for rank in ranks)}")
    return statistics.median(time for text in outputs for time in step_times(map(json.loads, text.splitlines())))


def half_of_backward(name, options, folder):
    """Gbit/s of a link over which the exchanges of a step take half as long as its backward pass, which is some 60 % of the step."""
    plan = answer(options, "plan", *job_words(name, options, folder, options.ranks))[-1]
    sent = plan["scaling"]["sent_bytes"] * (options.ranks if options.loopback else 1)
    return f"{8 * sent / (0.3 * steps_apart(name, options, folder)):.2f}"


def hidden(name, options, folder):
    """Prints the share of the exchanges' time that a step in which they are made in the background is not longer by."""
    sides = {"apart": [], "waits": [], "hides": []}
    passes = options.passes
    for _ in range(options.rounds):
        sides["apart"].append(steps_apart(name, options, folder))
        sides["hides"].append(run_gradloom(name, options, folder))
        options.passes = passes + ",data-parallel{overlap=false}"
        sides["waits"].append(run_gradloom(name, options, folder))
        options.passes = passes
    exchanges = [waits - apart for waits, apart in zip(sides["waits"], sides["apart"])]
    shares = [100 * (waits - hides) / exchange for waits, hides, exchange in zip(sides["waits"], sides["hides"], exchanges)]
    print(
        f"{name} {options.ranks} ranks{options.link}: exchange {statistics.median(exchanges) / 1e6:.1f} ms of a step of "
        f"{statistics.median(sides['waits']) / 1e6:.1f} ms, {statistics.median(shares):.0f} % hidden [{min(shares):.0f}, {max(shares):.0f}]",
        flush=True,
    )


def print_medians(name, options, sides, times, ratios):
    texts = [f"{side} {statistics.median(of_side) / 1e6:.1f} ms" for side, of_side in zip(sides, times)]
    times_sign, said = ("", error_text(ratios)) if options.predict else ("x", "")
    print(
        f"{name} {options.ranks} ranks{options.link}: {', '.join(texts)}: "
        f"{statistics.median(ratios):.2f}{times_sign} [{min(ratios):.2f}, {max(ratios):.2f}]{said}",
        flush=True,
    )


def error_text(ratios):
    """How far predictions are from what was measured, by their ratios."""
    errors = [abs(ratio - 1) for ratio in ratios]
    return f", error {100 * statistics.median(errors):.0f} % (at most {100 * max(errors):.0f} %)"


def score(name, options, folder):
    ours, theirs = [], []
    for i in range(options.rounds):
        if options.predict:
            theirs.append(predict(name, options, folder))
            ours.append(run_gradloom(name, options, folder))
            continue
        for side in ("ours", "theirs") if i % 2 == 0 else ("theirs", "ours"):
            if side == "ours":
                ours.append(run_gradloom(name, options, folder))
            else:
                theirs.append(min(run_torch(name, options, foreach) for foreach in (False, True)))
    ratios = [b / a for a, b in zip(ours, theirs)]
    if options.predict:
        print_medians(name, options, ("predicted", "measured"), (theirs, ours), ratios)
    else:
        print_medians(name, options, ("gradloom", "DDP"), (ours, theirs), ratios)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="gpt-char,mlp-30m")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--passes", default="default")
    parser.add_argument("--transport", choices=("mpi", "tcp"), help="what carries bytes between our ranks; by default what --ranks takes")
    parser.add_argument("--predict", action="store_true", help="compare with what plan --ranks predicts, instead of PyTorch")
    parser.add_argument("--hidden", action="store_true", help="how much of the exchanges the backward pass hides, instead of PyTorch")
    parser.add_argument("--rates", help="with --predict or --hidden: Gbit/s of links between namespaces, by comma")
    parser.add_argument("--loopback", action="store_true", help="with --rates: one namespace, whose loopback device is limited")
    parser.add_argument("--python", default=sys.executable, help="the Python that has the PyTorch to compare with")
    parser.add_argument("--gradloom", default=os.path.join(ROOT, "build", "release", "gradloom"))
    parser.add_argument("--torch-rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--foreach", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--export", help=argparse.SUPPRESS)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # namespaces are deleted then, too
    options.namespaces, options.enter, options.link = None, [], ""
    if options.rates and not options.predict and not options.hidden:
        parser.error("--rates goes with --predict or --hidden")
    if options.torch_rank is not None:
        return torch_rank(options.models, options.torch_rank, options)
    if options.export:
        return export_workload(options.models, options.export)
    with tempfile.TemporaryDirectory() as folder:
        for name in options.models.split(","):
            if name != "gpt-char":
                words = [options.python, os.path.abspath(__file__), "--models", name, "--export", os.path.join(folder, name + ".onnx")]
                subprocess.run(words, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            rates = options.rates or (options.hidden and half_of_backward(name, options, folder))
            if not rates:
                score(name, options, folder)
                continue
            for rate in rates.split(","):
                with slow_links(options, rate):
                    (hidden if options.hidden else score)(name, options, folder)
    return None


if __name__ == "__main__":
    sys.exit(main())
