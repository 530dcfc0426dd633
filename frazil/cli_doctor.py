"""`frazil doctor`: what is installed, what loads, what is missing, and what each missing thing would enable.

Must work where little else does: uses the standard library alone and imports everything it reports on in
processes of their own, so that a package that fails, crashes or hangs on import costs one line of the report.
Where Frazil itself does not import, run this file: `python .../frazil/cli_doctor.py [--json]`.
"""

from __future__ import annotations

import json
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

_TIMEOUT = 120  # seconds for one import; a cold framework on a slow disk needs many


@dataclass(frozen=True)
class Package:
    """A package that Frazil can use.

    Attributes
    ----------
    name
        As installers know it.
    module
        What is imported; None for a package of libraries.
    extra
        Extra of Frazil that installs it; "" for the base install.
    enables
        What works with it and not without it.
    """

    name: str
    module: str | None
    extra: str
    enables: str


PACKAGES = (
    Package("frazil", "frazil", "", "everything"),
    Package("numpy", "numpy", "", "everything: operands on the host and the reference engine"),
    Package("ml-dtypes", "ml_dtypes", "", "everything: bfloat16 and FP8 on the host"),
    Package("click", "click", "", "the other commands of `frazil`"),
    Package("cuda-bindings", "cuda.bindings.driver", "", "seeing CUDA devices and running on them"),
    Package(
        "triton", "triton", "kernels", "compiling GPU kernels here (a shipped cache of them runs without it)"
    ),
    Package("torch", "torch", "torch", "operands and streams of torch, and the tests that compare with it"),
    Package(
        "nvidia-cudnn-cu13",
        None,
        "cudnn-cu13",
        "engines of the closed library libcudnn, on the CUDA version of its name",
    ),
    Package(
        "nvidia-cudnn-cu12",
        None,
        "cudnn-cu12",
        "engines of the closed library libcudnn, on the CUDA version of its name",
    ),
)


def collect(step: Callable[[], None] = lambda: None) -> dict[str, Any]:
    """The report as plain data; `step` is called once for each of `steps()` parts of the work."""
    report: dict[str, Any] = {
        "python": {"version": platform.python_version(), "executable": sys.executable},
        "platform": platform.platform(),
        "packages": {},
    }
    jobs: dict[Any, str] = {}
    with ThreadPoolExecutor(max_workers=4) as pool:
        jobs[pool.submit(_machine)] = "machine"
        jobs[pool.submit(_compiler)] = "compiler"
        for package in PACKAGES:
            jobs[pool.submit(_package, package)] = package.name
        for job in as_completed(jobs):
            where = report if jobs[job] in ("machine", "compiler") else report["packages"]
            where[jobs[job]] = job.result()
            step()
    report["packages"] = {p.name: report["packages"][p.name] for p in PACKAGES}
    report["missing"] = _missing(report)
    report["ok"] = all(_works(report["packages"][p.name]) for p in PACKAGES if not p.extra)
    return report


def steps() -> int:
    """Number of parts of the work of `collect`."""
    return len(PACKAGES) + 2


def facts() -> dict[str, Any]:
    """What Frazil says of the machine: driver, devices, engines, settings. Run in a process of its own."""
    from . import catalog, driver, env

    devices = [asdict(driver.device_info(i)) for i in range(driver.device_count())]
    return {
        "driver": {"cuda": driver.driver_version(), "absence": driver.absence()},
        "devices": devices,
        "engines": [e.name for e in catalog.ENTRIES],
        "settings": env.settings(),
    }


def text(report: dict[str, Any]) -> str:
    """The report for people."""
    python, machine, compiler = report["python"], report["machine"], report["compiler"]
    rows = [("package", "installed", "loaded", "")]
    for name, found in report["packages"].items():
        rows.append((name, found["installed"] or "-", found["loaded"] or "-", found["note"]))
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    lines = [f"Python {python['version']} ({python['executable']}) on {report['platform']}", ""]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=False))
        lines.append(f"  {'  '.join(cells)}  {row[3]}".rstrip())
    lines.append("")
    if "error" in machine:
        lines.append(f"CUDA driver   not asked, since Frazil does not import: {machine['error']}")
    else:
        cuda = machine["driver"]["cuda"]
        served = f"serves CUDA {cuda // 1000}.{cuda % 1000 // 10}" if cuda else machine["driver"]["absence"]
        lines.append(f"CUDA driver   {served}")
        for device in machine["devices"]:
            arch = "sm_{}{}".format(*device["compute_capability"])
            memory = device["memory_bytes"] / 2**30
            lines.append(
                f"device {device['ordinal']}      {device['device_name']}, {arch}, "
                f"{device['sm_count']} multiprocessors, {memory:.1f} GiB"
            )
        only = " (the CPU's: this version has none for GPUs)" if len(machine["engines"]) == 1 else ""
        lines.append(f"engines       {', '.join(machine['engines'])}{only}")
        for name, value in machine["settings"].items():
            lines.append(f"setting       {name}={value}")
    lines.append(f"C compiler    {compiler['version'] or '-'}")
    if report["missing"]:
        lines += ["", "Missing, and what it would enable:"]
        lines += [f"  {m['what']}: {m['enables']}{_remedy(m)}" for m in report["missing"]]
    return "\n".join(lines)


def main(arguments: Sequence[str]) -> int:
    """Run as a script."""
    report = collect()
    print(json.dumps(report, indent=2) if "--json" in arguments else text(report))
    return 0 if report["ok"] else 1


def _package(package: Package) -> dict[str, Any]:
    """Installed and loaded version of a package, and what is wrong with it."""
    installed = _installed(package.name)
    if package.module is None:
        return {"installed": installed, "loaded": "", "path": "", "error": "", "note": ""}
    root, parent = package.module.split(".")[0], package.module.rpartition(".")[0] or package.module
    code = (
        f"import importlib as i, json; m, r = (i.import_module(n) for n in {(package.module, parent)!r}); "
        "version = getattr(m, '__version__', getattr(r, '__version__', '')); "
        "print(json.dumps([str(version), getattr(m, '__file__', '') or '']))"
    )
    found = _child(code)
    if "error" in found:
        absent = not installed and f"No module named '{root}" in found["error"]
        error = "" if absent else found["error"]
        note = f"does not import: {error}" if error else ""
        return {"installed": installed, "loaded": "", "path": "", "error": error, "note": note}
    loaded, path = found["value"]
    # A module without a version of its own still shows that it loads.
    note = f"loaded from {path}" if package.name == "frazil" else ""
    if installed and loaded and loaded != installed:
        note = f"loaded another version than the installed one, from {path}"
    return {"installed": installed, "loaded": loaded or "yes", "path": path, "error": "", "note": note}


def _installed(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def _machine() -> dict[str, Any]:
    found = _child("import json; from frazil.cli_doctor import facts; print(json.dumps(facts()))")
    return found["value"] if "value" in found else {"error": found["error"]}


def _compiler() -> dict[str, str]:
    for name in ("cc", "gcc", "clang"):
        path = shutil.which(name)
        if path is not None:
            run = subprocess.run(
                [path, "--version"], capture_output=True, text=True, timeout=_TIMEOUT, check=False
            )
            version = (run.stdout.splitlines() or ["version unknown"])[0]
            return {"path": path, "version": f"{version} ({path})"}
    return {"path": "", "version": ""}


def _child(code: str) -> dict[str, Any]:
    """What a piece of code prints as JSON in a process of its own, or the last line of its complaint."""
    # Behind everything else on the path: an installed Frazil comes first, as in the user's own programs.
    home = str(Path(__file__).resolve().parent.parent)
    command = [sys.executable, "-c", f"import sys; sys.path.append({home!r}); {code}"]
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT, check=False)
    except subprocess.TimeoutExpired:
        return {"error": f"no answer within {_TIMEOUT} s"}
    if run.returncode == 0:
        return {"value": json.loads(run.stdout.splitlines()[-1])}
    complaint = run.stderr.strip().splitlines() or [f"ended with status {run.returncode}"]
    return {"error": complaint[-1]}


def _works(found: dict[str, Any]) -> bool:
    return bool(found["loaded"])


def _missing(report: dict[str, Any]) -> list[dict[str, str]]:
    packages, machine = report["packages"], report["machine"]
    found = []
    for package in PACKAGES:
        state = packages[package.name]
        if package.module is not None and not state["loaded"]:
            found.append(
                _entry(package.name, package, "it does not import: see above" if state["error"] else "")
            )
    libraries = [p for p in PACKAGES if p.module is None]
    if not any(packages[p.name]["installed"] for p in libraries):
        found.append(_entry(" or ".join(p.name for p in libraries), libraries[0], ""))
    if "error" not in machine and not machine["devices"]:
        enables = (
            "every engine for GPUs; planning for one works without it (`frazil explain FILE --target sm_90`)"
        )
        found.append({"what": "a CUDA device", "enables": enables, "remedy": ""})
    if not report["compiler"]["path"]:
        enables = "building C extensions; each has a Python twin that serves without it"
        found.append({"what": "a C compiler", "enables": enables, "remedy": ""})
    return found


def _entry(what: str, package: Package, remedy: str) -> dict[str, str]:
    install = f'pip install "frazil[{package.extra}]"' if package.extra else f"pip install {package.name}"
    return {"what": what, "enables": package.enables, "remedy": remedy or install}


def _remedy(missing: dict[str, str]) -> str:
    return f"  ({missing['remedy']})" if missing["remedy"] else ""


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
