"""What outlives a round, beside the weights of the model.

A process has any number of memories, each a `Memory`:

```
SlotMemory      a state of each position among the participants, at the server
ClientMemory    a state of each client, on the client's own disk
MeanState       the mean of the states that the clients of a round leave
SharedMean      one state at the server that all clients read, and to which the
                mean of what they contribute is added
```

FedMatch's table of helper clients is one, too
(`tff_ssl.templates.helper_clients.helper_table`).
"""

from tff_ssl.templates.memories.client_memory import ClientMemory
from tff_ssl.templates.memories.client_momentum import (
  MeanState,
  client_momentum,
)
from tff_ssl.templates.memories.memory import Fields, Kept, Memory
from tff_ssl.templates.memories.shared_mean import SharedMean
from tff_ssl.templates.memories.slot_memory import SlotMemory

__all__ = [
  'ClientMemory',
  'Fields',
  'Kept',
  'MeanState',
  'Memory',
  'SharedMean',
  'SlotMemory',
  'client_momentum',
]
