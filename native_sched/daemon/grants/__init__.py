"""What containers are given: admission, placement, shares, and what is written down of it."""
