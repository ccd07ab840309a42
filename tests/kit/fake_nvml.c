/* A libnvidia-ml.so.1 for tests: it tells what a text file says, and fails as that says.
 *
 * FAKE_NVML_SCRIPT names the file, which may be rewritten at any time. A line is a key and its values:
 *
 *   driver 999.01                                the version
 *   fault nvmlInitWithFlags return 9             an error code, from a function, for every GPU
 *   fault nvmlDeviceGetPowerUsage hang 30        seconds that it blocks
 *   fault nvmlDeviceGetTemperature crash         a segmentation fault
 *   gpu GPU-aaaa Fake A                          begins a GPU: UUID and name; the lines below are about it
 *   utilization 42 97 15                         values that take turns, a second each
 *   capability 89                                8.9
 *   energy_mj rate 500000                        so many for each second of the monotonic clock
 *   process 4121 1073741824 1                    a process and its bytes ("-": not available), in the second part alone
 *   mig MIG-bbbb 1g.5gb 5368709120 1048576       a part: UUID, profile, total and used bytes
 *   xid 31 79                                    Xid errors so far, reported to those that registered before
 *   xid_instance 3                               the GPU instance that they concern
 *   fault nvmlDeviceGetName return 15            of this GPU alone; "*" for every function
 *
 * What a GPU has no line for it does not support. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { OK = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, TIMEOUT = 10 };
enum { GPUS = 16, VALUES = 40, TURNS = 16, FAULTS = 12, PROCESSES = 16, PARTS = 8, SETS = 64 };

typedef unsigned long long u64;
typedef struct { int gpu, part; } Handle; /* part: -1 for the whole GPU */
typedef struct { char key[64]; double turns[TURNS]; int count, rate; } Value;
typedef struct { char function[64], what[16]; int number; } Fault;
typedef struct { int pid, part; u64 bytes; } Process; /* part: -1 for all */
typedef struct { char uuid[80], profile[32]; u64 total, used; } Part;
typedef struct {
    char uuid[80], name[64];
    Value values[VALUES];
    Fault faults[FAULTS];
    Process processes[PROCESSES];
    Part parts[PARTS];
    int value_count, fault_count, process_count, part_count;
} Gpu;

static Gpu gpus[GPUS], everywhere;
static int gpu_count;
static char driver[64] = "999.01";
static Handle handles[GPUS][PARTS + 1];

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static void add_fault(Gpu *gpu, char *text) {
    Fault *fault = &gpu->faults[gpu->fault_count];
    fault->number = 0;
    if (gpu->fault_count < FAULTS && sscanf(text, "%63s %15s %d", fault->function, fault->what, &fault->number) >= 2)
        gpu->fault_count++;
}

static void add_value(Gpu *gpu, const char *key, char *text) {
    Value *value = &gpu->values[gpu->value_count++ % VALUES];
    snprintf(value->key, sizeof value->key, "%s", key);
    value->count = 0;
    value->rate = !strncmp(text, "rate ", 5);
    text += value->rate ? 5 : 0;
    for (char *end; value->count < TURNS; text = end) {
        double number = strtod(text, &end);
        if (end == text) break;
        value->turns[value->count++] = number;
    }
}

static void read_line(char *line) {
    char key[64];
    int used = 0;
    line[strcspn(line, "\n")] = 0;
    if (sscanf(line, "%63s %n", key, &used) < 1 || *key == '#') return;
    char *text = line + used;
    Gpu *gpu = gpu_count ? &gpus[gpu_count - 1] : &everywhere;
    if (!strcmp(key, "driver")) snprintf(driver, sizeof driver, "%s", text);
    else if (!strcmp(key, "fault")) add_fault(gpu, text);
    else if (!strcmp(key, "gpu") && gpu_count < GPUS) {
        gpu = &gpus[gpu_count++];
        sscanf(text, "%79s %63[^\n]", gpu->uuid, gpu->name);
    } else if (!strcmp(key, "process") && gpu->process_count < PROCESSES) {
        Process *process = &gpu->processes[gpu->process_count++];
        char bytes[32] = "-";
        process->part = -1;
        sscanf(text, "%d %31s %d", &process->pid, bytes, &process->part);
        process->bytes = *bytes == '-' ? (u64)-1 : strtoull(bytes, NULL, 10);
    } else if (!strcmp(key, "mig") && gpu->part_count < PARTS) {
        Part *part = &gpu->parts[gpu->part_count++];
        sscanf(text, "%79s %31s %llu %llu", part->uuid, part->profile, &part->total, &part->used);
    } else add_value(gpu, key, text);
}

/* Read the script when it is another than before; looked at 50 times a second at most. */
static void refresh(void) {
    static double looked = -1;
    static struct timespec seen;
    static ino_t inode;
    const char *path = getenv("FAKE_NVML_SCRIPT");
    struct stat found;
    if (now() - looked < 0.02 || !path || stat(path, &found)) return;
    looked = now();
    if (found.st_ino == inode && !memcmp(&found.st_mtim, &seen, sizeof seen)) return;
    seen = found.st_mtim, inode = found.st_ino;
    memset(gpus, 0, sizeof gpus), memset(&everywhere, 0, sizeof everywhere);
    gpu_count = 0;
    FILE *file = fopen(path, "r");
    if (!file) return;
    for (char line[512]; fgets(line, sizeof line, file);) read_line(line);
    fclose(file);
}

static int suffer(const Gpu *gpu, const char *function) {
    for (int i = 0; i < gpu->fault_count; i++) {
        const Fault *fault = &gpu->faults[i];
        if (strcmp(fault->function, function) && strcmp(fault->function, "*")) continue;
        if (!strcmp(fault->what, "crash")) raise(SIGSEGV);
        if (!strcmp(fault->what, "return")) return fault->number;
        double until = now() + fault->number;
        while (now() < until) usleep(10000);
    }
    return OK;
}

static Gpu *enter(const char *function, const Handle *device, int *code) {
    refresh();
    *code = suffer(&everywhere, function);
    if (!*code && device->gpu >= gpu_count) *code = NOT_FOUND;
    if (!*code) *code = suffer(&gpus[device->gpu], function);
    return &gpus[device->gpu];
}

static int ask(const char *function, const Handle *device, const char *key, double *out) {
    int code;
    Gpu *gpu = enter(function, device, &code);
    if (code) return code;
    if (device->part >= 0) return NOT_SUPPORTED;
    for (int i = 0; i < gpu->value_count; i++) {
        Value *value = &gpu->values[i];
        if (strcmp(value->key, key) || !value->count) continue;
        *out = value->rate ? value->turns[0] * now() : value->turns[(u64)now() % value->count];
        return OK;
    }
    return NOT_SUPPORTED;
}

#define NUMBER(FUNCTION, KEY, TYPE)                           \
    int FUNCTION(const Handle *device, TYPE *out) {           \
        double value;                                         \
        int code = ask(#FUNCTION, device, KEY, &value);       \
        if (!code) *out = (TYPE)(long long)value;             \
        return code;                                          \
    }
/* The same with an argument that chooses the key. */
#define CHOICE(FUNCTION, TYPE, ...)                                                       \
    int FUNCTION(const Handle *device, unsigned which, TYPE *out) {                       \
        const char *keys[] = {__VA_ARGS__};                                               \
        double value;                                                                     \
        if (which >= sizeof keys / sizeof *keys || !*keys[which]) return NOT_SUPPORTED;   \
        int code = ask(#FUNCTION, device, keys[which], &value);                           \
        if (!code) *out = (TYPE)(long long)value;                                         \
        return code;                                                                      \
    }

NUMBER(nvmlDeviceGetPowerUsage, "power_mw", unsigned)
NUMBER(nvmlDeviceGetEnforcedPowerLimit, "power_limit_mw", unsigned)
NUMBER(nvmlDeviceGetTotalEnergyConsumption, "energy_mj", u64)
NUMBER(nvmlDeviceGetCurrentClocksEventReasons, "reasons", u64)
NUMBER(nvmlDeviceGetCurrentClocksThrottleReasons, "old_reasons", u64)
NUMBER(nvmlDeviceGetPerformanceState, "performance_state", unsigned)
NUMBER(nvmlDeviceGetFanSpeed, "fan", unsigned)
NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, "pcie_generation", unsigned)
NUMBER(nvmlDeviceGetMaxPcieLinkWidth, "pcie_width", unsigned)
CHOICE(nvmlDeviceGetTemperature, unsigned, "temperature")
CHOICE(nvmlDeviceGetTemperatureThreshold, unsigned, "temperature_shutdown", "temperature_limit")
CHOICE(nvmlDeviceGetClockInfo, unsigned, "", "sm_clock", "memory_clock")
CHOICE(nvmlDeviceGetMaxClockInfo, unsigned, "", "sm_clock_limit", "memory_clock_limit")
CHOICE(nvmlDeviceGetPcieThroughput, unsigned, "pcie_tx_kb", "pcie_rx_kb")

int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    refresh();
    for (int gpu = 0; gpu < GPUS; gpu++)
        for (int part = 0; part <= PARTS; part++) handles[gpu][part] = (Handle){gpu, part - 1};
    return suffer(&everywhere, "nvmlInitWithFlags");
}
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) { return OK; }
const char *nvmlErrorString(int code) { return code == 9 ? "Driver Not Loaded" : "Unknown"; }

int nvmlDeviceGetCount_v2(unsigned *count) {
    refresh();
    *count = gpu_count;
    return suffer(&everywhere, "nvmlDeviceGetCount_v2");
}
int nvmlSystemGetDriverVersion(char *text, unsigned size) {
    snprintf(text, size, "%s", driver);
    return OK;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, Handle **device) {
    refresh();
    if (index >= (unsigned)gpu_count) return INVALID_ARGUMENT;
    *device = &handles[index][0];
    int code;
    enter("nvmlDeviceGetHandleByIndex_v2", *device, &code);
    return code;
}
int nvmlDeviceGetIndex(const Handle *device, unsigned *index) {
    *index = device->gpu;
    return OK;
}
int nvmlDeviceGetName(const Handle *device, char *text, unsigned size) {
    int code;
    Gpu *gpu = enter("nvmlDeviceGetName", device, &code);
    if (code) return code;
    if (device->part < 0) snprintf(text, size, "%s", gpu->name);
    else snprintf(text, size, "%s MIG %s", gpu->name, gpu->parts[device->part].profile);
    return OK;
}
int nvmlDeviceGetUUID(const Handle *device, char *text, unsigned size) {
    int code;
    Gpu *gpu = enter("nvmlDeviceGetUUID", device, &code);
    if (!code) snprintf(text, size, "%s", device->part < 0 ? gpu->uuid : gpu->parts[device->part].uuid);
    return code;
}
int nvmlDeviceGetMemoryInfo(const Handle *device, u64 *total_free_used) {
    int code;
    Gpu *gpu = enter("nvmlDeviceGetMemoryInfo", device, &code);
    if (code) return code;
    double total, used;
    if (device->part >= 0) total = gpu->parts[device->part].total, used = gpu->parts[device->part].used;
    else if (ask("", device, "memory_total", &total) || ask("", device, "memory_used", &used)) return NOT_SUPPORTED;
    total_free_used[0] = (long long)total, total_free_used[2] = (long long)used;
    total_free_used[1] = total_free_used[0] - total_free_used[2];
    return OK;
}
int nvmlDeviceGetUtilizationRates(const Handle *device, unsigned *gpu_memory) {
    double value;
    int code = ask("nvmlDeviceGetUtilizationRates", device, "utilization", &value);
    if (code) return code;
    gpu_memory[0] = (long long)value;
    gpu_memory[1] = ask("", device, "memory_utilization", &value) ? 0 : (long long)value;
    return OK;
}
int nvmlDeviceGetTotalEccErrors(const Handle *device, unsigned kind, unsigned counter, u64 *out) {
    double value;
    (void)counter;
    int code = ask("nvmlDeviceGetTotalEccErrors", device, kind ? "ecc_uncorrected" : "ecc_corrected", &value);
    if (!code) *out = (long long)value;
    return code;
}

int nvmlDeviceGetNvLinkState(const Handle *device, unsigned link, unsigned *up) {
    double count;
    int code = ask("nvmlDeviceGetNvLinkState", device, "nvlinks_up", &count);
    if (!code) *up = link < count;
    return code;
}

typedef struct { unsigned pid; u64 bytes; unsigned gpu_instance, compute_instance; } ProcessInfo;

int nvmlDeviceGetComputeRunningProcesses_v3(const Handle *device, unsigned *count, ProcessInfo *out) {
    int code;
    double told;
    Gpu *gpu = enter("nvmlDeviceGetComputeRunningProcesses_v3", device, &code);
    if (code) return code;
    if (!gpu->process_count && ask("", device, "no_processes", &told)) return NOT_SUPPORTED;
    unsigned room = out ? *count : 0, found = 0;
    for (int i = 0; i < gpu->process_count; i++) {
        const Process *process = &gpu->processes[i];
        /* The whole GPU tells of all its parts' processes. */
        if (device->part >= 0 && process->part >= 0 && process->part != device->part) continue;
        if (found++ < room) out[found - 1] = (ProcessInfo){process->pid, process->bytes, -1, -1};
    }
    *count = found;
    return room < found ? INSUFFICIENT_SIZE : OK;
}

typedef struct {
    unsigned field, scope;
    long long timestamp, latency;
    unsigned type, code;
    u64 value;
} FieldValue;

int nvmlDeviceGetFieldValues(const Handle *device, int count, FieldValue *out) {
    static const struct { unsigned field; const char *key; } known[] = {
        {197, "pcie_tx_bytes"}, {198, "pcie_rx_bytes"}, {138, "nvlink_tx_kib"}, {139, "nvlink_rx_kib"},
        {91, "nvlinks"}, {90, "nvlink_mbps"},
    };
    int code;
    enter("nvmlDeviceGetFieldValues", device, &code);
    if (code) return code;
    for (int i = 0; i < count; i++) {
        out[i].code = NOT_SUPPORTED, out[i].type = 3;
        for (unsigned k = 0; k < sizeof known / sizeof *known; k++) {
            double value;
            if (known[k].field != out[i].field || ask("", device, known[k].key, &value)) continue;
            out[i].code = OK, out[i].value = (long long)value;
        }
    }
    return OK;
}

int nvmlDeviceGetCudaComputeCapability(const Handle *device, int *major, int *minor) {
    double value;
    int code = ask("nvmlDeviceGetCudaComputeCapability", device, "capability", &value);
    if (!code) *major = (int)value / 10, *minor = (int)value % 10;
    return code;
}
int nvmlDeviceGetMigMode(const Handle *device, unsigned *current, unsigned *pending) {
    double value;
    int code = ask("nvmlDeviceGetMigMode", device, "mig_mode", &value);
    if (!code) *current = *pending = value;
    return code;
}
int nvmlDeviceGetMaxMigDeviceCount(const Handle *device, unsigned *count) {
    int code;
    enter("nvmlDeviceGetMaxMigDeviceCount", device, &code);
    *count = 7;
    return code;
}
int nvmlDeviceGetMigDeviceHandleByIndex(const Handle *device, unsigned index, Handle **part) {
    int code;
    Gpu *gpu = enter("nvmlDeviceGetMigDeviceHandleByIndex", device, &code);
    if (code) return code;
    if (index >= (unsigned)gpu->part_count) return NOT_FOUND;
    *part = &handles[device->gpu][index + 1];
    return OK;
}

typedef struct { const Handle *device; int delivered; } EventSet;
typedef struct { const Handle *device; u64 type, data; unsigned gpu_instance, compute_instance; } EventData;
static EventSet sets[SETS];

static const Value *xids(const Gpu *gpu) {
    static const Value none;
    for (int i = 0; i < gpu->value_count; i++)
        if (!strcmp(gpu->values[i].key, "xid")) return &gpu->values[i];
    return &none;
}
int nvmlEventSetCreate(EventSet **set) {
    static unsigned used;
    *set = &sets[used++ % SETS];
    return suffer(&everywhere, "nvmlEventSetCreate");
}
int nvmlDeviceRegisterEvents(const Handle *device, u64 types, EventSet *set) {
    int code;
    Gpu *gpu = enter("nvmlDeviceRegisterEvents", device, &code);
    if (code) return code;
    if (types != 8) return INVALID_ARGUMENT;
    *set = (EventSet){device, xids(gpu)->count};
    return OK;
}
int nvmlEventSetWait_v2(EventSet *set, EventData *data, unsigned timeout_ms) {
    int code;
    double instance;
    Gpu *gpu = enter("nvmlEventSetWait_v2", set->device, &code);
    if (code) return code;
    if (set->delivered >= xids(gpu)->count) {
        usleep(1000 * timeout_ms);
        return TIMEOUT;
    }
    if (ask("", set->device, "xid_instance", &instance)) instance = -1;
    unsigned of = (unsigned)(long long)instance;
    *data = (EventData){set->device, 8, (u64)xids(gpu)->turns[set->delivered++], of, of};
    return OK;
}
