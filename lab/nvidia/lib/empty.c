// SPDX-License-Identifier: Apache-2.0
// Stand-in for a driver library that nothing in the lab calls: it carries its version, so that what needs the file finds it.
#ifndef LIBRARY_VERSION
#define LIBRARY_VERSION "0"
#endif

const char gpunode_lab_driver_version[] = LIBRARY_VERSION;
