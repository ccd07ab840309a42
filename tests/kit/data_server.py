"""Data sets in their publishers' formats, small, and a server that has their files."""

from __future__ import annotations

import gzip
import hashlib
import io
import struct
import tarfile
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import numpy.typing as npt

TRAIN, TEST = 50, 20
"""Examples of each part."""


def pack_idx(array: npt.NDArray[np.uint8]) -> bytes:
    """The IDX format: two zeros, 8 for bytes, the number of axes, their sizes, the bytes."""
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()


def mnist_files() -> dict[str, bytes]:
    """MNIST's four files, in the order of the table."""
    random = np.random.default_rng(0)
    return {
        f"{part}-{name}.gz": gzip.compress(pack_idx(array), mtime=0)
        for part, examples in (("train", TRAIN), ("t10k", TEST))
        for name, array in (
            ("images-idx3-ubyte", random.integers(0, 256, (examples, 28, 28), np.uint8)),
            ("labels-idx1-ubyte", (np.arange(examples) % 10).astype(np.uint8)),
        )
    }


def cifar_file() -> bytes:
    """CIFAR-10's archive; example n has label n % 10, and red, green and blue are n, n + 1 and n + 2."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        names = ["batches.meta.txt", *(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"]
        for order, name in enumerate(names):
            count = {"batches.meta.txt": 0, "test_batch.bin": TEST}.get(name, TRAIN // 5)
            first = 0 if name == "test_batch.bin" else (order - 1) * (TRAIN // 5)
            data = b"".join(
                bytes((number % 10,)) + b"".join(bytes((number + plane,)) * 1024 for plane in range(3))
                for number in range(first, first + count)
            )
            member = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return packed.getvalue()


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class DataServer:
    """Serves files on loopback; counts what is asked for."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.cut: set[str] = set()
        """Paths of which only half is sent."""
        self.asked: Counter[str] = Counter()
        self.port = 0

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}/{path}"


@contextmanager
def serving() -> Iterator[DataServer]:
    served = DataServer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.lstrip("/")
            served.asked[path] += 1
            if (data := served.files.get(path)) is None:
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data[: len(data) // 2] if path in served.cut else data)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        served.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield served
        finally:
            server.shutdown()
            thread.join()
