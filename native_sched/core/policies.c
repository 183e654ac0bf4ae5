#include "policy.h"

const struct sched_policy *const sched_policies[SCHED_POLICIES] = {
#define POLICY(id, object, name) [id] = &(object),
#include "policies.def"
#undef POLICY
};
