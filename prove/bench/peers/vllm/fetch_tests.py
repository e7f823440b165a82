"""Fetches vLLM's own tests, which are only in its source distribution.

    fetch_tests.py VERSION DIRECTORY

takes vllm-VERSION.tar.gz from the package index that pip uses (PIP_INDEX_URL, else PyPI),
holds it to the digest below, and unpacks tests/ of it into DIRECTORY.
"""

import hashlib
import html.parser
import io
import os
import pathlib
import sys
import tarfile
import urllib.parse
import urllib.request

SHA256 = {
    "0.25.1": "ddbdec3f1c0f21afa70b7eb6ddf3faa29d26b1302ee4b5d5e00ec3af41b0c2e4",
    "0.32.0": "d2c957d5eee3d0985012151315ddc62cbe0cd368fc96a5fc3510438d9dddf2ad",
}
TIMEOUT = 60  # seconds without a byte


class Links(html.parser.HTMLParser):
    """The addresses that a page links to."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [value for name, value in attrs if tag == "a" and name == "href" and value]


def get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=TIMEOUT) as answer:
        return answer.read()


def address(archive: str) -> str:
    """Where the index has a file of vLLM's."""
    page = os.environ.get("PIP_INDEX_URL", "https://pypi.org/simple").rstrip("/") + "/vllm/"
    for link in Links(get(page).decode()).found:
        url = urllib.parse.urljoin(page, link)
        if pathlib.PurePosixPath(urllib.parse.urlsplit(url).path).name == archive:
            return url
    raise SystemExit(f"{page} does not list {archive}")


def main() -> None:
    version, directory = sys.argv[1], pathlib.Path(sys.argv[2])
    root = f"vllm-{version}"
    archive = get(address(f"{root}.tar.gz"))
    digest = hashlib.sha256(archive).hexdigest()
    if digest != SHA256[version]:
        raise SystemExit(f"{root}.tar.gz has SHA-256 {digest}, expected {SHA256[version]}")
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        for member in tar:
            inside = member.name.removeprefix(f"{root}/")
            if inside.startswith("tests/") and member.isfile():
                tar.extract(member.replace(name=inside), directory, filter="data")


if __name__ == "__main__":
    main()
