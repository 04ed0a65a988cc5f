"""What holds for every test, whoever starts them."""

import signal


def pytest_configure() -> None:
    """Ctrl-C means something to the programs that tests start: a shell in the background has its children ignore it,
    and who is started so hands that on.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
