// SPDX-License-Identifier: Apache-2.0
// Stand-in for nvidia.ko: it builds against real kernel headers and carries the real module's parameters, but drives nothing.
#include <linux/module.h>
#include <linux/pci.h>

#include "lab.h"

#define NVREG_INT(name, value) static int NVreg_##name = value; module_param_named(NVreg_##name, NVreg_##name, int, 0)
#define NVREG_STRING(name) static char *NVreg_##name; module_param_named(NVreg_##name, NVreg_##name, charp, 0)

NVREG_INT(ResmanDebugLevel, ~0);
NVREG_INT(RmLogonRC, 1);
NVREG_INT(ModifyDeviceFiles, 1);
NVREG_INT(DeviceFileUID, 0);
NVREG_INT(DeviceFileGID, 0);
NVREG_INT(DeviceFileMode, 0666);
NVREG_INT(InitializeSystemMemoryAllocations, 1);
NVREG_INT(UsePageAttributeTable, ~0);
NVREG_INT(EnableMSI, 1);
NVREG_INT(EnablePCIeGen3, 0);
NVREG_INT(MemoryPoolSize, 0);
NVREG_INT(KMallocHeapMaxSize, 0);
NVREG_INT(VMallocHeapMaxSize, 0);
NVREG_INT(IgnoreMMIOCheck, 0);
NVREG_INT(EnableStreamMemOPs, 0);
NVREG_INT(EnableUserNUMAManagement, 1);
NVREG_INT(NvLinkDisable, 0);
NVREG_INT(RestrictProfilingToAdminUsers, 0);
NVREG_INT(PreserveVideoMemoryAllocations, 0);
NVREG_INT(EnableS0ixPowerManagement, 0);
NVREG_INT(S0ixPowerManagementVideoMemoryThreshold, 256);
NVREG_INT(DynamicPowerManagement, 3);
NVREG_INT(DynamicPowerManagementVideoMemoryThreshold, 200);
NVREG_INT(RegisterPCIDriver, 1);
NVREG_INT(EnablePCIERelaxedOrderingMode, 0);
NVREG_INT(EnableResizableBar, 0);
NVREG_INT(EnableGpuFirmware, 18);
NVREG_INT(EnableGpuFirmwareLogs, 2);
NVREG_INT(RmNvlinkBandwidthLinkCount, 0);
NVREG_INT(EnableDbgBreakpoint, 0);
NVREG_INT(OpenRmEnableUnsupportedGpus, 1);
NVREG_INT(DmaRemapPeerMmio, 1);
NVREG_INT(ImexChannelCount, 2048);
NVREG_INT(CreateImexChannel0, 0);
NVREG_INT(GrdmaPciTopoCheckOverride, 0);
NVREG_STRING(CoherentGPUMemoryMode);
NVREG_STRING(RegistryDwords);
NVREG_STRING(RegistryDwordsPerDevice);
NVREG_STRING(RmMsg);
NVREG_STRING(GpuBlacklist);
NVREG_STRING(TemporaryFilePath);
NVREG_STRING(ExcludedGpus);

static const struct pci_device_id nv_pci_table[] = {
	{ PCI_DEVICE(0x10de, PCI_ANY_ID), .class = PCI_CLASS_DISPLAY_VGA << 8, .class_mask = ~0 },
	{ PCI_DEVICE(0x10de, PCI_ANY_ID), .class = PCI_CLASS_DISPLAY_3D << 8, .class_mask = ~0 },
	{ }
};
MODULE_DEVICE_TABLE(pci, nv_pci_table);

#ifdef LAB_TOO_NEW_A_KERNEL
/* What a driver older than its kernel looks like: an interface of the kernel gained an argument. */
static int lab_resize(struct pci_dev *dev)
{
	return lab_resize_resource(dev, 1);
}
#endif

int lab_nvidia_register(void)
{
#ifdef LAB_TOO_NEW_A_KERNEL
	return lab_resize(NULL);
#else
	return 0;
#endif
}
EXPORT_SYMBOL(lab_nvidia_register);

static int __init nvidia_init_module(void)
{
	return -ENODEV;
}

static void __exit nvidia_exit_module(void)
{
}

module_init(nvidia_init_module);
module_exit(nvidia_exit_module);
MODULE_LICENSE("Dual MIT/GPL");
MODULE_VERSION(NV_VERSION_STRING);
MODULE_DESCRIPTION("Stand-in of the gpunode lab for the NVIDIA GPU driver");
MODULE_FIRMWARE("nvidia/" NV_VERSION_STRING "/gsp_tu10x.bin");
MODULE_FIRMWARE("nvidia/" NV_VERSION_STRING "/gsp_ga10x.bin");
MODULE_ALIAS_CHARDEV_MAJOR(195);
