"""Stages of the kit for the first card (tests/gpu) that need no library of NVIDIA's and no GPU."""

from lab.claims import decides
from lab.guest import boxes
from lab.tests.under_mgpu import LIMIT_S
from tests.gpu import recording
from tests.gpu.backend import Nvidia
from tests.gpu.results import Result, Results
from tests.gpu.stages import STAGES

# The others' programs are libcuda's or NVML's, or hold while a kernel runs.
ASKED = ("E18 sizes", "E21 context dma")
CAP_MIB = 2048
# Of 682, on GA102 with 550.
SUCCEED = 495


@decides(long=True, limit_s=LIMIT_S)
def questions_have_the_answers_that_are_hoped_for() -> None:
    results = Results(boxes.product().folder)
    for stage in STAGES:
        if stage.name in ASKED:
            result = Result(stage.name)
            stage.do(Nvidia(), results, result)
            results.add(result)
            assert result.verdict == stage.passes, result


@decides(long=True, limit_s=2 * LIMIT_S)
def recorded_calls_that_succeed_natively_do_so_in_a_container() -> None:
    """The start of a libcuda. Its classes are Turing's, and its driver 555: on another card many fail."""
    product, result = boxes.product(), Result("P19 recording")
    recording.played(product, Results(product.folder), result, cap_mib=CAP_MIB)
    print(result)
    assert result.figures["succeed_natively"] >= SUCCEED
    assert result.figures["fail_inside_alone"] == [], result
