"""A small stand-in for the model hub: what `hf download` asks for, with faults on request."""
