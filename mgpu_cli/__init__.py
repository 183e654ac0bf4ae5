"""The operator's command `mgpu`: one file per subcommand, over a small library."""
