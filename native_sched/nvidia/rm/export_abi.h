/* Export of objects to open files and import from them, as rm_abi.h (ctrl0000unix.h). */
#ifndef MGPU_RM_EXPORT_ABI_H
#define MGPU_RM_EXPORT_ABI_H
#include "rm_abi.h"

/* Every fd is the caller's, of a file of the control node. */
enum { RM_EXPORT_TYPE_RM = 1, RM_EXPORT_EMPTY_FD = 1, RM_EXPORT_OBJECTS = 512, RM_IMPORT_OBJECTS = 128 };
struct rm_export_object { /* 0x3d05, 24 */
    uint32_t type, device, parent, object;
    int32_t fd;
    uint32_t flags;
};
struct rm_import_object { /* 0x3d06, 20 */
    int32_t fd;
    uint32_t type, device, parent, object;
};
struct rm_export_info { /* how 0x3d08 begins */
    int32_t fd;
    uint32_t device_instance;
};
struct rm_export_create { /* 0x3d0a, 76 */
    uint32_t device;
    uint16_t max;
    uint8_t metadata[64], pad[2];
    int32_t fd;
};
/* 0x3d0b, 2128; max, metadata and device are looked at the first time; object 0: none from now on */
struct rm_export_objects {
    int32_t fd;
    uint32_t device;
    uint16_t max;
    uint8_t metadata[64], pad[2];
    uint32_t object[RM_EXPORT_OBJECTS];
    uint16_t count, index;
};
struct rm_import_objects { /* 0x3d0c, 652; type, out: 0 where nothing was exported */
    int32_t fd;
    uint32_t parent, object[RM_IMPORT_OBJECTS];
    uint8_t type[RM_IMPORT_OBJECTS];
    uint16_t count, index;
};
enum { RM_IMPORT_TYPE_VIDEO = 1, RM_IMPORT_TYPE_HOST = 2 };

_Static_assert(sizeof(struct rm_export_object) == 24, "rm_export_object");
_Static_assert(offsetof(struct rm_export_object, fd) == 0x10, "rm_export_object.fd");
_Static_assert(sizeof(struct rm_import_object) == 20, "rm_import_object");
_Static_assert(offsetof(struct rm_import_object, fd) == 0, "rm_import_object.fd");
_Static_assert(offsetof(struct rm_export_info, fd) == 0, "rm_export_info.fd");
_Static_assert(offsetof(struct rm_export_objects, fd) == 0, "rm_export_objects.fd");
_Static_assert(offsetof(struct rm_import_objects, fd) == 0, "rm_import_objects.fd");
_Static_assert(sizeof(struct rm_export_create) == 76, "rm_export_create");
_Static_assert(offsetof(struct rm_export_create, fd) == 0x48, "rm_export_create.fd");
_Static_assert(sizeof(struct rm_export_objects) == 2128, "rm_export_objects");
_Static_assert(offsetof(struct rm_export_objects, object) == 0x4c, "rm_export_objects.object");
_Static_assert(sizeof(struct rm_import_objects) == 652, "rm_import_objects");
_Static_assert(offsetof(struct rm_import_objects, type) == 0x208, "rm_import_objects.type");
#endif
