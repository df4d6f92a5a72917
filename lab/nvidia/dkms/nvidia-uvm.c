// SPDX-License-Identifier: Apache-2.0
// Stand-in for nvidia-uvm.ko with the parameters that people set.
#include <linux/module.h>

#include "lab.h"

static bool uvm_disable_hmm;
module_param(uvm_disable_hmm, bool, 0444);
MODULE_PARM_DESC(uvm_disable_hmm, "Force-disable HMM functionality in the UVM driver.");

#define UVM_INT(name, value) static int name = value; module_param(name, int, 0444)
UVM_INT(uvm_ats_mode, 1);
UVM_INT(uvm_debug_prints, 0);
UVM_INT(uvm_enable_builtin_tests, 0);
UVM_INT(uvm_enable_debug_procfs, 0);
UVM_INT(uvm_enable_va_space_mm, 1);
UVM_INT(uvm_global_oversubscription, 1);
UVM_INT(uvm_leak_checker, 0);
UVM_INT(uvm_perf_prefetch_enable, 1);
UVM_INT(uvm_perf_prefetch_threshold, 51);
UVM_INT(uvm_perf_thrashing_enable, 1);
UVM_INT(uvm_perf_migrate_cpu_preunmap_enable, 1);

static int __init uvm_init(void)
{
	return lab_nvidia_register();
}

static void __exit uvm_exit(void)
{
}

module_init(uvm_init);
module_exit(uvm_exit);
MODULE_LICENSE("Dual MIT/GPL");
MODULE_VERSION(NV_VERSION_STRING);
MODULE_DESCRIPTION("Stand-in of the gpunode lab for NVIDIA Unified Virtual Memory");
