/* A libcuda.so.1 for tests: it counts the GPUs whose UUIDs FAKE_CUDA_ORDER names, "GPU-…,GPU-…", in that order.
 *
 * As the real one, it reads CUDA_VISIBLE_DEVICES when it is started; it then knows none of them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char order[1024];
static int count;

int cuInit(unsigned flags) {
    (void)flags;
    const char *named = getenv("FAKE_CUDA_ORDER");
    if (!named) return 100;
    snprintf(order, sizeof order, "%s", named);
    count = getenv("CUDA_VISIBLE_DEVICES") ? 0 : 1;
    for (char *c = order; count && *c; c++) count += *c == ',';
    return 0;
}
int cuDeviceGetCount(int *found) { return *found = count, 0; }
int cuDeviceGet(int *device, int number) { return *device = number, number >= count; }
int cuDeviceGetUuid_v2(unsigned char *bytes, int device) {
    const char *text = order;
    for (; device; device--) text = strchr(text, ',') + 1;
    text += strlen("GPU-");
    for (int i = 0; i < 16; i++, text += 2) {
        if (*text == '-') text++;
        if (sscanf(text, "%2hhx", &bytes[i]) != 1) return 1;
    }
    return 0;
}
