"""`python -m cluster.chart`: writes the Helm chart's templates."""

from cluster.chart.write import main

if __name__ == "__main__":
    main()
