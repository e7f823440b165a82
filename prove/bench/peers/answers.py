"""What all drivers of measured peers share: a JSON object a line on standard input, one back on standard output."""

import json
import os
import sys

import numpy as np


def aligned(size):
    """Memory that begins with a page, every page of it touched."""
    raw = np.zeros(size + 4096, np.uint8)
    start = -raw.ctypes.data % 4096
    raw[:] = 0
    return raw[start : start + size]


def run(peer):
    """Answer requests until they end. What libraries print goes to standard error."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = getattr(peer, request["do"])(request) or {}
        except Exception as e:
            answer = {"error": f"{type(e).__name__}: {e}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
    os._exit(0)  # without the libraries' own shutdown, which may wait for the other side
