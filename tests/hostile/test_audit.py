"""What the audit of continued calls compares: memory with memory, and no charge of another kind."""

import time

from tests.hostile import composed
from tests.hostile.siege import MIB
from tests.support.programs import Programs

CAP_MIB, NEIGHBOUR_MIB = 4096, 256
# A call that was changed has memory until the next answer, or for a second, on a machine that does other
# things too.
OVER_MAX_S, ATTACK_MAX_S = 3.0, 60.0


def test_memory_as_large_as_the_charge_of_channel_groups_does_not_pass_the_audit(
    private_host: None, built: Programs
) -> None:
    with (
        composed.laid(built) as siege,
        siege.attempt("audit_slack", cap_mib=CAP_MIB) as container,
    ):
        over_since = 0.0
        began = time.monotonic()
        while container.running.process.poll() is None:
            now = time.monotonic()
            assert now - began < ATTACK_MAX_S, "it is alive, with what it has"
            used = siege.mgpu.account().cards[0].used_bytes
            over_since = (over_since or now) if used > (CAP_MIB + NEIGHBOUR_MIB) * MIB else 0.0
            assert not over_since or now - over_since < OVER_MAX_S, f"{used // MIB} MiB under {CAP_MIB}"
            time.sleep(0.02)
        log = (siege.mgpu.root / "log" / "mgpud.log").read_text()
        assert f"killed-unaccounted container={container.made.container} " in log
