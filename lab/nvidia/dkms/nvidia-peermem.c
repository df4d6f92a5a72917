// SPDX-License-Identifier: Apache-2.0
// Stand-in for nvidia-peermem.ko.
#include <linux/module.h>

#include "lab.h"

static int peerdirect_support;
module_param(peerdirect_support, int, 0444);

static int __init peermem_init(void)
{
	return lab_nvidia_register();
}

static void __exit peermem_exit(void)
{
}

module_init(peermem_init);
module_exit(peermem_exit);
MODULE_LICENSE("Dual BSD/GPL");
MODULE_VERSION(NV_VERSION_STRING);
MODULE_DESCRIPTION("Stand-in of the gpunode lab for NVIDIA peer memory");
