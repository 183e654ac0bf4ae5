"""What `--sim` takes: mgpu-simcard's profiles of cards, checked before anything is started or made."""

from collections.abc import Iterable

from oci_specs import units
from oci_specs.refusal import Refusal, quoted

# The table of mgpu-simcard, and how many cards it has room for; a test holds the two together.
PROFILES = (
    "v100-16",
    "a10",
    "a100-40",
    "a100-80",
    "h100",
    "h200",
    "titan-rtx",
    "t4",
    "l4",
    "l40",
    "rtx-4090",
    "b200",
    "rtx-5090",
)
MAX_CARDS = 32
LISTED = ", ".join(PROFILES)


def checked(values: Iterable[str]) -> str:
    """The values of all --sim options as one list for mgpu-simcard; Refusal when it would not take them."""
    entries = [entry for value in values for entry in value.split(",")]
    counts = [_count(entry) for entry in entries]
    if sum(counts) > MAX_CARDS:
        shown = quoted(",".join(entries))
        raise Refusal(
            "bad-sim", f"--sim {shown}: {sum(counts)} GPUs", f"there can be {MAX_CARDS} GPUs in all"
        )
    return ",".join(entries)


def _count(entry: str) -> int:
    profile, colon, number = entry.partition(":")
    if profile not in PROFILES:
        raise Refusal("bad-sim", f"--sim {quoted(entry)}: no such profile", f"profiles: {LISTED}")
    count = units.whole_number(number) if colon else 1
    if not count:
        raise Refusal(
            "bad-sim", f"--sim {quoted(entry)}: no such count", f"write {profile}:N, N from 1 to {MAX_CARDS}"
        )
    return count
