"""A wrong clock for processes: a library, preloaded, by which the time of day is so many seconds ahead."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
static long ahead(void) { const char *text = getenv("TEST_CLOCK_AHEAD_S"); return text ? atol(text) : 0; }
int clock_gettime(clockid_t clock, struct timespec *found) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int code = real(clock, found);
    if (!code && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) found->tv_sec += ahead();
    return code;
}
int gettimeofday(struct timeval *found, void *zone) {
    struct timespec now;
    int code = clock_gettime(CLOCK_REALTIME, &now);
    found->tv_sec = now.tv_sec; found->tv_usec = now.tv_nsec / 1000;
    return code;
}
time_t time(time_t *found) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (found) *found = now.tv_sec;
    return now.tv_sec;
}
"""


def environment(directory: Path, ahead_s: int) -> dict[str, str]:
    """The variables by which a process, and those that it starts, have the clock."""
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc, which builds the wrong clock")
    source, library = directory / "clock.c", directory / "clock.so"
    source.write_text(SOURCE)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"], check=True)
    variables = {"LD_PRELOAD": str(library), "TEST_CLOCK_AHEAD_S": str(ahead_s)}
    said = subprocess.check_output([sys.executable, "-S", "-c", "import time; print(time.time())"], env=variables)
    assert abs(float(said) - time.time() - ahead_s) < 60
    return variables
