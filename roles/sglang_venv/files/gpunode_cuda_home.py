"""Make a CUDA_HOME of the toolkit's packages in a virtual environment: links in the layout that compilers of extensions expect.

    python gpunode_cuda_home.py SITE_PACKAGES TARGET [DRIVER_LIBRARY]

The packages put everything into nvidia/cu13 and name libraries by their version only; flashinfer and torch look for bin/nvcc, include,
lib64/libNAME.so and lib64/stubs/libcuda.so. Prints TARGET, or nothing where the environment has no nvcc. Standard library only.
"""

from __future__ import annotations

import sys
from pathlib import Path

DRIVER = Path("/usr/lib/x86_64-linux-gnu/libcuda.so.1")
"""What programs are linked against; the driver's library itself serves as its stub."""


def make(site: Path, target: Path, driver: Path = DRIVER) -> bool:
    """Make the links anew; False where there is no nvcc to link to."""
    toolkits = sorted(path.parents[1] for path in site.glob("nvidia/cu*/bin/nvcc"))
    if not toolkits:
        return False
    toolkit = toolkits[-1]
    links = {name: toolkit / name for name in ("bin", "include", "nvvm") if (toolkit / name).is_dir()}
    for library in sorted((toolkit / "lib").glob("lib*")):
        links[f"lib64/{library.name}"] = library
        links.setdefault(f"lib64/{library.name.partition('.so')[0]}.so" if ".so" in library.name else f"lib64/{library.name}", library)
    links["lib64/stubs/libcuda.so"] = driver
    for name, there in links.items():
        link = target / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(there)
    return True


if __name__ == "__main__":
    if make(Path(sys.argv[1]).absolute(), Path(sys.argv[2]), *map(Path, sys.argv[3:4])):
        print(sys.argv[2])
