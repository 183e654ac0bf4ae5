"""Shares over 10 s of virtual time, with orders that take 80 to 200 us."""

import ctypes

import pytest

from tests.native.scheduling import FIXED, GUARANTEED, MS, NATIVE, OFFLINE, ONLINE, S, Simulation

POINT = 0.5
BY_QUOTA = [(30, 70), (25, 25, 50), (10, 20, 30, 40), (50, 50), (12,) * 8, (6,) * 16, (1, 99), (90, 5, 5)]


@pytest.mark.parametrize("class_id", [ONLINE, OFFLINE])
@pytest.mark.parametrize("tenants", [2, 4, 8, 16])
def test_native_is_equal(sched: ctypes.CDLL, class_id: int, tenants: int) -> None:
    with Simulation(sched) as cards:
        cards.policy(NATIVE)
        ids = range(1, tenants + 1)
        for id in ids:
            cards.add(id, class_id)
        cards.run(100 * MS)
        cards.measure()
        cards.run(10 * S)
        assert cards.shares(ids) == pytest.approx([100 / tenants] * tenants, abs=POINT)


@pytest.mark.parametrize("class_id", [ONLINE, OFFLINE])
@pytest.mark.parametrize("quotas", BY_QUOTA)
@pytest.mark.parametrize("policy", [GUARANTEED, FIXED])
def test_shares_by_quota(sched: ctypes.CDLL, policy: int, quotas: tuple[int, ...], class_id: int) -> None:
    with Simulation(sched) as cards:
        cards.policy(policy)
        ids = range(1, len(quotas) + 1)
        for id, quota in zip(ids, quotas, strict=True):
            cards.add(id, class_id, quota=quota)
        cards.run(1 * S)
        cards.measure()
        cards.run(10 * S)
        scale = 100 / sum(quotas) if policy == GUARANTEED else 1
        assert cards.shares(ids) == pytest.approx([quota * scale for quota in quotas], abs=POINT)


@pytest.mark.parametrize("class_id", [ONLINE, OFFLINE])
def test_policy_changes_under_its_tenants(sched: ctypes.CDLL, class_id: int) -> None:
    with Simulation(sched) as cards:
        cards.policy(NATIVE, (0, 1))
        cards.add(1, class_id, quota=20)
        cards.add(2, class_id, quota=60)
        cards.add(3, class_id, cards=0b11, quota=10)
        for policy, expected in [
            (NATIVE, [100 / 3] * 3),
            (FIXED, [20, 60, 10]),
            (GUARANTEED, [200 / 9, 600 / 9, 100 / 9]),
            (FIXED, [20, 60, 10]),
        ]:
            cards.policy(policy, (0, 1))
            cards.run(1 * S)
            cards.measure()
            cards.run(10 * S)
            assert cards.shares([1, 2, 3]) == pytest.approx(expected, abs=POINT)
