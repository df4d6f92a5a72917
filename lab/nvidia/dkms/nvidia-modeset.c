// SPDX-License-Identifier: Apache-2.0
// Stand-in for nvidia-modeset.ko.
#include <linux/module.h>

#include "lab.h"

static bool vblank_sem_control = true;
module_param(vblank_sem_control, bool, 0400);
static bool disable_hdmi_frl;
module_param(disable_hdmi_frl, bool, 0400);

int lab_nvidia_modeset_register(void)
{
	return lab_nvidia_register();
}
EXPORT_SYMBOL(lab_nvidia_modeset_register);

static int __init modeset_init(void)
{
	return lab_nvidia_register();
}

static void __exit modeset_exit(void)
{
}

module_init(modeset_init);
module_exit(modeset_exit);
MODULE_LICENSE("Dual MIT/GPL");
MODULE_VERSION(NV_VERSION_STRING);
MODULE_DESCRIPTION("Stand-in of the gpunode lab for NVIDIA mode setting");
