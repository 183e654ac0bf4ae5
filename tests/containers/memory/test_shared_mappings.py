"""Programs that map shared files at offsets, which the filter hands to mgpud: nothing changes, whichever
serves.
"""

import pytest

from tests.support import arbiter
from tests.support.programs import Programs
from tests.support.steady import LONGEST_S, holder_killed, mgpud_killed, steady, upgraded


@pytest.mark.timeout(180)
def test_ordinary_files_are_mapped_across_restarts(private_host: None, built: Programs) -> None:
    with arbiter.running("v100-16:1") as up, steady(up, built, program="mappings") as container:
        assert container.goes_on() < LONGEST_S
        for happens in (mgpud_killed, upgraded, holder_killed):
            happens(up)
            assert container.goes_on() < LONGEST_S, happens
        assert up.used_bytes() == [0]
