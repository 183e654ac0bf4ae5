"""A long-running program of the cluster: until when it runs, and what it says while it does."""
