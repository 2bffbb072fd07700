"""Keeping big buffers in the process instead of giving them back to the system after every use."""

from __future__ import annotations

import ctypes
import sys

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_KEEP = 2**30  # bytes of free heap that stay
_LARGEST = 2**27  # bytes; buffers up to this come from the heap


def keep_freed_memory() -> None:
    """Raises glibc's thresholds (mallopt) so that freed tensors are reused without page faults.

    Halves the page faults of CPU training (38,000 -> 20,000 an update of 4096 tokens, width 256), and makes decoding
    with a vocabulary of 256,000 up to 1.5 times as fast; what it is worth depends on the machine. Larger buffers, such
    as gradients of such a vocabulary, would leave holes of their size (a fifth of the peak of a small model with it).
    Does nothing where there is no glibc.
    """
    if not sys.platform.startswith("linux"):
        return
    try:
        libc = ctypes.CDLL("libc.so.6")
        libc.mallopt(_M_TRIM_THRESHOLD, _KEEP)
        libc.mallopt(_M_MMAP_THRESHOLD, _LARGEST)
    except (OSError, AttributeError):
        return
