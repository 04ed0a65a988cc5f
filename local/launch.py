"""python -m local.launch MODULE ... | --exec PROGRAM ...: run it as a child that never outlives its parent.

So a stack that is killed leaves nothing behind. (Linux; elsewhere its children are left to be ended by hand.)
"""

import ctypes
import os
import runpy
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Tie this process to its parent, then become the module or the program: the tie stays with the process (prctl(2),
    PR_SET_PDEATHSIG: only a set-user-ID program loses it).
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == 1:
            sys.exit(1)
    os.umask(0o077)  # what it makes keeps customers' words
    del sys.argv[0]
    if sys.argv[0] == "--exec":
        os.execv(sys.argv[1], sys.argv[1:])  # noqa: S606 - the very program, by its path; there is no shell
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
