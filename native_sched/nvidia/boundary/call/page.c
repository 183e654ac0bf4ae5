#include "page.h"

const struct store_layout listener_layout = {
    .kind = STORE_LISTENER,
    .record_bytes = sizeof(struct listener_page),
    .max_bytes = sizeof(struct listener_page),
};
