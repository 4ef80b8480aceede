"""python -m benchmarks.device [--only WORD ...] [--libraries lazyt,torch] [--json FILE] [--seconds 0.3]

One process a library, which times all works; when it dies, another goes on with the next work, and the work is named.
The limit is measured in the same run: a copy on the device, and the best rate of the other libraries' products, which
are cuBLAS's. What lazyt compiles is timed with empty caches, and by a second process that finds it on disk.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import selectors
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from typing import Any

from benchmarks.device.libraries import LIBRARIES, Library
from benchmarks.device.works import WORKS, Work

ROUNDS = 5
# What one work may take in one library, compilation included, before its process is ended.
PATIENCE = 420.0


def device_name() -> str:
    """The GPU, or why there is none."""
    try:
        cupy = importlib.import_module("cupy")
        return str(cupy.cuda.runtime.getDeviceProperties(0)["name"].decode())
    except Exception as error:  # noqa: BLE001 - whatever is missing, the reader is told
        print(f"no GPU to measure on: {first_line(error)}")
        return ""


def first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"


def measure(library: Library, work: Work, scale: int, seconds: float) -> dict[str, Any]:
    """A work's times in one library."""
    start = time.perf_counter()
    call = work.make(library, scale)
    if call is None:
        return {}
    library.wait()
    ready = time.perf_counter()
    compiled: dict[str, Any] = {}
    if library.name == "lazyt":
        with library.m.expect() as seen:
            library.submit(call())
        compiled["compile"] = sum(r.compile_time for r in seen.reports)
        compiled["compiles"] = sum(r.compiles for r in seen.reports)
    else:
        library.submit(call())
    library.wait()
    first = time.perf_counter() - ready
    library.span(call, 3)
    once = max(library.span(call, 2), 1e-7)
    n = max(1, min(int(seconds / once), 2000))
    times = [library.span(call, n) for _ in range(ROUNDS)]
    found = {
        "seconds": statistics.median(times),
        "all": times,
        "runs": n,
        "first": first,
        "made": ready - start,
        **compiled,
    }
    if library.name == "lazyt":
        report = library.m.last_sync()
        found["kernels"] = getattr(report, "kernels", None)
    return found


def worker(name: str, device: str, first: int, only: list[str], scale: int, seconds: float) -> None:
    """Time the works from number `first` on; one line of JSON before each and one after."""
    library = LIBRARIES[name](device)
    print(json.dumps({"version": library.version}), flush=True)
    for i, work in enumerate(WORKS):
        if i < first or not chosen(work, only):
            continue
        print(json.dumps({"begins": i}), flush=True)
        try:
            found = measure(library, work, scale, seconds)
        except Exception as error:  # noqa: BLE001 - it is a line of the table; the next work may be well
            traceback.print_exc()
            found = {"failure": first_line(error)}
        print(json.dumps({"work": i, **found}), flush=True)
    print(json.dumps({"over": True}), flush=True)


def chosen(work: Work, only: list[str]) -> bool:
    return not only or any(word.lower() in work.name.lower() for word in only)


def run_library(name: str, device: str, only: list[str], scale: int, seconds: float) -> dict[str, Any]:
    """What a library's processes found: {'version', 'works': {number: found}}, or {'missing': why}."""
    result: dict[str, Any] = {"works": {}}
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "LAZYT_CACHE_DIR": cache, "TORCHINDUCTOR_CACHE_DIR": f"{cache}/inductor",
                       "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}  # fmt: skip
        failure = run_works(result, name, device, only, scale, seconds, environment)
        again = [w.name for w in WORKS if w.compiled and chosen(w, only)]
        if name == "lazyt" and again and not failure:
            warm: dict[str, Any] = {"works": {}}
            run_works(warm, name, device, again, scale, 0.0, environment)
            result["warm"] = warm["works"]
    return {"missing": failure} if failure else result


def run_works(
    result: dict[str, Any], name: str, device: str, only: list[str], scale: int, seconds: float,
    environment: dict[str, str],
) -> str:  # fmt: skip
    """Put what a library's processes find into `result`; why the library is missing, or ''."""
    first = 0
    while first < len(WORKS):
        command = [sys.executable, "-m", "benchmarks.device", "--worker", name, "--device", device]
        command += ["--first", str(first), "--scale", str(scale), "--seconds", str(seconds), "--only", *only]
        begun, over = first, False
        with tempfile.TemporaryFile("w+") as errors:
            process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment, bufsize=1
            )
            assert process.stdout is not None
            try:
                over, begun = _listen(process, result, begun)
            finally:
                process.kill()
                process.wait()
                process.stdout.close()
            errors.seek(0)
            said = errors.read().strip()
        if "version" not in result:
            return said.splitlines()[-1] if said else f"exit {process.returncode}"
        failed = [f["failure"] for f in result["works"].values() if "failure" in f]
        if failed and said:
            print(f"--- {name} said:\n{said[-3000:]}\n---", file=sys.stderr)
        if over:
            break
        if begun not in result["works"]:
            last = said.splitlines()[-1] if said else ""
            result["works"][begun] = {"failure": f"its process ended or took over {PATIENCE:.0f} s: {last}"}
        first = begun + 1
    return ""


def _listen(process: subprocess.Popen[str], result: dict[str, Any], begun: int) -> tuple[bool, int]:
    """Take a worker's lines until it ends; whether it came to its end, and the work it was at."""
    selector = selectors.DefaultSelector()
    assert process.stdout is not None
    selector.register(process.stdout, selectors.EVENT_READ)
    while True:
        if not selector.select(PATIENCE):
            return False, begun
        line = process.stdout.readline()
        if not line:
            return False, begun
        if not line.startswith("{"):
            continue
        said = json.loads(line)
        if "version" in said:
            result["version"] = said["version"]
        elif "begins" in said:
            begun = said["begins"]
        elif "work" in said:
            result["works"][said.pop("work")] = said
        elif "over" in said:
            return True, begun


def copy_rate(nbytes: int = 1 << 30) -> float:
    """Bytes a second that a copy on the device reads and writes."""
    cupy = importlib.import_module("cupy")
    a, b = cupy.zeros(nbytes // 4, "f4"), cupy.empty(nbytes // 4, "f4")
    rates = []
    for _ in range(ROUNDS + 1):
        start, stop = cupy.cuda.Event(), cupy.cuda.Event()
        start.record()
        for _ in range(10):
            cupy.copyto(b, a)
        stop.record()
        stop.synchronize()
        rates.append(20 * nbytes / (cupy.cuda.get_elapsed_time(start, stop) / 1e3))
    return max(rates)


def product_rates(found: dict[str, Any], scale: int) -> dict[str, float]:
    """By kind of product: the best rate of a library that is not lazyt, at any size."""
    best: dict[str, float] = {}
    for name, result in found.items():
        for i, cell in result.get("works", {}).items() if name != "lazyt" else ():
            work = WORKS[i]
            if work.flops and "seconds" in cell:
                best[work.kind] = max(best.get(work.kind, 0.0), work.flops(scale) / cell["seconds"])
    return best


def table(found: dict[str, Any], rate: float, scale: int) -> list[str]:
    """A line a work: lazyt, the others, the limit and what is reached of it."""
    names = [n for n in LIBRARIES if "works" in found.get(n, {})]
    best = product_rates(found, scale)
    head = "".join(f"{n:>14}" for n in names)
    lines = [f"{'work':36}{head}{'limit':>10}{'of limit':>10}{'to reach':>10}  ratio"]
    for i, work in enumerate(WORKS):
        cells = {n: found[n]["works"].get(i, {}) for n in names}
        if not any(cells.values()):
            continue
        times = {n: c["seconds"] for n, c in cells.items() if "seconds" in c}
        limit = work.nbytes(scale) / rate if work.nbytes and rate else 0.0
        if work.flops and best.get(work.kind):
            limit = work.flops(scale) / best[work.kind]
        own = times.get("lazyt")
        others = [t for n, t in times.items() if n != "lazyt"]
        text = f"{work.name:36}"
        for n in names:
            text += f"{times[n] * 1e3:>11.3f} ms" if n in times else f"{'failed' if 'failure' in cells[n] else '-':>14}"
        text += f"{limit * 1e3:>10.3f}" if limit else f"{'-':>10}"
        text += f"{limit / own:>10.0%}" if limit and own else f"{'-':>10}"
        text += f"{work.reach:>10}  " + (f"{own / min(others):.2f}" if own and others else "-")
        lines.append(text)
    for n in names:
        works = sorted(found[n]["works"].items())
        firsts = [f"{WORKS[i].name} {f['first']:.1f} s" for i, f in works if f.get("first", 0) > 1]
        if firsts:
            lines.append(f"first call, empty caches, {n}: {'; '.join(firsts)}")
        for i, f in works:
            if WORKS[i].compiled and "compile" in f:
                warm = found[n].get("warm", {}).get(i, {})
                said = (
                    f"{warm['compile']:.2f} s from disk" if "compile" in warm else "no second process came to its end"
                )
                lines.append(f"compile, {WORKS[i].name}, {n}: {f['compiles']} kernels in {f['compile']:.2f} s; {said}")
        lines += [f"FAILED {n}: {WORKS[i].name}: {f['failure']}" for i, f in works if "failure" in f]
    lines += [f"left out {n}: {f['missing']}" for n, f in found.items() if "missing" in f]
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.device", description=__doc__)
    parser.add_argument("--only", nargs="*", default=[], help="works whose names have one of these words")
    parser.add_argument("--libraries", default=",".join(LIBRARIES))
    parser.add_argument("--json", default="")
    parser.add_argument("--seconds", type=float, default=0.3, help="of each of five rounds")
    parser.add_argument("--scale", type=int, default=1, help="divide sizes by this: a trial")
    parser.add_argument("--device", default="cuda:0", help="'cpu': a trial of the programs without a GPU")
    parser.add_argument("--worker", default="", help=argparse.SUPPRESS)
    parser.add_argument("--first", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        worker(options.worker, options.device, options.first, options.only, options.scale, options.seconds)
        return 0
    rate = 0.0
    if options.device != "cpu":
        name = device_name()
        if not name:
            return 2
        rate = copy_rate()
        print(f"{name}: a copy on the device moves {rate / 1e9:.0f} GB/s (reads and writes)", flush=True)
    found: dict[str, Any] = {}
    for n in options.libraries.split(","):
        found[n] = run_library(n, options.device, options.only, options.scale, options.seconds)
        print(f"{n} {found[n].get('version', 'left out: ' + found[n].get('missing', ''))}", flush=True)
        if options.json:
            with open(options.json, "w") as file:
                json.dump({"copy": rate, "scale": options.scale, "found": found}, file, indent=1)
    print("\n".join(table(found, rate, options.scale)))
    return int(any("failure" in f for x in found.values() for f in x.get("works", {}).values()))


if __name__ == "__main__":
    sys.exit(main())
