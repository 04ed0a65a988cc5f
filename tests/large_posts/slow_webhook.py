"""python tests/large_posts/slow_webhook.py COMMIT READ: the webhook service, whose SQLite file takes so many seconds.

A file has no network before it: so each transaction holds the file for COMMIT seconds, and a read takes READ.
"""

import sys
import time
from typing import Any

from services.async_server import serve
from services.webhook.__main__ import make_app
from shared.bootstrap import webhook as bootstrap
from shared.stores.sqlite.connection import SqliteFile


def slow_down(commit: float, read: float) -> None:
    quick_write, quick_read = SqliteFile.write, SqliteFile.read

    def slow_write(self: SqliteFile, work: Any) -> Any:
        def slow(db: Any) -> Any:
            time.sleep(commit)
            return work(db)

        return quick_write(self, slow)

    def slow_read(self: SqliteFile, work: Any) -> Any:
        time.sleep(read)
        return quick_read(self, work)

    SqliteFile.write, SqliteFile.read = slow_write, slow_read  # type: ignore[method-assign]


if __name__ == "__main__":
    slow_down(float(sys.argv[1]), float(sys.argv[2]))
    serve(bootstrap.parts, make_app, default_port=9)
