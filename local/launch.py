"""python -m local.launch MODULE ...: run a module as a child that never outlives its parent.

So a stack that is killed leaves nothing behind. (Linux; elsewhere its children are left to be ended by hand.)
"""

import ctypes
import os
import runpy
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Tie this process to its parent, then become the module."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == 1:
            sys.exit(1)
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
