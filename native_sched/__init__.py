"""The arbiter of one node: the C engine between containers and the driver, and the daemon mgpud around it."""
