"""Answers of the GSP that are made up, and why no other content of them would change what a test asserts."""

# Of such an answer RM reads the status alone. An error can fail a test, and passes none.
TOLD = "the firmware is told of what RM has made, and RM reads no field of the answer"
LINKS = "nvidia-uvm asks how the card is linked to others, and nothing is moved between cards"

# Controls that only some drivers call: the first branch that does, and the first later one that does not.
ASKED = {
    "NV2080_CTRL_CMD_NVLINK_GET_LINK_AND_CLOCK_INFO": (0, 570),
    "NV2080_CTRL_CMD_INTERNAL_NVLINK_GET_LINK_AND_CLOCK_INFO": (570, 580),
    "NV2080_CTRL_CMD_NVLINK_SYNC_LINK_MASKS_AND_VBIOS_INFO": (0, 580),
}

# A device's own address space, which RM makes when it is first needed.
OWN_SPACE = {"NV90F1_CTRL_CMD_VASPACE_COPY_SERVER_RESERVED_PDES": TOLD}
LINKED = dict.fromkeys(ASKED, LINKS)
# A GPU and an address space that are registered with a file of nvidia-uvm, and go with it.
REGISTERED = {
    "NV0080_CTRL_CMD_DMA_UNSET_PAGE_DIRECTORY": TOLD,
    **LINKED,
}
GROUP_MADE = {
    **OWN_SPACE,
    "NV2080_CTRL_CMD_CE_GET_FAULT_METHOD_BUFFER_SIZE": "how large a buffer of RM's is: not looked at",
    "NVA06C_CTRL_CMD_INTERNAL_PROMOTE_FAULT_METHOD_BUFFERS": TOLD,
}
CHANNEL_MADE = {**REGISTERED, **GROUP_MADE, "NV2080_CTRL_CMD_GPU_PROMOTE_CTX": TOLD}
# The channel runs, and an engine does what it says.
RUNS = "what does not run brings nothing about, and fails the test"
WORKING = {
    **CHANNEL_MADE,
    "NVA06C_CTRL_CMD_GPFIFO_SCHEDULE": RUNS,
    "NV2080_CTRL_CMD_GPU_EVICT_CTX": TOLD,
    "NVA06F_CTRL_CMD_STOP_CHANNEL": TOLD,
}


def not_asked(branch: int) -> frozenset[str]:
    """What a driver of that branch does not ask, and others do."""
    return frozenset(name for name, (since, before) in ASKED.items() if not since <= branch < before)
