"""assert_held(): what it lets be and what it ends."""

import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.places import REPOSITORY

PROGRAM = """
#include "base/mutex.h"

static pthread_mutex_t mutex;

static void *other(void *arg)
{
    assert_held(&mutex);
    return arg;
}

int main(int argc, char **argv)
{
    pthread_t thread;

    (void)argv;
    mutex_init_inheriting(&mutex);
    LOCKED_(held, &mutex);
    assert_held(&mutex);
    if (argc > 1) {
        pthread_create(&thread, NULL, other, NULL);
        pthread_join(thread, NULL);
    }
    return 0;
}
"""


@pytest.mark.parametrize(
    ("flags", "ends"),
    [
        (["-O0"], True),
        (["-O2", "-fsanitize=thread"], True),
        (["-O2"], False),
        (["-O2", "-DMGPU_CHECK_LOCKS"], True),
    ],
)
def test_lock_of_another_thread_ends_a_checking_build(tmp_path: Path, flags: list[str], ends: bool) -> None:
    (tmp_path / "a.c").write_text(PROGRAM)
    program = tmp_path / "a"
    subprocess.run(
        ["gcc", "-std=gnu11", "-pthread", *flags, f"-I{REPOSITORY}", "-o", program, tmp_path / "a.c"],
        check=True,
    )
    assert subprocess.run([program]).returncode == 0
    status = subprocess.run([program, "other"], stderr=subprocess.DEVNULL).returncode
    assert (status != 0) == ends
    if ends and "-fsanitize=thread" not in flags:
        assert status == -signal.SIGABRT
