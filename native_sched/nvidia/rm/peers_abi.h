/* What RM has of peers: questions of what a card reaches of another, links of NVLink, and objects of
 * NV50_P2P. */
#ifndef MGPU_PEERS_ABI_H
#define MGPU_PEERS_ABI_H
#include "rm_abi.h"

/* how 0x12b and 0x127 begin; then peers' numbers of each other, there or where pointers say */
struct rm_p2p_caps {
    uint32_t gpu_id[RM_MAX_CARDS], count, caps, read_engines, write_engines;
    uint8_t status[9];
};
enum { RM_P2P_NOT_SUPPORTED = 5, RM_P2P_NO_PEER = 0xff, RM_P2P_LISTS_AT = 0x9c, RM_P2P_POINTERS_AT = 0xa0 };
enum { RM_P2P_GROUP = 8 };
struct rm_p2p_matrix { /* how 0x13a begins; then what each card of a reaches of each of b */
    uint32_t a, b, gpu_id_a[RM_P2P_GROUP], gpu_id_b[RM_P2P_GROUP];
};
/* How parameters of NV50_P2P begin: a subdevice of each card, numbers that the caller asks for (0: the
 * driver's choice), and where each card has a mailbox (of no length: the driver's own). */
struct rm_p2p {
    uint32_t subdevice, peer, peer_ids, peers_ids;
    uint64_t mailbox;
    uint32_t mailbox_bytes, flags, egm_ids, peers_egm_ids;
};
struct rm_link_device { /* of a link of NVLink, what is at one of its ends */
    uint32_t flags, domain;
    uint16_t bus, device, function, pad;
    uint32_t pci_id, pad2;
    uint64_t type;
};
enum { RM_LINK_TO_GPU = 2, RM_LINK_TO_NOTHING = 0xff };
struct rm_link { /* how a link begins, from 555.42 on; each is as long as the driver's version has it */
    uint8_t rest[56], connected, pad[39];
    struct rm_link_device remote;
};
struct rm_link_v535 {
    uint8_t rest[56], connected, pad[31];
    struct rm_link_device remote;
};
struct rm_links { /* how 0x20803002's begin, from 580.65 on */
    uint32_t enabled;
    uint8_t rest[28];
    struct rm_link link[1];
};
struct rm_links_v535 {
    uint32_t enabled, pad;
    struct rm_link_v535 link[1];
};

#define RM_AT(s, f, o) _Static_assert(offsetof(struct s, f) == (o), #s "." #f)
#define RM_SZ(s, n)    _Static_assert(sizeof(struct s) == (n), #s)
RM_AT(rm_p2p_caps, count, 0x80);
RM_AT(rm_p2p_caps, status, 0x90);
RM_AT(rm_p2p_matrix, gpu_id_b, 0x28);
RM_SZ(rm_p2p_matrix, 0x48);
RM_AT(rm_p2p, mailbox, 0x10);
RM_SZ(rm_p2p, 40);
RM_AT(rm_link_device, type, 0x18);
RM_SZ(rm_link_device, 32);
RM_AT(rm_link, remote, 96);
RM_AT(rm_link_v535, remote, 88);
RM_AT(rm_links, link, 32);
RM_AT(rm_links_v535, link, 8);
#undef RM_AT
#undef RM_SZ
#endif
