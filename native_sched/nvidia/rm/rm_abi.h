/* The part of NVIDIA's RM ioctl interface that mgpu decodes: its names and struct layouts, as the newest
 * known driver has them on x86-64. Older ones have fewer bytes at the end of some: numbers and sizes by
 * version are in interface.def. Sizes in bytes unless a name says otherwise. Source of
 * the offsets: NVIDIA open-gpu-kernel-modules (nv_escape.h, nvos.h, nv-ioctl.h, ctrl headers), restated here
 * as our own definitions.
 *
 * cmd = _IOWR('F', nr, size). The driver ignores type and direction, checks nr and size, copies the outer
 * struct once, returns 0 and leaves the RM status inside the struct. */
#ifndef MGPU_RM_ABI_H
#define MGPU_RM_ABI_H
#include "uvm_abi.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/ioctl.h>

enum rm_escape {
#define ESCAPE(name, number, bytes, status_at, ...) name = number,
#include "interface.def"
};

/* What the driver looks at of an RM cmd: 14 bits of size, 8 bits of number. */
#define RM_CMD(nr, size) _IOC(_IOC_READ | _IOC_WRITE, 'F', (nr), (size))
#define RM_NR(cmd)       ((uint32_t)(cmd)&0xffu)
#define RM_SIZE(cmd)     (((uint32_t)(cmd) >> 16) & 0x3fffu)

enum rm_status {
#define STATUS(name, number) name = number,
#include "interface.def"
};

enum rm_class {
#define CLASS(name, number, bytes, ...) name = number,
#include "interface.def"
};

enum rm_control_cmd {
#define CONTROL(name, number, bytes, ...) name = number,
#include "interface.def"
};

/* Outer structs of the escapes. */
struct rm_alloc { /* NVOS64, 48 */
    uint32_t root, parent, handle, class_id;
    uint64_t params, rights;
    uint32_t params_size, flags, status, pad;
};
struct rm_alloc_short { /* NVOS21, 32 */
    uint32_t root, parent, handle, class_id;
    uint64_t params;
    uint32_t params_size, status;
};
struct rm_free { /* NVOS00, 16 */
    uint32_t root, parent, handle, status;
};
enum { RM_CONTROL_NUMBER_MASK = 0x3fff }; /* of a control's command: 0 is "nothing" in every class */
struct rm_control {                       /* NVOS54, 32 */
    uint32_t client, object, cmd, flags;
    uint64_t params;
    uint32_t params_size, status;
};
struct rm_alloc_memory { /* NVOS02 and fd, 56; limit: size - 1 */
    uint32_t root, parent, handle, class_id, flags, pad0;
    uint64_t memory, limit;
    uint32_t status, pad1;
    int32_t fd;
    uint32_t pad2;
};
enum { RM_ALLOC_MEMORY_MAPPING_SHIFT = 30 }; /* of flags; 0: RM maps it into the caller */
struct rm_alloc_object {                     /* NVOS05, 20 */
    uint32_t root, parent, handle, class_id, status;
};
struct rm_dup { /* NVOS55, 28; handle 0: RM chooses */
    uint32_t client, parent, handle, source_client, source_handle, flags, status;
};
enum rm_share_type {
    RM_SHARE_TYPE_NONE,
    RM_SHARE_TYPE_ALL,
    RM_SHARE_TYPE_TOKEN, /* a client with the same effective user id, or of the same process */
    RM_SHARE_TYPE_CLIENT,
    RM_SHARE_TYPE_PID,
    RM_SHARE_TYPE_PARTITION, /* a client on the same MIG instance, on the same card */
    RM_SHARE_TYPE_GPU,
};
enum { RM_SHARE_ACCESS_DUP = 1 };
/* Not composed: replaces the policy in force. Required: denies others, and grants no access. */
enum { RM_SHARE_REVOKE = 1, RM_SHARE_REQUIRE = 2, RM_SHARE_COMPOSE = 4 };
struct rm_share_policy { /* RS_SHARE_POLICY, 12: what 0xd04 takes */
    uint32_t target, access_mask;
    uint16_t type;
    uint8_t action, pad;
};
struct rm_share { /* NVOS57, 24 */
    uint32_t client, handle;
    struct rm_share_policy policy;
    uint32_t status;
};
enum rm_heap_function {
    RM_HEAP_ALLOC_SIZE = 2,
    RM_HEAP_FREE = 3,
    RM_HEAP_INFO = 5,
    RM_HEAP_ALLOC_PITCH_HEIGHT = 6,
    RM_HEAP_ALLOC_SIZE_RANGE = 14,
    RM_HEAP_OS_DESCRIPTOR = 27, /* the caller's pages */
};
struct rm_heap { /* NVOS32, 184: what every function has, then one of those below */
    uint32_t root, parent, function, vaspace;
    int16_t ivc_heap, pad0;
    uint32_t status;
    uint64_t total, free;
    union {
        struct { /* how all allocations begin, and FREE */
            uint32_t owner, handle, type, flags;
        } any;
        struct {
            uint32_t owner, handle, type, flags, attr, format, compr_covg, zcull_covg, partition_stride;
            uint32_t width, height, pad;
            uint64_t size, alignment, offset, limit, address, range_lo, range_hi;
            uint32_t attr2, ctag_offset, numa_node;
        } by_size;
        struct {
            uint32_t owner, handle, type, flags, height, pitch, attr, width, format, compr_covg, zcull_covg;
            uint32_t partition_stride;
            uint64_t size, alignment, offset, limit, address, range_lo, range_hi;
            uint32_t attr2, ctag_offset, numa_node;
        } by_pitch;
        struct {
            uint32_t owner, handle, type, flags, attr, format, compr_covg, zcull_covg, partition_stride, pad;
            uint64_t size, alignment, offset, limit, range_lo, range_hi, address;
            uint32_t attr2, ctag_offset, numa_node;
        } by_range;
        struct {
            uint32_t attr, pad;
            uint64_t offset, size, base;
        } info;
        uint8_t bytes[144];
    };
};
enum { RM_HEAP_HANDLE_PROVIDED = 0x4000 }; /* of flags */
struct rm_register_fd {                    /* REGISTER_FD, 4: the control node's fd in the caller */
    int32_t ctl_fd;
};
struct rm_check_version { /* CHECK_VERSION_STR, 72; reply 1 = recognised */
    uint32_t cmd, reply;
    char version[64];
};
struct rm_sys_params { /* SYS_PARAMS, 8 */
    uint64_t memblock_bytes;
};
struct rm_card_info { /* CARD_INFO, 72 each */
    uint8_t valid, pad0[3];
    uint32_t pci_domain;
    uint8_t pci_bus, pci_slot, pci_function, pad1;
    uint16_t pci_vendor, pci_device;
    uint32_t gpu_id;
    uint16_t interrupt_line, pad2;
    uint64_t reg_address, reg_bytes, fb_address, fb_bytes;
    uint32_t minor;
    uint8_t dev_name[10], pad3[2];
};
enum { RM_MAX_CARDS = 32 };

/* Parameters behind params pointers. */
struct rm_instance { /* classes 0xc637, 0xc638; descriptor: of the capability, in the process that calls */
    uint64_t descriptor;
    uint32_t id, pad; /* GPU instance (swizzId), compute instance */
};
struct rm_memory { /* NV_MEMORY_ALLOCATION_PARAMS, class 0x40; 120 before 545.23 */
    uint32_t owner, type, flags, width, height, pitch, attr, attr2, format, compr_covg, zcull_covg, pad0;
    uint64_t range_lo, range_hi, size, alignment, offset, limit, address;
    uint32_t ctag_offset, vaspace, internal_flags, tag, numa_node, pad1;
};
enum {
    RM_MEMORY_FLAG_LAZY = 0x400,            /* page tables when something is mapped */
    RM_MEMORY_FLAG_USE_BEGIN_END = 0x20000, /* somewhere in range_lo to range_hi */
    RM_MEMORY_FLAG_VIRTUAL = 0x80000,
    RM_MEMORY_FLAG_EXTERNALLY_MANAGED = 0x400000, /* page tables are not RM's */
    RM_MEMORY_FLAG_SPARSE = 0x4000000,            /* reads as zeros where nothing is mapped */
    RM_MEMORY_ATTR_LOCATION_SHIFT = 25,
    RM_MEMORY_ATTR_LOCATION_MASK = 3,
    RM_MEMORY_LOCATION_VIDEO = 0,
    RM_MEMORY_LOCATION_HOST = 1,
    RM_MEMORY_ATTR_CACHED = 1 << 29,
    RM_MEMORY_ATTR_PAGE_SHIFT = 23,
    RM_MEMORY_ATTR_PAGE_MASK = 3,
    RM_MEMORY_ATTR2_PAGE_OFFLINING_OFF = 1 << 19,
    RM_MEMORY_ATTR2_HUGE_SHIFT = 20, /* 2 MiB, 512 MiB, 256 GiB */
    RM_MEMORY_ATTR2_HUGE_MASK = 3,
};
struct rm_device { /* NV0080_ALLOC_PARAMETERS, 56; id = device instance */
    uint32_t id, client_share, target_client, target_device, flags, pad0;
    uint64_t va_bytes, va_start, va_limit;
    uint32_t va_mode, pad1;
};
struct rm_subdevice { /* NV2080_ALLOC_PARAMETERS */
    uint32_t id;
};
enum { RM_VASPACE_EXTERNALLY_OWNED = 1 << 3 }; /* of an address space's flags: nvidia-uvm fills it */
struct rm_channel_group { /* class 0xA06C, 20; from 615.71 on 28 (native_sched/nvidia/rm/channel.h) */
    uint32_t error_object, ecc_error_object, vaspace, engine_type, vgpu_flag;
};
enum rm_engine { /* NV2080_ENGINE_TYPE */
                 RM_ENGINE_GRAPHICS = 0x1,
                 RM_ENGINE_COPY0 = 0x9, /* and up: copy engines, but for some of video and the like */
                 RM_ENGINE_COPY10 = 0x34,
};
enum { RM_ENGINE_NVDEC0 = 0x13, RM_ENGINE_NVENC0 = 0x1b, RM_ENGINE_NVENC3 = 0x3f };
enum { RM_ENGINE_NVJPG0 = 0x2b, RM_ENGINE_OFA0 = 0x33, RM_ENGINE_OFA1 = 0x3e };
struct rm_channel { /* channel classes; 360 before 570.86 */
    uint32_t error_object, pad0;
    uint64_t gpfifo_offset;
    uint32_t gpfifo_entries, flags, context_share, vaspace;
    uint32_t userd_memory[8];
    uint64_t userd_offset[8];
    uint32_t engine_type;
    uint8_t rest[236];
};
struct rm_map_memory { /* NVOS33 and fd, 56; fd: where the caller will mmap(), at offset `linear` */
    uint32_t client, device, memory, pad0;
    uint64_t offset, length, linear;
    uint32_t status, flags;
    int32_t fd;
    uint32_t pad1;
};
struct rm_unmap_memory { /* NVOS34, 32 */
    uint32_t client, device, memory, pad0;
    uint64_t linear;
    uint32_t status, flags;
};
enum { RM_ADDRESS_SPACE_SYSTEM = 1 };
struct rm_map_dma { /* how NVOS46 begins */
    uint32_t client, device, virtual_memory, memory;
    uint64_t offset, length;
    uint32_t flags;
};
struct rm_map_dma_end { /* how it ends */
    uint64_t base;
    uint32_t status, pad;
};
struct rm_unmap_dma { /* how NVOS47 begins */
    uint32_t client, device, virtual_memory, memory;
    uint32_t flags, pad;
    uint64_t base;
};
struct rm_unmap_dma_end { /* how it ends */
    uint32_t status, pad;
};
struct rm_virtual_memory { /* class 0x70, 24 */
    uint64_t offset, limit;
    uint32_t vaspace, pad;
};
struct rm_context_share { /* class 0x9067, 12 */
    uint32_t vaspace, flags, subcontext;
};
struct rm_tsg_schedule { /* 0xa06c0101, 2 before 575.51; channels: 0xa06f0103 */
    uint8_t enable, skip_submit, skip_enable;
};
struct rm_tsg_timeslice { /* 0xa06c0103, 0xa06c0104 */
    uint64_t timeslice_us;
};
struct rm_tsg_preempt { /* 0xa06c0105 */
    uint8_t wait, manual_timeout, pad[2];
    uint32_t timeout_us;
};
struct rm_tsg_info { /* 0xa06c0106 */
    uint32_t tsg_id;
};
enum { RM_PREEMPTION_SETS_COMPUTE = 1, RM_PREEMPTION_SETS_GRAPHICS = 2, RM_PREEMPTION_BY_INSTRUCTION = 2 };
/* how 0x20801210 begins; compute: 0 waits for the end of the kernel, 1 of the block */
struct rm_preemption_mode {
    uint32_t flags, channel, graphics, compute;
};
/* classes 0x5, 0x79; data: the descriptor's number, which RM compares with ALLOC_OS_EVENT's */
struct rm_event {
    uint32_t client, source, class_id, index;
    uint64_t data;
};
struct rm_os_event { /* ALLOC_OS_EVENT, FREE_OS_EVENT, 16 */
    uint32_t client, device, fd, status;
};
struct rm_debugger { /* class 0x83de */
    uint32_t unused, client, object;
};
struct rm_profiler { /* class 0xb2cc: what it profiles; 0: the card */
    uint32_t client, context;
};
enum { RM_MAX_DISABLE = 64 };
struct rm_disable_channels { /* 0x2080110b, 536 */
    uint8_t disable, pad0[3];
    uint32_t count;
    uint8_t only_disable_scheduling, rewind_gp_put, pad1[6];
    uint64_t runlist_preempt_event;
    uint32_t client[RM_MAX_DISABLE], channel[RM_MAX_DISABLE];
};
enum rm_userd { RM_USERD_GP_GET = 0x88, RM_USERD_GP_PUT = 0x8c, RM_USERD_BYTES = 512 };
struct rm_gpu_ids { /* 0x201; ends with 0xffffffff */
    uint32_t id[RM_MAX_CARDS];
};
enum { RM_MAX_ACTIVE_DEVICES = 256 };
struct rm_active_ids { /* 0x288, 3076: cards, or instances of them */
    uint32_t count;
    struct {
        uint32_t gpu_id, gpu_instance, compute_instance;
    } device[RM_MAX_ACTIVE_DEVICES];
};
enum { RM_NO_INSTANCE = 0xffffffff, RM_MAX_GPU_INSTANCES = 9 };
struct rm_gpu_instances { /* 0x2080018b, 40 */
    uint32_t id[RM_MAX_GPU_INSTANCES], count;
};
enum { RM_GPU_INFO_DMABUF = 0x3d };
struct rm_gpu_info { /* how 0x20800102 begins: what is asked, and its answer */
    uint32_t count;
    struct {
        uint32_t index, data;
    } entry[];
};
enum { RM_FABRIC_SKIP = 1 }; /* 0x136: there is none */
struct rm_classes {          /* 0x800292 */
    uint32_t count, list[];
};
struct rm_debug_memory { /* 0x83de0315, 0x83de0316 */
    uint32_t memory, length;
    uint64_t offset, buffer;
};
struct rm_class_list { /* 0x800201 */
    uint32_t count, pad;
    uint64_t list;
};
struct rm_device_ids { /* 0x204, 4; a bit for each device instance */
    uint32_t mask;
};
struct rm_id_info { /* 0x202, 40 */
    uint32_t gpu_id, flags, device_instance, subdevice_instance;
    uint64_t name_pointer;
    uint32_t sli_status, board_id, gpu_instance;
    int32_t numa_node;
};
struct rm_name { /* 0x20800110; flags 0 = ASCII; 68 from 595.44 */
    uint32_t flags;
    char ascii[64], pad[64];
};
struct rm_gid { /* 0x2080014a; flags 0 = ASCII "GPU-…" */
    uint32_t index, flags, length;
    uint8_t data[256];
};
struct rm_arch { /* 0x20801701 */
    uint32_t architecture, implementation, revision;
    uint8_t subrevision, pad[3];
};
struct rm_pci { /* 0x20801801, 16 */
    uint32_t device_id, subsystem_id, revision_id, ext_device_id;
};
struct rm_fb_entry {
    uint32_t index, data; /* data in KiB for the size indices below */
};
enum { RM_FB_ENTRIES = 128 };
struct rm_fb_info { /* 0x20801303, 1028 from 580.65 */
    uint32_t count;
    struct rm_fb_entry entry[RM_FB_ENTRIES];
};
enum rm_fb_index {
    RM_FB_BAR1_SIZE = 0x5,
    RM_FB_RAM_SIZE = 0x7,
    RM_FB_TOTAL_RAM_SIZE = 0x8, /* NVML's total */
    RM_FB_HEAP_SIZE = 0x9,      /* NVML v2: used = this - HEAP_FREE, reserved = TOTAL_RAM - this */
    RM_FB_MAPPABLE_HEAP_SIZE = 0xa,
    RM_FB_LARGEST_FREE = 0x12,
    RM_FB_HEAP_FREE = 0x16, /* NVML's free */
    RM_FB_BAR1_AVAIL = 0x1d,
    RM_FB_USABLE_RAM_SIZE = 0x20,
};
enum { RM_MAX_PIDS = 950, RM_MAX_PID_INFO = 200 };
struct rm_pids { /* 0x2080018d, 3812; id_type 0 = by class, 1 = by vGPU guest */
    uint32_t id_type, id, count, pid[RM_MAX_PIDS];
};
struct rm_pid_entry { /* 72; index 0 = video memory use */
    uint32_t pid, index, result, pad0;
    uint64_t memory_private, memory_shared_owned, memory_shared_duped;
    uint64_t protected_private, protected_shared_owned, protected_shared_duped;
    uint32_t compute_instance, gpu_instance; /* RM_NO_INSTANCE: MIG is off */
};
struct rm_pid_info { /* 0x2080018e, 14408 */
    uint32_t count, pad;
    struct rm_pid_entry entry[RM_MAX_PID_INFO];
};
enum { RM_PERFMON_SAMPLES = 72, RM_PERFMON_UTIL = 2, RM_PERFMON_ENGINES_AT = 8, RM_PERFMON_NO_PID = ~0u };
struct rm_perfmon_head { /* 0x20802096; then RM_PERFMON_SAMPLES samples, see native_sched/nvidia/rm/perfmon.h
                          */
    uint8_t type, pad[3];
    uint32_t buffer_bytes, count;
    uint32_t tracker; /* the oldest sample; where the ring is not full, the first that is all zeros */
};
struct rm_perfmon_engine { /* 116; 128 from 570.86, with a pointer of the driver's own */
    uint32_t util;         /* hundredths of a percent */
    uint32_t vgpu_scale, pid, vgpu_pid;
    char vgpu_process[100];
};

#define RM_AT(s, f, o) _Static_assert(offsetof(struct s, f) == (o), #s "." #f)
#define RM_SZ(s, n)    _Static_assert(sizeof(struct s) == (n), #s)
RM_AT(rm_alloc, params, 0x10);
RM_AT(rm_alloc, params_size, 0x20);
RM_AT(rm_alloc, status, 0x28);
RM_SZ(rm_alloc, 48);
RM_AT(rm_alloc_short, params_size, 0x18);
RM_AT(rm_alloc_short, status, 0x1c);
RM_SZ(rm_alloc_short, 32);
RM_SZ(rm_free, 16);
RM_AT(rm_alloc_memory, memory, 0x18);
RM_AT(rm_alloc_memory, limit, 0x20);
RM_AT(rm_alloc_memory, status, 0x28);
RM_AT(rm_alloc_memory, fd, 0x30);
RM_SZ(rm_alloc_memory, 56);
RM_AT(rm_alloc_object, status, 0x10);
RM_SZ(rm_alloc_object, 20);
RM_AT(rm_dup, status, 0x18);
RM_SZ(rm_dup, 28);
RM_AT(rm_share, policy.type, 0x10);
RM_AT(rm_share, status, 0x14);
RM_SZ(rm_share, 24);
RM_AT(rm_heap, status, 0x14);
RM_AT(rm_heap, total, 0x18);
RM_AT(rm_heap, any.handle, 0x2c);
RM_AT(rm_heap, by_size.attr, 0x38);
RM_AT(rm_heap, by_size.size, 0x58);
RM_AT(rm_heap, by_size.attr2, 0x90);
RM_AT(rm_heap, by_pitch.attr, 0x40);
RM_AT(rm_heap, by_pitch.size, 0x58);
RM_AT(rm_heap, by_range.attr, 0x38);
RM_AT(rm_heap, by_range.size, 0x50);
RM_SZ(rm_heap, 184);
RM_AT(rm_control, params, 0x10);
RM_AT(rm_control, params_size, 0x18);
RM_AT(rm_control, status, 0x1c);
RM_SZ(rm_control, 32);
RM_SZ(rm_check_version, 72);
RM_AT(rm_card_info, gpu_id, 16);
RM_AT(rm_card_info, reg_address, 24);
RM_AT(rm_card_info, minor, 56);
RM_SZ(rm_card_info, 72);
RM_AT(rm_memory, attr, 0x18);
RM_AT(rm_memory, size, 0x40);
RM_AT(rm_memory, limit, 0x58);
RM_AT(rm_memory, vaspace, 0x6c);
RM_SZ(rm_memory, 128);
RM_SZ(rm_device, 56);
RM_SZ(rm_channel_group, 20);
RM_AT(rm_channel, gpfifo_offset, 0x8);
RM_AT(rm_channel, flags, 0x14);
RM_AT(rm_channel, userd_memory, 0x20);
RM_AT(rm_channel, userd_offset, 0x40);
RM_AT(rm_channel, engine_type, 0x80);
RM_SZ(rm_channel, 368);
RM_AT(rm_map_memory, offset, 0x10);
RM_AT(rm_map_memory, status, 0x28);
RM_AT(rm_map_memory, fd, 0x30);
RM_SZ(rm_map_memory, 56);
RM_AT(rm_unmap_memory, status, 0x18);
RM_SZ(rm_unmap_memory, 32);
RM_SZ(rm_map_dma_end, 16);
RM_SZ(rm_unmap_dma_end, 8);
RM_SZ(rm_virtual_memory, 24);
RM_SZ(rm_context_share, 12);
RM_SZ(rm_tsg_schedule, 3);
RM_SZ(rm_tsg_preempt, 8);
RM_SZ(rm_event, 24);
RM_SZ(rm_os_event, 16);
RM_SZ(rm_debugger, 12);
RM_SZ(rm_profiler, 8);
RM_SZ(rm_class_list, 16);
RM_SZ(rm_device_ids, 4);
RM_AT(rm_id_info, sli_status, 0x18);
RM_SZ(rm_id_info, 40);
RM_SZ(rm_active_ids, 3076);
RM_SZ(rm_gpu_instances, 40);
RM_SZ(rm_share_policy, 12);
RM_SZ(rm_share, 24);
RM_AT(rm_share, status, 0x14);
RM_SZ(rm_instance, 16);
RM_AT(rm_instance, id, 8);
RM_AT(rm_disable_channels, client, 0x18);
RM_AT(rm_disable_channels, channel, 0x118);
RM_SZ(rm_disable_channels, 536);
RM_SZ(rm_fb_info, 1028);
RM_SZ(rm_pids, 3812);
RM_SZ(rm_pid_entry, 72);
RM_AT(rm_pid_entry, memory_private, 0x10);
RM_SZ(rm_pid_info, 14408);
RM_AT(rm_perfmon_head, tracker, 0xc);
RM_SZ(rm_perfmon_head, 16);
RM_AT(rm_perfmon_engine, pid, 0x8);
RM_SZ(rm_perfmon_engine, 116);
#undef RM_AT
#undef RM_SZ
#endif
