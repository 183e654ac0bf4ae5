"""Stages of the kit for the first card (tests/gpu) that need no library of NVIDIA's and no GPU."""

from lab.claims import decides
from lab.guest import boxes
from lab.tests.under_mgpu import LIMIT_S
from tests.gpu import recording
from tests.gpu.backend import Nvidia
from tests.gpu.results import Result, Results
from tests.gpu.stages import STAGES
from tests.recordings.script import H200, RECORDING, WITH_PARAMS

# The others' programs are libcuda's or NVML's, or hold while a kernel runs.
ASKED = ("E18 sizes", "E21 context dma", "E22 files of nvidia-uvm")
CAP_MIB = 2048
# On GA102 with 550: of 682, whose classes are Turing's, of 616 of a GA106, and of 777 of an H200.
SUCCEED = {RECORDING: 495, WITH_PARAMS: 470, H200: 300}


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
    """The starts of three libcudas, of 555 and 580: by another driver and on another card many fail, and what
    one failed at others rest on. What mgpu refuses on purpose is in tests/recordings/differs.tsv.
    """
    product = boxes.product()
    for path, succeed in SUCCEED.items():
        result = Result(f"P19 {path.stem}")
        results = Results(product.folder)
        recording.played(product, results, result, cap_mib=CAP_MIB, path=path, patience_s=LIMIT_S)
        print(result, flush=True)
        assert result.figures["succeed_natively"] >= succeed, result
        assert result.figures["fail_inside_alone"] == [], result
