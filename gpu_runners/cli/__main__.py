import sys

from gpu_runners.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
