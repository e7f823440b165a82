"""Lets PyPI's torch be imported without NVIDIA's libraries.

    stub_cuda.py SITE_PACKAGES

The torch that PyPI has for Linux is built for CUDA and does not load without some
gigabytes of libraries that computing on a CPU never calls. This makes one small
library that has all the functions torch expects of them, each of which only says
that something went wrong, and puts it where they are looked for. Needs gcc and
readelf. The CUDA runtime itself is small, and installed.
"""

import pathlib
import re
import subprocess
import sys
import tempfile

CUDA_LIBRARY = re.compile(r"lib(cu|nv|nccl)")
CUDA_FUNCTION = re.compile(r"(cu|nv|nccl)")
STUB = "libcudastub.so"


def readelf(*arguments: str) -> list[str]:
    return subprocess.run(["readelf", "-W", *arguments], capture_output=True, text=True, check=True).stdout.splitlines()


def needed(library: pathlib.Path) -> set[str]:
    """The libraries that a library asks for."""
    found = (re.search(r"\(NEEDED\).*\[(.+)\]", line) for line in readelf("-d", str(library)))
    return {match.group(1) for match in found if match}


def symbols(library: pathlib.Path) -> tuple[set[str], set[str]]:
    """The names a library defines, and those it wants, as name or name@version."""
    defines, wants = set(), set()
    for line in readelf("--dyn-syms", str(library)):
        columns = line.split()  # number: value size type binding visibility section name
        if len(columns) < 8 or not columns[0].rstrip(":").isdigit():
            continue
        binding, section, name = columns[4], columns[6], columns[7].replace("@@", "@")
        if section != "UND":
            defines.add(name.split("@")[0])
        elif binding != "WEAK" and CUDA_FUNCTION.match(name):
            wants.add(name)
    return defines, wants


def build(stub: pathlib.Path, names: set[str]) -> None:
    """Makes a library of functions that return 1, under the versions that are asked for."""
    versions: dict[str, list[str]] = {}
    for name in sorted(names):
        function, _, version = name.partition("@")
        versions.setdefault(version, []).append(function)
    unversioned = versions.pop("", [])
    functions = sorted({*unversioned, *(f for group in versions.values() for f in group)})
    with tempfile.TemporaryDirectory() as scratch:
        source, script = pathlib.Path(scratch, "stub.c"), pathlib.Path(scratch, "stub.map")
        source.write_text("".join(f"int {f}(void) {{ return 1; }}\n" for f in functions))
        script.write_text("".join(f"{v} {{ global: {'; '.join(group)}; }};\n" for v, group in versions.items()))
        flags = ["-w", "-fno-builtin", "-shared", "-fPIC", "-nostdlib", f"-Wl,-soname,{STUB}"]
        if versions:
            flags.append(f"-Wl,--version-script={script}")
        subprocess.run(["gcc", *flags, "-o", str(stub), str(source)], check=True)


def main() -> None:
    packages = pathlib.Path(sys.argv[1])
    directory = packages / "torch" / "lib"
    torch = [p for p in directory.glob("*.so*") if not p.is_symlink() and p.name != STUB]
    installed = [*torch, *(packages / "nvidia").rglob("*.so*")]
    defined: set[str] = set()
    wanted: set[str] = set()
    for library in installed:
        defines, wants = symbols(library)
        defined |= defines
        if library in torch:
            wanted |= wants
    asked = set().union(*(needed(library) for library in torch))
    missing = {name for name in asked if CUDA_LIBRARY.match(name)} - {library.name for library in installed}
    build(directory / STUB, {name for name in wanted if name.split("@")[0] not in defined})
    for name in missing:
        link = directory / name
        link.unlink(missing_ok=True)
        link.symlink_to(STUB)


if __name__ == "__main__":
    main()
