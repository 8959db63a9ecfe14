"""What a flag of the runner is."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Flag:
  """A flag of the runner.

  Attributes:
    name: Its name.
    kind: 'string', 'integer', 'float' or 'boolean'.
    help: What it does, with its unit.
  """

  name: str
  kind: str
  help: str
