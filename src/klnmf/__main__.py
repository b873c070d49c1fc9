"""``python -m klnmf``: the same as the command ``klnmf``."""

from klnmf.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
