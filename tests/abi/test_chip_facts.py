"""What the scheduler knows of chips and channel classes is what NVIDIA's headers say (rm/facts)."""

import re

from tests.support import chips
from tests.support.places import REPOSITORY
from tests.support.rm_numbers import by_symbol

DRIVER = REPOSITORY / "native_sched/nvidia/driver"


def test_status_words_are_where_each_chip_has_them() -> None:
    rows = re.findall(
        r'^(WHOLE_CARD|RUNLISTS)\("(\w+)", (.*), "(.*)"\)$', (DRIVER / "chips.def").read_text(), re.M
    )
    assert [(name, *words.split(", "), header) for _, name, words, header in rows] == [
        (
            one.name,
            f"{one.architecture:#x}",
            f"{one.implementation:#x}",
            *(() if one.whole_card else (f"{one.status:#x}",)),
            str(one.words),
            *(() if one.whole_card else (str(one.has_get).lower(),)),
            one.header,
        )
        for one in chips.chips()
    ]
    assert [kind == "WHOLE_CARD" for kind, *_ in rows] == [one.whole_card for one in chips.chips()]


def test_gp_get_is_believed_of_the_classes_that_have_it() -> None:
    [body] = re.findall(
        r"class_has_get\(uint32_t channel_class\)\n\{(.*?)\n\}", (DRIVER / "chips.c").read_text(), re.S
    )
    believed = {by_symbol()[symbol] for symbol in re.findall(r"channel_class == (\w+)", body)}
    assert believed == {number for number, (get, _) in chips.userd().items() if get is not None}
