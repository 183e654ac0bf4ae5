"""`python -m cluster.admission`: the webhook's server."""

from __future__ import annotations

from cluster.admission.main import main

if __name__ == "__main__":
    main()
