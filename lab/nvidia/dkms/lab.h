/* SPDX-License-Identifier: Apache-2.0 */
/* What the modules of the stand-in share. */
#pragma once

struct pci_dev;

int lab_nvidia_register(void);
int lab_nvidia_modeset_register(void);

static inline int lab_resize_resource(struct pci_dev *dev, int resource, int size)
{
	return 0;
}
