/* What the dispatcher, the end of a file and a restart ask of this room. */
#ifndef MGPU_RM_HANDLERS_H
#define MGPU_RM_HANDLERS_H
#include "native_sched/nvidia/boundary/call/call.h"

/* Handlers of the larger escapes. */
struct answer mediate_alloc(struct call *c);
struct answer mediate_alloc_object(struct call *c);
struct answer mediate_dup(struct call *c);
struct answer mediate_share(struct call *c);
struct answer mediate_free(struct call *c);
struct answer mediate_control(struct call *c);
struct answer mediate_card_info(struct call *c);
struct answer mediate_attach_gpus(struct call *c);
struct answer mediate_map(struct call *c);
struct answer mediate_unmap(struct call *c);
struct answer mediate_map_dma(struct call *c);
struct answer mediate_unmap_dma(struct call *c);
struct answer mediate_os_event(struct call *c);

/* Undoes what the previous mgpud may have told the driver of an event's file, or was about to take back. */
void os_event_undo(const struct mediator *m, const struct open_file *file, uint32_t client, uint32_t fd);
/* The same of a duplicate: its object is no longer shared with the client that was to have it. */
void dup_undo_share(const struct mediator *m, struct tenant *t, const struct rm_dup *d);

/* What RM has yet to free of a file whose last close has begun; it cannot be asked about exported objects. */
enum file_holds { FILE_HOLDS_NOTHING, FILE_HOLDS_EXPORTS, FILE_HOLDS_CLIENTS };
enum file_holds account_file_holds(const struct mediator *m, const struct open_file *file);

/* Every charge of a closed file ends; called once per file. Whether the tenant has no listener:
 * the file may have been the last that it waited for. */
bool account_file_closed(const struct mediator *m, const struct open_file *file);
#endif
