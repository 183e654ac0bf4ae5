"""`python -m cluster.admission`: the webhook's server."""

from cluster.admission.main import main

if __name__ == "__main__":
    main()
