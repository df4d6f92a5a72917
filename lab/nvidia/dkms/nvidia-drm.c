// SPDX-License-Identifier: Apache-2.0
// Stand-in for nvidia-drm.ko.
#include <linux/module.h>

#include "lab.h"

static bool modeset = true;
module_param(modeset, bool, 0400);
MODULE_PARM_DESC(modeset, "Enable atomic kernel modesetting (1 = enable, 0 = disable)");
static bool fbdev = true;
module_param(fbdev, bool, 0400);

static int __init drm_init(void)
{
	return lab_nvidia_modeset_register();
}

static void __exit drm_exit(void)
{
}

module_init(drm_init);
module_exit(drm_exit);
MODULE_LICENSE("Dual MIT/GPL");
MODULE_VERSION(NV_VERSION_STRING);
MODULE_DESCRIPTION("Stand-in of the gpunode lab for NVIDIA DRM");
