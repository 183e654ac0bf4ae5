"""Placement's rules besides the request and the cards."""

from dataclasses import dataclass
from typing import Literal

from oci_specs.vocabulary import DEFAULT_POLICY

Strategy = Literal["default", "binpack", "spread", "separate"]


@dataclass(frozen=True, kw_only=True)
class Rules:
    """Settings of one node; native_sched/daemon/node/config.py has the others."""

    # For a card without tenants whose first one names no policy.
    policy: str = DEFAULT_POLICY
    # The choice of a card where nothing nearer chose one. default: online apart from online, offline
    # packed beside online; separate: offline away from online.
    placement: Strategy = "default"
    # Containers that share one card at most; 16 is what mGPU and qGPU allow.
    max_containers_per_card: int = 16
