/* Mappings that a tenant makes, as it is told (nvidia_tenant.c). */
#ifndef MGPU_TESTS_TENANT_MAPS_H
#define MGPU_TESTS_TENANT_MAPS_H
#include <stdbool.h>

bool maps_as_said(const char *text);
#endif
