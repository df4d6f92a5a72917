// SPDX-License-Identifier: Apache-2.0
// Stand-in for libnvidia-ml.so.1: the few calls with which programs ask whether a driver is there, answered from /proc/driver/nvidia.
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#ifndef LIBRARY_VERSION
#define LIBRARY_VERSION "0"
#endif

enum {
	NVML_SUCCESS = 0,
	NVML_ERROR_UNINITIALIZED = 1,
	NVML_ERROR_INVALID_ARGUMENT = 2,
	NVML_ERROR_NOT_FOUND = 6,
	NVML_ERROR_INSUFFICIENT_SIZE = 7,
	NVML_ERROR_DRIVER_NOT_LOADED = 9,
	NVML_ERROR_LIB_RM_VERSION_MISMATCH = 18,
};

/* From the stand-in libcuda, which also answers for free memory. */
int lab_fabric_init(void);

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

static unsigned count_gpus(void)
{
	unsigned count = 0;
	struct dirent *entry;
	DIR *folder = opendir("/proc/driver/nvidia/gpus");
	char path[300], line[200], node[40];
	int minor;

	if (!folder)
		return 0;
	while ((entry = readdir(folder))) {
		FILE *file;

		if (entry->d_name[0] == '.')
			continue;
		snprintf(path, sizeof path, "/proc/driver/nvidia/gpus/%s/information", entry->d_name);
		file = fopen(path, "r");
		if (!file)
			continue;
		while (fgets(line, sizeof line, file)) {
			if (sscanf(line, "Device Minor: %d", &minor) == 1) {
				snprintf(node, sizeof node, "/dev/nvidia%d", minor);
				count += access(node, R_OK | W_OK) == 0;
			}
		}
		fclose(file);
	}
	closedir(folder);
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
	*count = count_gpus();
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
