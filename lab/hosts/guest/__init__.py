"""What runs in the guest: steps, each a function without arguments that fails by an exception."""
