"""The calls that the mediator decides on, and those it refuses. Written by tools/filter_lists.py.

As cubes, (mask, datum) over the low 32 bits of the command: a command c is in a cube when c & mask == datum.
The NVIDIA driver looks at the number (bits 0-7) and the size (bits 16-29) of an escape and ignores the type
and direction bits, so those are what has to match; commands of nvidia-uvm are bare numbers that would collide
with FIONBIO and friends.
"""

NOTIFY_CUBES: tuple[tuple[int, int], ...] = (
    (0x3FFF00FF, 0x00380027),
    (0x3FFF00FF, 0x00140028),
    (0x3FFF00FF, 0x00100029),
    (0x3FFF00FE, 0x0020002A),
    (0x3FFF00FF, 0x0030002B),
    (0x3FFF00FF, 0x001C0034),
    (0x3FFF00FF, 0x00180035),
    (0x3FFF00FF, 0x00380041),
    (0x3FFF00FF, 0x00B8004A),
    (0x3FFF00FF, 0x0038004E),
    (0x3FFF00FF, 0x0020004F),
    (0x3FFF00FF, 0x00380054),
    (0x3FFF00FF, 0x00380057),
    (0x3FFF00FF, 0x00400057),
    (0x3FFF00FF, 0x00280058),
    (0x3FFF00FF, 0x00300058),
    (0x3FFF00FF, 0x0000005F),
    (0x200000FF, 0x200000C8),
    (0x300000FF, 0x100000C8),
    (0x380000FF, 0x080000C8),
    (0x3C0000FF, 0x040000C8),
    (0x3E0000FF, 0x020000C8),
    (0x3F0000FF, 0x010000C8),
    (0x3F8000FF, 0x008000C8),
    (0x3FC000FF, 0x004000C8),
    (0x3FFF00FF, 0x000400C9),
    (0x3FFF00FE, 0x001000CE),
    (0x3FFF00FF, 0x004800D2),
    (0x000300FF, 0x000000D4),
    (0x3FFF00FF, 0x000800D6),
    (0x3FF700FF, 0x000000DA),
    (0xFFFFFFF0, 0x00000010),
    (0xFFFFFFE0, 0x00000020),
    (0xFFFFFFC0, 0x00000040),
    (0xFFFFFFFC, 0x30000000),
)

REFUSED_CUBES: tuple[tuple[int, int], ...] = (
    (0x3FFF00FF, 0x00200039),
    (0x3FFF00FF, 0x0048004D),
    (0x3FFF00FF, 0x00380056),
    (0x3FFF00FF, 0x00100059),
    (0x3FFF00FF, 0x001000D3),
    (0x3FFF00FF, 0x0A2800D9),
    (0x3FFF00FF, 0x0A3000D9),
)
