"""Which examples make up the minibatches of a participant's local training.

`Selection` says which examples are trained on. A stream is the sequence of
indices that minibatches are cut from: passes, each a new permutation of the
selected examples. `Minibatches` says how many minibatches are cut, and where
they end:

```
steps                    T minibatches, all of them full, of as many passes as
                         that takes
epochs, 'separate'       E passes; the last minibatch of each may be smaller
epochs, 'continuous'     E passes without a cut between them; only the last
                         minibatch of all may be smaller. The batches of TFF's
                         own `repeat(E).batch(B)`
epochs, 'matched'        as many full minibatches as E continuous passes over
                         *all* examples would have, selected or not
```

Two selections cut their minibatches in other ways (`kinds`): 'either' draws for
each minibatch whether it is labelled, and a mask that is drawn anew hides other
labels in each epoch. If examples lie in sets, a whole set may be a minibatch
(`rows='sets'`).
"""

from tff_ssl.templates.minibatches.batches import Batches, draw_labelled
from tff_ssl.templates.minibatches.drawing import Minibatches
from tff_ssl.templates.minibatches.selection import Selection, gather

__all__ = ['Batches', 'Minibatches', 'Selection', 'draw_labelled', 'gather']
