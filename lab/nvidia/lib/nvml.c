// SPDX-License-Identifier: Apache-2.0
// Stand-in for libnvidia-ml.so.1, answered from /proc/driver/nvidia: whether a driver is there, and what exporters ask of each GPU.
// Load is that of idle GPUs: what programs say they hold is told by nvidia-smi alone.
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef LIBRARY_VERSION
#define LIBRARY_VERSION "0"
#endif

enum {
	NVML_SUCCESS = 0,
	NVML_ERROR_UNINITIALIZED = 1,
	NVML_ERROR_INVALID_ARGUMENT = 2,
	NVML_ERROR_NOT_SUPPORTED = 3,
	NVML_ERROR_NOT_FOUND = 6,
	NVML_ERROR_INSUFFICIENT_SIZE = 7,
	NVML_ERROR_DRIVER_NOT_LOADED = 9,
	NVML_ERROR_LIB_RM_VERSION_MISMATCH = 18,
};

/* From the stand-in libcuda, which also answers for free memory. */
int lab_fabric_init(void);
int lab_fabric_memory(void *fabric, unsigned long long memory[3]);
int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, void **fabric);

static int initialised;

static int module_version(char *out, size_t size)
{
	char line[512], *word, *save = NULL;
	FILE *file = fopen("/proc/driver/nvidia/version", "r");
	int found = 0;

	if (!file)
		return 0;
	if (fgets(line, sizeof line, file)) {
		for (word = strtok_r(line, " \t\n", &save); word; word = strtok_r(NULL, " \t\n", &save)) {
			if (word[0] >= '0' && word[0] <= '9' && strchr(word, '.')) {
				snprintf(out, size, "%s", word);
				found = 1;
				break;
			}
		}
	}
	fclose(file);
	return found;
}

enum { MAX_GPUS = 32, LIMIT_MW = 600000 };

struct gpu {
	char bus[32], name[96], uuid[48];
	int minor;
	void *fabric; /* its handle there, which is also the one that callers get by bus id */
};

static struct gpu gpus[MAX_GPUS];

static int by_bus(const void *one, const void *two)
{
	return strcmp(((const struct gpu *)one)->bus, ((const struct gpu *)two)->bus);
}

static void field(const char *line, const char *name, char *out, size_t size)
{
	size_t length = strlen(name);

	if (strncmp(line, name, length) == 0) {
		line += length;
		line += strspn(line, " \t");
		snprintf(out, size, "%.*s", (int)strcspn(line, "\n"), line);
	}
}

/* The GPUs whose nodes may be opened, in the order of the bus. */
static unsigned read_gpus(void)
{
	unsigned count = 0;
	struct dirent *entry;
	DIR *folder = opendir("/proc/driver/nvidia/gpus");
	char path[300], line[200], node[40];

	if (!folder)
		return 0;
	while ((entry = readdir(folder)) && count < MAX_GPUS) {
		struct gpu found = {.minor = -1};
		FILE *file;

		if (entry->d_name[0] == '.')
			continue;
		snprintf(path, sizeof path, "/proc/driver/nvidia/gpus/%s/information", entry->d_name);
		file = fopen(path, "r");
		if (!file)
			continue;
		snprintf(found.bus, sizeof found.bus, "%.31s", entry->d_name);
		while (fgets(line, sizeof line, file)) {
			sscanf(line, "Device Minor: %d", &found.minor);
			field(line, "Model:", found.name, sizeof found.name);
			field(line, "GPU UUID:", found.uuid, sizeof found.uuid);
		}
		fclose(file);
		snprintf(node, sizeof node, "/dev/nvidia%d", found.minor);
		if (found.minor < 0 || access(node, R_OK | W_OK) != 0)
			continue;
		if (nvmlDeviceGetHandleByPciBusId_v2(found.bus, &found.fabric) != NVML_SUCCESS)
			found.fabric = NULL;
		gpus[count++] = found;
	}
	closedir(folder);
	qsort(gpus, count, sizeof gpus[0], by_bus);
	return count;
}

int nvmlInit_v2(void)
{
	char version[64];

	if (!module_version(version, sizeof version) || access("/dev/nvidiactl", R_OK | W_OK) != 0)
		return NVML_ERROR_DRIVER_NOT_LOADED;
	if (strcmp(version, LIBRARY_VERSION) != 0)
		return NVML_ERROR_LIB_RM_VERSION_MISMATCH;
	/* What keeps CUDA from starting (HMM, say) does not keep NVML from it: only free memory is unknown then. */
	lab_fabric_init();
	initialised = 1;
	return NVML_SUCCESS;
}

int nvmlInit(void)
{
	return nvmlInit_v2();
}

int nvmlInitWithFlags(unsigned flags)
{
	(void)flags;
	return nvmlInit_v2();
}

int nvmlShutdown(void)
{
	if (!initialised)
		return NVML_ERROR_UNINITIALIZED;
	initialised = 0;
	return NVML_SUCCESS;
}

static int answer(char *out, unsigned length, const char *text)
{
	if (!out)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (length <= strlen(text))
		return NVML_ERROR_INSUFFICIENT_SIZE;
	strcpy(out, text);
	return NVML_SUCCESS;
}

int nvmlSystemGetDriverVersion(char *version, unsigned length)
{
	char found[64];

	if (!initialised)
		return NVML_ERROR_UNINITIALIZED;
	return module_version(found, sizeof found) ? answer(version, length, found) : NVML_ERROR_DRIVER_NOT_LOADED;
}

int nvmlSystemGetNVMLVersion(char *version, unsigned length)
{
	return initialised ? answer(version, length, "13." LIBRARY_VERSION) : NVML_ERROR_UNINITIALIZED;
}

int nvmlDeviceGetCount_v2(unsigned *count)
{
	if (!initialised)
		return NVML_ERROR_UNINITIALIZED;
	if (!count)
		return NVML_ERROR_INVALID_ARGUMENT;
	*count = read_gpus();
	return NVML_SUCCESS;
}

/* The GPU of a handle, whichever way the caller got it. */
static struct gpu *of(void *device)
{
	for (struct gpu *gpu = gpus; gpu < gpus + MAX_GPUS; gpu++)
		if (device == gpu || (device && device == gpu->fabric))
			return gpu;
	return NULL;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device)
{
	if (!initialised)
		return NVML_ERROR_UNINITIALIZED;
	if (!device || index >= read_gpus())
		return NVML_ERROR_INVALID_ARGUMENT;
	*device = gpus[index].fabric ? gpus[index].fabric : &gpus[index];
	return NVML_SUCCESS;
}

int nvmlDeviceGetIndex(void *device, unsigned *index)
{
	struct gpu *gpu = of(device);

	if (!gpu)
		return NVML_ERROR_INVALID_ARGUMENT;
	*index = (unsigned)(gpu - gpus);
	return NVML_SUCCESS;
}

int nvmlDeviceGetName(void *device, char *name, unsigned length)
{
	struct gpu *gpu = of(device);

	return gpu ? answer(name, length, gpu->name) : NVML_ERROR_INVALID_ARGUMENT;
}

int nvmlDeviceGetUUID(void *device, char *uuid, unsigned length)
{
	struct gpu *gpu = of(device);

	return gpu ? answer(uuid, length, gpu->uuid) : NVML_ERROR_INVALID_ARGUMENT;
}

int nvmlDeviceGetMigMode(void *device, unsigned *current, unsigned *pending)
{
	(void)device;
	(void)current;
	(void)pending;
	return NVML_ERROR_NOT_SUPPORTED;
}

int nvmlDeviceGetMemoryInfo(void *device, unsigned long long memory[3])
{
	struct gpu *gpu = of(device);

	if (gpu && !gpu->fabric)
		return NVML_ERROR_NOT_SUPPORTED;
	return lab_fabric_memory(gpu ? gpu->fabric : device, memory);
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, void *processes)
{
	(void)device;
	(void)processes;
	*count = 0;
	return NVML_SUCCESS;
}

int nvmlDeviceGetGraphicsRunningProcesses_v3(void *device, unsigned *count, void *processes)
{
	return nvmlDeviceGetComputeRunningProcesses_v3(device, count, processes);
}

struct utilisation {
	unsigned gpu, memory;
};

int nvmlDeviceGetUtilizationRates(void *device, struct utilisation *rates)
{
	(void)device;
	rates->gpu = rates->memory = 0;
	return NVML_SUCCESS;
}

int nvmlDeviceGetTemperature(void *device, unsigned sensor, unsigned *celsius)
{
	struct gpu *gpu = of(device);

	(void)sensor;
	if (!gpu)
		return NVML_ERROR_INVALID_ARGUMENT;
	*celsius = 28 + (unsigned)(gpu->minor % 4);
	return NVML_SUCCESS;
}

int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts)
{
	struct gpu *gpu = of(device);

	if (!gpu)
		return NVML_ERROR_INVALID_ARGUMENT;
	*milliwatts = 79000 + 1370 * (unsigned)gpu->minor;
	return NVML_SUCCESS;
}

int nvmlDeviceGetPowerManagementLimit(void *device, unsigned *milliwatts)
{
	(void)device;
	*milliwatts = LIMIT_MW;
	return NVML_SUCCESS;
}

/* 0 graphics, 1 SM, 2 memory, 3 video. */
int nvmlDeviceGetClockInfo(void *device, unsigned kind, unsigned *mhz)
{
	(void)device;
	*mhz = kind == 2 ? 405 : 180;
	return NVML_SUCCESS;
}

const char *nvmlErrorString(int result)
{
	switch (result) {
	case NVML_SUCCESS:
		return "Success";
	case NVML_ERROR_UNINITIALIZED:
		return "Uninitialized";
	case NVML_ERROR_INVALID_ARGUMENT:
		return "Invalid Argument";
	case NVML_ERROR_NOT_SUPPORTED:
		return "Not Supported";
	case NVML_ERROR_NOT_FOUND:
		return "Not Found";
	case NVML_ERROR_INSUFFICIENT_SIZE:
		return "Insufficient Size";
	case NVML_ERROR_DRIVER_NOT_LOADED:
		return "Driver Not Loaded";
	case NVML_ERROR_LIB_RM_VERSION_MISMATCH:
		return "RM has detected an NVML/RM version mismatch.";
	default:
		return "Unknown Error";
	}
}
