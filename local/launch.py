"""python -m local.launch MODULE ... | --exec PROGRAM ...: run it as a child that never outlives its parent.

So a killed stack leaves no process behind. (On Linux; elsewhere you have to end its children yourself.)
"""

import ctypes
import os
import runpy
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Tie this process to its parent, then become the module or the program. The tie survives exec: only a set-user-ID
    program loses it (prctl(2), PR_SET_PDEATHSIG).
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == 1:
            sys.exit(1)
    os.umask(0o077)  # its files hold customers' messages
    del sys.argv[0]
    if sys.argv[0] == "--exec":
        os.execv(sys.argv[1], sys.argv[1:])  # noqa: S606 - this program, by its path; there is no shell
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
