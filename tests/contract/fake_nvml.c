/* A libnvidia-ml.so.1 for tests: -DHANG, -DCRASH, -DNO_DRIVER, -DPARTIAL or two GPUs. */
#include <signal.h>
#include <string.h>
#include <unistd.h>

typedef int nvmlReturn_t;
typedef struct { long index; } *nvmlDevice_t;
typedef struct { unsigned long long total, free, used; } nvmlMemory_t;
typedef struct { unsigned int gpu, memory; } nvmlUtilization_t;

static struct { long index; } devices[2] = {{0}, {1}};

nvmlReturn_t nvmlInitWithFlags(unsigned int flags) {
#if defined(HANG)
    for (;;) pause();
#elif defined(CRASH)
    raise(SIGSEGV);
#elif defined(NO_DRIVER)
    return 9; /* NVML_ERROR_DRIVER_NOT_LOADED */
#endif
    return 0;
}
nvmlReturn_t nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
nvmlReturn_t nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(nvmlReturn_t code) { return code == 9 ? "Driver Not Loaded" : "Not Supported"; }
nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count) { *count = 2; return 0; }
nvmlReturn_t nvmlSystemGetDriverVersion(char *text, unsigned int size) { strncpy(text, "999.01", size); return 0; }
nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device) {
    *device = (nvmlDevice_t)&devices[index];
    return 0;
}
nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *text, unsigned int size) {
    strncpy(text, device->index ? "Fake B" : "Fake A", size);
    return 0;
}
nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *text, unsigned int size) {
    strncpy(text, device->index ? "GPU-bbbb" : "GPU-aaaa", size);
    return 0;
}
nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory) {
    memory->total = 80ull << 30, memory->used = 5ull << 30, memory->free = 75ull << 30;
    return 0;
}
nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *rates) {
#if defined(PARTIAL)
    return 3; /* NVML_ERROR_NOT_SUPPORTED, as under MIG */
#endif
    rates->gpu = 42, rates->memory = 7;
    return 0;
}
