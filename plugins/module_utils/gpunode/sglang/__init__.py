"""What is known of sglang's releases: flags, pins, what fails on which GPU, and the check of a launch against it."""
