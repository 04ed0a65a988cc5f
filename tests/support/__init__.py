"""Support for tests: the running stack, the parts in one process, payloads, fakes of a port, and the harnesses."""
