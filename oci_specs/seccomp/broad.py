"""The watched commands and some of Linux's beside them, in few comparisons, and all others in as few.

As cubes, (mask, datum): a command c is in a cube when c & mask == datum. Its number is in bits 0-7, its type
in 8-15, the size of its argument in 16-29. The exact lists (notified.py, complement.py) take libseccomp ten
times as long, at each start. Commands notified only because the list is broad are continued by number. The
list leaves out what programs call all the time: commands of terminals, files, sockets, and network adapters
for RDMA.
"""

NOTIFIED: tuple[tuple[int, int], ...] = (
    # Bare numbers from 0x10 to 0x7F, as nvidia-uvm's are, and some types below 0x10.
    (0x0070F090, 0x00000010),
    (0x0070F0A0, 0x00000020),
    # 0x40 to 0x7F of any type without 0x10, and with 8 of all: NV_ESC_RM_LOCKLESS_DIAGNOSTIC without a size.
    (0x007010C0, 0x00000040),
    (0x007000C8, 0x00000048),
    # UVM_INITIALIZE and its like, from 0x30000000 on.
    (0x1070F0F0, 0x10000000),
    # Escapes from 0x20 to 0x7F. Each has a size of 0x20 and more without 4, or of 0x10 or 0x40 without 0x20.
    (0x002400A0, 0x00200020),
    (0x002400C0, 0x00200040),
    (0x003000A0, 0x00100020),
    (0x003000C0, 0x00100040),
    (0x006000A0, 0x00400020),
    (0x006000C0, 0x00400040),
    # Escapes from 0xC0 to 0xDF, of any size.
    (0x000000E0, 0x000000C0),
)

LEFT_ALONE: tuple[tuple[int, int], ...] = (
    # Numbers below 0x40 with a size below 0x10, as most have, of types from 0x10 on; of types with 0x10, as
    # terminals and disks have, those below 0x80 without 8.
    (0x007080C0, 0x00008000),
    (0x007040C0, 0x00004000),
    (0x007020C0, 0x00002000),
    (0x007010C0, 0x00001000),
    (0x00701088, 0x00001000),
    # FIBMAP, FIGETBSZ and the commands of SCSI disks.
    (0x100000F0, 0x00000000),
    # Numbers below 0x20 with a larger size.
    (0x001000E0, 0x00100000),
    (0x002000E0, 0x00200000),
    (0x004000E0, 0x00400000),
    # TCGETS2 and its like: a terminal's settings have 0x2C bytes.
    (0x00240080, 0x00240000),
    # Numbers from 0x80 to 0xBF, and from 0xE0 on.
    (0x000000C0, 0x00000080),
    (0x000000E0, 0x000000E0),
)
