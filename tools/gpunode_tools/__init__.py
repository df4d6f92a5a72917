"""The command line of gpunode: collecting, measuring, showing. Rules live in the core (``gpunode``)."""
