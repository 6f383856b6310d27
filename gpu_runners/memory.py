"""Memory that a process has and does not use, given back to the machine and to its GPU."""

import ctypes
import gc
import sys


def give_memory_back() -> None:
    """Free what nothing refers to. A training of 80 pairs of up to 100 tokens leaves 1.4 GB with glibc's allocator, of
    which 0.8 GB are free; torch keeps all that it ever had of a GPU, where other processes want it too."""
    gc.collect()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.empty_cache()
    if sys.platform == "linux" and (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None:
        trim(0)
