"""What the laboratory counts: a result on a made-up answer is none."""

import dataclasses

import pytest

from lab.claims import Claim
from lab.verdicts import FAILED, MADE_UP, PASSED, Answer, disagreements, judged, last_line

ROWS = ("a row",)
PLAIN = Claim(ROWS, (), (), 60, long=False)
REAL, INVENTED = Answer("NV_REAL", made_up=False), Answer("NV_INVENTED", made_up=True)


def state(claim: Claim, during: list[Answer], before: list[Answer], failed: str | None = None) -> str:
    return judged("files.polls", claim, failed, during, before).state


def test_real_answers_decide() -> None:
    verdict = judged("files.polls", PLAIN, None, [REAL], [INVENTED])
    assert (verdict.state, verdict.decided) == (PASSED, ROWS)


def test_made_up_answers_during_a_test_remove_its_rows() -> None:
    verdict = judged("files.polls", PLAIN, None, [REAL, INVENTED], [])
    assert (verdict.state, verdict.decided) == (MADE_UP, ())
    assert "NV_INVENTED" in verdict.line()


def test_few_of_many_answers_are_named() -> None:
    many = [Answer(f"NV_{letter}", made_up=True) for letter in "EDCBAF"]
    assert judged("files.polls", PLAIN, None, many, []).why == "rests on NV_A, NV_B, NV_C, NV_D and 2 more"


def test_made_up_answers_before_a_test_count_where_it_rests_on_them() -> None:
    resting = dataclasses.replace(PLAIN, rests_on=("NV_INVENTED",))
    assert state(resting, [], [INVENTED]) == MADE_UP
    assert state(resting, [], [Answer("NV_INVENTED", made_up=False)]) == PASSED
    assert state(resting, [], []) == FAILED, "nobody asked for it"


def test_exceptions_hold_for_made_up_answers_alone() -> None:
    careless = dataclasses.replace(PLAIN, whatever=(("NV_INVENTED", "its content is not looked at"),))
    assert state(careless, [INVENTED], []) == PASSED
    real = [Answer("NV_INVENTED", made_up=False)]
    assert state(careless, real, []) == FAILED
    assert state(careless, [], []) == FAILED, "it is not asked for"
    assert judged("files.polls", careless, None, [], [], ["NV_INVENTED"]).state == PASSED
    assert judged("files.polls", careless, None, real, [], ["NV_INVENTED"]).state == FAILED


def test_failures_decide_nothing_and_say_their_last_line() -> None:
    verdict = judged("files.polls", PLAIN, "Traceback\nAssertionError: no\n", [], [])
    assert (verdict.state, verdict.decided, verdict.why) == (FAILED, (), "AssertionError: no")


@pytest.mark.parametrize(("during", "rows"), [([REAL], 1), ([INVENTED], 0)])
def test_last_line_counts_rows_once(during: list[Answer], rows: int) -> None:
    verdicts = [judged(name, PLAIN, None, during, []) for name in ("files.a", "files.b")]
    assert last_line([verdicts], 2) == f"lab: {rows} rows decided, 2 differences open"


def test_differences_that_were_not_played_have_no_number() -> None:
    assert last_line([[judged("files.a", PLAIN, None, [REAL], [])]], None).endswith(
        ", differences not played"
    )


def test_rows_that_one_pair_does_not_decide_are_said_and_not_counted() -> None:
    pairs = {
        "old": [judged("files.a", PLAIN, None, [REAL], [])],
        "new": [judged("files.a", PLAIN, "AssertionError", [], [])],
    }
    assert disagreements(pairs) == ["lab: new does not decide: a row"]
    assert (
        last_line(pairs.values(), 2)
        == "lab: 0 rows decided on each of 2 pairs and chips, 2 differences open"
    )
