"""`python -m orchestrator` is `spark-deploy`."""

from orchestrator.cli.main import main

main()
