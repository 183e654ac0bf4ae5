"""Every stage of the run, in its order: three parts, each of which a machine that is lent for ten minutes can
do.

docs/nvidia-driver.md names stages of this table for what only a card can say.
"""

from collections.abc import Callable

from tests.gpu import (
    channel_groups,
    checkpoints,
    container_programs,
    experiments,
    first,
    forced_refusals,
    lent_memory,
    lock_holders,
    memory_view,
    own_questions,
    peers,
    probe,
    product_stages,
    recording,
    utilization,
    uvm_files,
    whole_cards,
)
from tests.gpu.stage import Stage, Where

# What a part may take; what does not fit is skipped, and says so.
PART_S = 9 * 60 - 30
# What is said of mgpu where it is started, before the stages that use it.
STARTS = {
    Where.UNSCHEDULED: "F0 start",
    Where.MGPU: "P0 start",
    Where.LENDS: "P22 start",
    Where.BLIND: "P15 start",
}


def on(where: Where, name: str, answers: str, passes: str, limit_s: int, do: Callable[..., None]) -> Stage:
    return Stage(name=name, answers=answers, passes=passes, limit_s=limit_s, where=where, do=do)


FIRST = (
    on(Where.MACHINE, "E0 probe", "what the machine allows, and nvidia-smi without mgpu", "ok", 60, probe.probe),
    on(Where.UNSCHEDULED, "F1 nvidia-smi", "whether NVML starts in a container", "runs", 30, first.nvidia_smi),
    on(Where.UNSCHEDULED, "F2 cuInit", "whether libcuda starts", "cuInit succeeds", 30, first.cu_init),
    on(
        Where.UNSCHEDULED, "F3 context", "whether a context is made, waits for events, copies and ends",
        "a context works", 40, first.context,
    ),
    on(
        Where.UNSCHEDULED, "F4 over the cap", "whether a cudaMalloc beyond the cap is CUDA's out of memory",
        "out of memory, and goes on", 40, first.over_the_cap,
    ),
    on(
        Where.MGPU, "P10 context", "whether the scheduler's calls leave a context alone", "a context works", 40,
        first.context,
    ),
    on(Where.DRIVER, "E7 userd", "whether GP_PUT can be read, and what a look costs", "GP_PUT seen", 20,
       experiments.userd),
    on(Where.DRIVER, "E1 timeslice", "what 1 us and 1 s do to an online program beside an offline one", "measured",
       30, experiments.timeslice),
    on(Where.DRIVER, "E2 suspend by disable", "whether DISABLE_CHANNELS stops what runs, and what a call takes",
       "stops and resumes", 35, experiments.hard_suspend("disable")),
    on(Where.DRIVER, "E2 suspend by schedule", "the same of GPFIFO_SCHEDULE", "stops and resumes", 35,
       experiments.hard_suspend("schedule")),
    on(Where.MGPU, "P3 torch", "whether PyTorch starts, runs out of memory at the cap and goes on",
       "out of memory at the cap, goes on", 70, product_stages.torch),
    on(Where.MGPU, "P11 two processes", "whether two programs in a container have contexts at once", "all work", 40,
       first.two_processes),
    on(Where.MGPU, "P12 nine processes", "the same of nine", "all work", 70, first.nine_processes),
    on(Where.MGPU, "P13 two cards", "whether what programs are told of peers is what they get",
       "consistent", 40, peers.two_cards),
    on(Where.MGPU, "P14 NCCL in one container", "whether two ranks on two cards find their way, and which",
       "all_reduce is right", 110, peers.one_container),
    on(Where.MGPU, "P14 NCCL in two containers", "the same of a rank in each", "all_reduce is right", 110,
       peers.two_containers),
)  # fmt: skip
DRIVER = (
    on(Where.DRIVER, "E6 census", "what libcuda and NVML ask for, and where USERD lies", "handles seen", 40,
       experiments.census),
    on(Where.DRIVER, "E12 memory view", "which indices of FB_GET_INFO_V2 cuMemGetInfo and NVML read", "indices seen",
       40, memory_view.indices),
    on(Where.DRIVER, "E13 groups of a context", "how many channel groups and channels each context has",
       "N groups and N channels", 30, channel_groups.count),
    on(Where.DRIVER, "E14 forced refusals", "whether libcuda and NVML start without what mgpu refuses",
       "all start with what mgpu refuses", 90, forced_refusals.forced),
    on(Where.DRIVER, "E4 on behalf", "whether calls by another process without CAP_SYS_ADMIN work",
       "works without CAP_SYS_ADMIN", 30, experiments.on_behalf),
    on(Where.DRIVER, "E5 refusal", "whether NO_MEMORY is CUDA's out of memory", "refused as out of memory", 40,
       experiments.refusal),
    on(Where.DRIVER, "E8 visibility", "whether engine status names the group that runs", "names the group", 20,
       experiments.visibility),
    on(Where.DRIVER, "E15 unregistered channel",
       "whether a group with a channel that nvidia-uvm does not know can be suspended, by either means",
       "disabled, SCHEDULE refuses the group", 30, channel_groups.unregistered),
    on(Where.DRIVER, "E16 lone slice", "what a timeslice of 1 us costs a program that is alone", "keeps N%", 30,
       channel_groups.lone_slice),
    on(Where.DRIVER, "E3 cost", "what each scheduling call takes, alone and beside work", "measured", 40,
       experiments.cost),
    on(Where.DRIVER, "E17 lock holders",
       "what a suspend takes beside starts, beside throttled starts, and beside starts on another card", "measured",
       60, lock_holders.beside_starts),
    on(Where.DRIVER, "E18 sizes", "what RM says of a size that is one off", "a wrong size is told before the object is",
       20, own_questions.sizes),
    on(Where.DRIVER, "E11 foreign handles", "whether a program can stop another's channels",
       "another's handles are refused", 25, experiments.foreign),
    on(Where.DRIVER, "E10 long suspension", "whether work goes on after 6 s off", "goes on", 25, experiments.managed),
    on(Where.DRIVER, "E9 kill", "whether a suspended program ends when it is killed, and its memory is free",
       "ends and frees", 30, experiments.killed),
    on(Where.DRIVER, "E22 files of nvidia-uvm", "which nodes can be polled, what is counted, what INITIALIZE changes",
       "as assumed", 20, uvm_files.files),
    on(Where.DRIVER, "E23 utilisation samples", "whose work the samples of GPU-Util say it was", "names who works", 30,
       utilization.samples),
    on(Where.DRIVER, "E25 use without the page", "what the controls tell that nvidia-smi asks in a share",
       "changes with the work", 20, utilization.without_the_page),
    on(Where.DRIVER, "E19 MIG subscription", "what tells a subscription to an instance from none",
       "a right size tells a subscription", 20, own_questions.mig),
    on(Where.DRIVER, "E20 peers natively", "which classes NCCL uses between cards, and how it ends without them",
       "all_reduce is right natively", 180, peers.natively),
    on(Where.DRIVER, "E24 checkpoint", "what libcuda asks for when a process is moved to the host and back",
       "moved away and back", 50, checkpoints.natively),
    on(Where.DRIVER, "E21 context dma", "what ALLOC_CONTEXT_DMA2 makes of other classes", "makes nothing", 20,
       own_questions.by_context_dma),
)  # fmt: skip
PRODUCT = (
    on(Where.MGPU, "P1 view", "what NVML and nvidia-smi show inside", "shows the cap", 30, product_stages.view),
    on(Where.MGPU, "P2 memory", "an allocation within the cap, one beyond it, one within it",
       "out of memory at the cap, goes on", 40, product_stages.memory),
    on(Where.MGPU, "P9 in turn", "whether a program has all as soon as the one before it has ended", "each has all", 50,
       product_stages.in_turn),
    on(Where.MGPU, "P17 managed memory", "whether it is charged, refused above the cap and given back",
       "charged by its size", 40, product_stages.managed),
    on(Where.MGPU, "P18 between processes", "whether CUDA IPC and exported descriptors work inside a container",
       "shared both ways", 40, product_stages.between),
    on(Where.MGPU, "P20 checkpoint", "whether a container's process is checkpointed and restored under mgpu",
       "moved away and back", 50, checkpoints.inside),
    on(Where.MGPU, "P4 colocation", "preemption, interference, harvest and release",
       "offline gives way and comes back", 60, product_stages.colocation),
    on(Where.MGPU, "P5 overhead", "kernels per second under mgpu and without it", "measured", 20,
       product_stages.overhead),
    on(Where.MGPU, "P6 cost of calls", "mediated calls and the driver's own", "measured", 20, product_stages.rm_cost),
    on(Where.MGPU, "P8 start", "cuInit and a context, under mgpu and without it, and what they wait for", "measured",
       60, product_stages.start),
    on(Where.MGPU, "P7 hostile", "whether attempts are refused or accounted", "all held", 90, product_stages.attempts),
    on(Where.MGPU, "P19 recording", "whether a recorded start of libcuda comes to the same inside and natively",
       "the same inside and natively", 60, recording.played),
    on(Where.MGPU, "P21 programs", "whether programs that use a card as frameworks do are right in containers",
       "all right", 120, container_programs.programs),
    on(Where.MGPU, "P23 whole cards", "whether profiler, debugger, sanitizer and MPS work with whole cards",
       "all right", 120, whole_cards.tools),
    on(Where.LENDS, "P22 lent memory", "whether offline memory is moved to the host for online, and comes back",
       "moved for online, and back the same", 110, lent_memory.lent),
    on(Where.BLIND, "P16 colocation without status", "the same as P4 where engine status cannot be read",
       "offline gives way and comes back", 60, product_stages.colocation),
)  # fmt: skip
PARTS: dict[str, tuple[Stage, ...]] = {"first": FIRST, "driver": DRIVER, "product": PRODUCT}
STAGES: tuple[Stage, ...] = tuple(stage for part in PARTS.values() for stage in part)
NAMES = frozenset({stage.name for stage in STAGES} | set(STARTS.values()))
