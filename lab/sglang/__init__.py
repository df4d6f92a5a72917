"""The sglang stand-in: answers as a real server does, beside the real wheel, without a GPU."""
